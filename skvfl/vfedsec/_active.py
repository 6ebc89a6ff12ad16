"""vFedSec's active party, which has the labels and selects the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from skvfl.exceptions import ShareableError
from skvfl.federation import Holding, operation, serving
from skvfl.federation._party import giving
from skvfl.nn._labels import Codec
from skvfl.privacy import SecureAggregationError, seal_ids
from skvfl.privacy._masks import SERVER
from skvfl.privacy._sealed_ids import every
from skvfl.vfedsec._agreement import check_contributors
from skvfl.vfedsec._parties import (
    EMPTY,
    FILLED,
    NOT_HELD,
    ClientSettings,
    Rows,
    SecureClient,
)

# How far from the first active party's mean others' targets may lie, in its scale.
_MOST_UNITS = 1000


@dataclass
class Holders:
    """Which rows each passive client holds; None is all of them."""

    after: ClassVar = "take_rows"
    rows: dict[str, np.ndarray | None]


@dataclass
class Shared:
    """Labels and weights of all rows, as the server is sent them."""

    after: ClassVar = "begin_training"
    labels: np.ndarray
    weights: np.ndarray | None


@dataclass
class Order:
    """Order in which the rows are selected."""

    after: ClassVar = "begin_training"
    shuffle: Callable
    rows: np.ndarray


@dataclass
class Selection:
    """Ids of the rows of the batch under way."""

    after: ClassVar = "select"
    batch: np.ndarray


@dataclass(frozen=True, kw_only=True)
class ActiveSettings(ClientSettings, role="vfedsec.active"):
    """What the active client is told; the estimator's parameters of these names."""

    def make(self, member):
        """The client that has the labels."""
        # Several active parties have labels of some rows each.
        labels, known = member.labels, member.labels.known
        codec = Codec(labels if known is None else labels.take(np.flatnonzero(known)))
        order = member.stream("order")
        return ActiveClient(**self._parts(member), to_order=order, codec=codec)


class ActiveClient(SecureClient):
    """The active party of vFedSec: it holds the labels and selects the rows.

    Where there are several, each selects the rows whose labels it holds, and is a
    client like the others while another one selects.

    The server learns neither its order of rows nor who holds which of them.

    Parameters
    ----------
    **client : dict
        As for :class:`SecureClient`.
    to_order : SeedSequence
        Of the order of rows.
    codec : Codec
        How labels are written, and outputs read.
    """

    def __init__(self, *, to_order, codec, **client):
        super().__init__(**client)
        self._to_order = to_order
        self._codec = codec

    @serving
    def take_rows(self, n_rows, fitting, imputes, rows):
        """Learn which rows the passive clients hold.

        Parameters
        ----------
        n_rows, fitting, imputes
            As :meth:`say_rows` takes them.
        rows : dict of str to ndarray or None
            What each passive client's :meth:`say_rows` returned.

        Raises
        ------
        BareRowsError
            With masks, if fewer than two organisations have columns of a row.
        """
        # It has chosen the rows, so it holds them.
        own = {self.name: self._codes(n_rows, fitting, keeps_empty=True)}
        if self._agreement.masked:
            check_contributors(self._filled(n_rows, rows | own), n_rows)
        least = EMPTY if fitting or imputes else FILLED
        held = {c: None if r is None else r >= least for c, r in rows.items()}
        self.hold(Holders(held))

    def _filled(self, n_rows, rows):
        """Rows of which each party has columns with something in them.

        An active party without columns is left out, since it does not hide what others
        contribute: its bias is the same in all rows, starts at zero and follows the
        gradients that the server computes itself.
        """
        filled = {}
        for party, cluster in self._agreement.clusters.items():
            if self.name in cluster and self._transformer is None:
                continue
            said = [rows[client] for client in cluster]
            held = [np.full(n_rows, FILLED) if r is None else r for r in said]
            filled[party] = (np.array(held) == FILLED).any(axis=0)
        return filled

    @serving
    def say_units(self):
        """Mean and scale of the target, for the other active clients."""
        return self._codec.units

    @operation
    def take_units(self, mean, scale):
        """Write targets as the first active client does."""
        self._codec.units = {"mean": mean, "scale": scale}

    @operation
    def begin_training(self):
        """Choose an order of the labelled rows, the last of which may be held out."""
        labels = self.held(Holding).labels
        if not self.take_over("_codec"):
            self._check_units(labels)
        encoded, weights = self._codec.encode(labels.values), labels.weights
        # The smallest type that holds all codes: they are sent with every batch.
        if labels.n_classes is not None:
            encoded = encoded.astype(np.min_scalar_type(labels.n_classes - 1))
        if weights is not None:
            weights = weights.astype(np.float32)
        self.hold(Shared(encoded, weights))
        # The order is the active client's alone, unlike that of split learning.
        shuffle = np.random.default_rng(self._to_order).permutation
        ids = self.held(Rows).ids
        known = ids if labels.known is None else ids[labels.known[ids]]
        self.hold(Order(shuffle, shuffle(known)))

    def _check_units(self, labels):
        """Refuse to write targets in units in which nobody could learn them."""
        if labels.n_classes is not None or self.name == self._agreement.active:
            return
        own, units = labels.values[labels.known], self._codec.units
        # Answers are in these units, and in those of a constant all are the same.
        away = np.abs(own - units["mean"]).max()
        if away > _MOST_UNITS * units["scale"]:
            raise ShareableError(
                f"its targets lie beyond {_MOST_UNITS} standard deviations of those of "
                f"{self._agreement.active!r}, in whose units all are learnt: put an "
                "active party first whose targets are more like those of all"
            )

    @operation
    def begin_epoch(self, n_train):
        """Choose a new order of the rows that are trained on.

        Parameters
        ----------
        n_train : int
            Number of rows that are trained on.
        """
        order = self.held(Order)
        order.rows[:n_train] = order.shuffle(order.rows[:n_train])

    # Rows are taken by their positions, which copies them; a slice would not.
    @giving
    @serving
    def select(self, round_id, start, stop):
        """Select a batch: sealed row ids for the clients, labels for the server.

        Parameters
        ----------
        round_id : int
            Number of the round.
        start, stop : int
            Bounds of the batch in the order of rows.
        """
        trains = self.holds(Order)
        rows = self.held(Order).rows if trains else self.held(Rows).ids
        rows = rows[start:stop]
        self.hold(Selection(rows))
        ids = [
            self._seal(client, rows, mine, round_id)
            for client, mine in self.held(Holders).rows.items()
        ]
        chosen = {"ids": np.concatenate(ids).reshape(len(ids), -1)}
        told = vars(self.held(Shared)) if self.holds(Shared) else {}
        for what, array in told.items():
            if array is None:
                continue
            chosen[what] = array[rows]
            chosen[f"tag of {what}"] = self._agreement.sign(
                self._ring, SERVER, what, chosen[what], round_id
            )
        return chosen

    @serving
    def answer(self, outputs):
        """Probabilities of classes, or targets in their own units.

        Parameters
        ----------
        outputs : ndarray of shape (n_rows, n_outputs)
            Of the server's global module.
        """
        return self._codec.decode(outputs)

    def _seal(self, client, rows, mine, round_id):
        """Ids of those rows of a batch that a client holds; None holds all."""
        if not self._agreement.masked:
            return rows if mine is None else np.where(mine[rows], rows, NOT_HELD)
        # Positions are sealed with the ids, as they say who holds which row.
        if mine is None:
            positions, ids = every(len(rows)), rows
        else:
            positions = np.flatnonzero(mine[rows])
            ids = rows[positions]
        sizes = {"capacity": len(rows), "round_id": round_id}
        return seal_ids(self._ring, client, ids, positions, **sizes)

    def _read(self, ids, n_rows, round_id, chooser):
        if chooser != self.name:
            return super()._read(ids, n_rows, round_id, chooser)
        batch = self.held(Selection).batch
        if n_rows != len(batch):
            raise SecureAggregationError(
                SERVER, f"it asks for {n_rows} rows of a batch of {len(batch)}"
            )
        return batch, every(n_rows)
