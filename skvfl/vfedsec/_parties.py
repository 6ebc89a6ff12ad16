"""vFedSec: clients whose contributions only show in a masked sum.

No operation of a client returns an activation, a gradient or a row id that is not
masked or sealed (unless the clients agreed on no masks).
"""

from __future__ import annotations

import copy
import hmac
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from skvfl._rows import rows_without_values
from skvfl._sklearn import _safe_indexing
from skvfl.exceptions import SettingsError, ShareableError
from skvfl.federation import Holding, Party, operation, serving
from skvfl.federation._party import giving, run
from skvfl.nn._build import Build, Optimize
from skvfl.nn._device import bring_home
from skvfl.nn._explicit import Explicit, Recorded, trainer
from skvfl.nn._steps import by_rows, infer
from skvfl.nn._streams import private_generator
from skvfl.privacy import SecureAggregationError, open_ids
from skvfl.privacy._draw import Draw
from skvfl.privacy._masks import SERVER
from skvfl.vfedsec._agreement import (
    GRADIENT,
    UPDATE,
    AgreedSettings,
    Keys,
    Masks,
    own_ring,
)

_COLUMNS = "prepared columns"
# Name of a member's own object: how many batches an epoch has.
N_BATCHES = "batches of an epoch"
# Without masks, in place of the id of a row that a client does not hold.
NOT_HELD = -1
# What a client says of a row of the run.
NOT_MINE, EMPTY, FILLED = range(3)


@dataclass
class Rows:
    """Ids of rows to which the client contributes, where they are, and their block."""

    after: ClassVar = "say_rows"
    ids: np.ndarray
    place: np.ndarray
    block: Any


@dataclass
class Inputs:
    """Prepared columns of the rows to which the client contributes.

    As numpy has them, which takes the rows of a batch.
    """

    after: ClassVar = "prepare"
    values: np.ndarray


@dataclass
class Training:
    """What goes through the client's local module and takes its steps."""

    after: ClassVar = "prepare"
    trainer: Explicit | Recorded
    taken: int = 0


@dataclass
class Contribution:
    """Of the batch under way: what its gradient goes back through, and which rows.

    The rows are those of the batch that the client has; without any there is no tape.
    """

    after: ClassVar = "forward"
    tape: tuple | None
    positions: np.ndarray


@dataclass
class Best:
    """Copy of the local module that did best on held-out rows."""

    after: ClassVar = "remember"
    model: nn.Module


@dataclass(frozen=True, kw_only=True)
class ClientSettings(AgreedSettings, role="vfedsec.passive"):
    """What a passive client is told; the estimator's parameters of these names.

    Parameters
    ----------
    partly_held : bool, default=False
        Whether nobody holds some rows of the client's party, as ``clients`` says.
    """

    bottom: Any
    partly_held: bool = False

    def make(self, member):
        """A client with a local module, keys and masks of its own."""
        if not member.n_columns:
            raise SettingsError("it holds no columns: leave it out")
        return SecureClient(**self._parts(member))

    def live(self, words, streams, name):
        """Objects that words can only refer to, for a member of a simulation.

        Clients of one cluster prepare their columns alike, so what a seed of the user's
        says goes by the party's name.
        """
        (party,) = (p for p, cluster in self.clusters.items() if name in cluster)
        return super().live(words, streams, party)

    def _parts(self, member):
        agreement = self.agreement
        return {
            "name": member.name,
            "transformer": member.transformer(self.transformer),
            "build_bottom": Build(self.bottom, self.cut_width, name="bottom"),
            "optimize": Optimize(
                self.optimizer,
                self.lr,
                weight_decay=self.weight_decay,
                device=member.device,
                callbacks=member.callbacks,
            ),
            "stream": member.stream("models"),
            "agreement": agreement,
            "ring": own_ring(member, agreement),
            "partly_held": self.partly_held,
            "n_batches": member.own.get(N_BATCHES, 1),
        }


class SecureClient(Party):
    """A client of vFedSec: some columns of some rows, and a local module.

    The last linear layer of the local module is the client's part of the secure layer.

    Parameters
    ----------
    name : str
        Name of the client.
    transformer : transformer or None
        Unfitted; prepares the client's columns. None at a client without columns.
    build_bottom : callable
        ``build_bottom(n_inputs, generator)`` gives the local module.
    optimize : callable
        ``optimize(parameters)`` gives the client's own optimiser.
    stream : SeedSequence
        The private one of the client's cluster, so that its modules start equal.
    agreement : Agreement
        What all have agreed on.
    ring : KeyRing
        The client's keys.
    partly_held : bool
        Whether nobody holds some rows of the client's party.
    n_batches : int
        Number of batches of an epoch, for its own callbacks.
    """

    made_by: ClassVar = {"_bottom": "prepare"}

    def __init__(
        self,
        name,
        transformer,
        build_bottom,
        optimize,
        stream,
        agreement,
        ring,
        partly_held,
        n_batches,
    ):
        super().__init__(name)
        self._transformer = transformer
        self._build_bottom = build_bottom
        self._optimize = optimize
        self._generator = private_generator(stream)
        self._agreement = agreement
        self._ring = ring
        self._partly_held = partly_held
        self._n_batches = n_batches
        # Of the agreement and not of a setting of its own, so that nobody is told of
        # another cluster than the others are.
        self._cluster = agreement.cluster_of[name]
        self._begin()

    def _begin(self):
        # For every run, as masks are bound to the keys of its ring.
        if not self._agreement.draws_graph:
            self._join(None)

    def _join(self, seed):
        """Take the place among all clients that a seed gives."""
        self.hold(self._agreement.masks(self._ring, self._cluster, seed))
        self.hold(Keys(self._ring, self._agreement, seed))

    def again(self):
        """The same client for another run, with keys of its own."""
        party = super().again()
        # Identity is shared, keys of an epoch are not: two runs at once have their own.
        party._ring = copy.copy(self._ring)
        party._optimize = self._optimize.on(self._optimize.device)
        party._begin()
        return party

    def release(self):
        """Drop the block and the keys; identity and local module stay."""
        watch = self.held(Training).trainer.watch if self.holds(Training) else None
        if watch is not None:
            # An error here would hide the one that has ended the run.
            with suppress(Exception):
                watch.finish()
        super().release()
        self._ring.forget()
        self._optimize = self._optimize.on()
        if hasattr(self, "_bottom"):
            bring_home(self._bottom.eval())

    @serving
    def say_rows(self, n_rows, fitting, imputes):
        """Say which rows of the run the client holds.

        Parameters
        ----------
        n_rows : int
            Number of rows of the run.
        fitting : bool
            Whether they are rows to learn from; otherwise they are to be served.
        imputes : bool
            Whether rows to be served are imputed of which the client has no cell.

        Returns
        -------
        codes : ndarray of shape (n_rows,) or None
            0 for a row that is not the client's, 1 for one of its own of which it has
            no cell, else 2. None if all are 2.
        """
        codes = self._codes(n_rows, fitting, imputes)
        # Most clients hold all rows, and then a word is enough.
        return None if (codes == FILLED).all() else codes

    def _codes(self, n_rows, fitting, keeps_empty):
        holding = self.held(Holding)
        ids = np.arange(holding.n_rows) if holding.rows is None else holding.rows
        if (
            len(ids) != holding.n_rows
            or max(len(ids), ids.max(initial=-1) + 1) > n_rows
        ):
            raise ShareableError(f"its rows are not among the {n_rows} of the run")
        said = np.full(len(ids), FILLED, np.uint8)
        # A gap in a single column is imputed like others, unless its party was said to
        # lack rows, which a table to be served can only say by gaps.
        if holding.n_columns > 1 or (self._partly_held and not fitting):
            said[rows_without_values(holding.block)] = EMPTY
        codes = np.full(n_rows, NOT_MINE, np.uint8)
        codes[ids] = said
        block = holding.block
        if not (fitting or keeps_empty) and (said == EMPTY).any():
            there = np.flatnonzero(said == FILLED)
            ids, block = ids[there], _safe_indexing(block, there)
        # One entry more, so that an id which is not among them finds -1 instead of the
        # last row.
        place = np.full(ids.max(initial=0) + 2, -1)
        place[ids] = np.arange(len(ids))
        self.hold(Rows(ids, place, block))
        return codes

    @serving
    def commit(self, session):
        """Begin to draw a graph: digest of this client's contribution.

        Parameters
        ----------
        session : str
            What this run is called.
        """
        if self.holds(Draw):
            # Whoever may draw twice in a run may draw until it likes the graph.
            raise SecureAggregationError(
                SERVER, f"it asks {self.name!r} for a second draw in one run"
            )
        clients = self._agreement.clients
        self.hold(Draw(self._ring, clients, session, SERVER))
        return self.held(Draw).commit()

    @serving
    def reveal(self, bound):
        """The contribution, once a digest of all commitments has bound the others'."""
        return self.held(Draw).reveal(bound)

    @serving
    def draw_graph(self, contributions):
        """Learn with whom this client shares masks, and whom it meets in this run."""
        self._join(self.held(Draw).finish(contributions))

    @serving
    def offer_keys(self, session, epoch):
        """Begin a key epoch: public keys for every peer, in the order of the peers.

        Parameters
        ----------
        session : str
            What this run is called.
        epoch : int
            Number of the key epoch.
        """
        return self.held(Keys).offer(session, epoch)

    @serving
    def agree_keys(self, parcels):
        """Compute the shared secrets from the peers' public keys; proofs of them."""
        return self.held(Keys).agree(parcels)

    @serving
    def confirm_keys(self, parcels):
        """Check the peers' proofs; the keys are in use from here on."""
        self.held(Keys).confirm(parcels)

    @operation
    def prepare(self):
        """Prepare the columns and build the local module."""
        if self._transformer is None:
            # An active party without columns still has the bias of the secure layer.
            self._bottom = _Bias(self._agreement.width)
        else:
            goes_on, transformer = self.take_over("_transformer"), self._transformer
            prepare = transformer.transform if goes_on else transformer.fit_transform
            inputs = run(prepare, self.held(Rows).block)
            self.hold(Inputs(by_rows(inputs).numpy()))
            self._bottom = self._build_bottom(inputs.shape[1], self._generator)
            if self.name != self._agreement.active:
                # Several biases would add up to one that each party trains, at a rate
                # that grows with the number of parties.
                _drop_last_bias(self._bottom)
        self.take_over("_bottom")
        # Here and not in every batch, as it goes through all modules.
        self._bottom.train()
        self.hold(Training(trainer({"_bottom": self._bottom}, self._optimize)))
        self._check_bottom()

    def _check_bottom(self):
        # Clients of a cluster share one module by sharing gradients; statistics have
        # none.
        kept = [name for name, _ in self._bottom.named_buffers()]
        if len(self._cluster) > 1 and kept:
            raise ShareableError(
                f"its local module keeps {kept[0]!r}, which is not trained and would "
                f"differ between the clients {self._cluster}; take a network without "
                "such statistics (for example LayerNorm instead of BatchNorm)",
            )

    @operation
    def sign_columns(self):
        """Signature of the prepared columns' names for each client of the cluster."""
        return {
            peer: np.frombuffer(self._signature(self.name, peer), np.uint8)
            for peer in self._cluster
            if peer != self.name
        }

    @operation
    def check_columns(self, sender, signature):
        """Check that the cluster's first client prepares the same columns."""
        # Names of columns are values of the table where they were encoded, so a
        # signature crosses and not the names.
        expected = self._signature(sender, sender)
        if not hmac.compare_digest(signature.tobytes(), expected):
            raise ShareableError(
                f"its prepared columns are not those of {sender!r}, which shares its "
                "local module: their rows hold other categories, or other columns are "
                "constant; give the party a transformer whose output does not depend "
                "on the rows, such as OneHotEncoder(categories=...)",
            )

    def _signature(self, sender, peer):
        names = getattr(self._transformer, "get_feature_names_out", list)()
        described = repr((self.held(Inputs).values.shape[1], [str(n) for n in names]))
        # Under a key of the pair, as names of columns can be guessed from a plain hash.
        key = b"none"
        if self._agreement.masked:
            key = self._ring.key(peer, _COLUMNS, sender=sender)
        return hmac.digest(key, described.encode(), "sha256")

    # Masked, or at least encoded, and so an array of its own.
    @giving
    @serving
    def forward(self, round_id, n_rows, training, ids=None, chooser=None):
        """Contribution to the secure layer: masked, and zero for rows not held.

        Parameters
        ----------
        round_id : int
            Number of the round.
        n_rows : int
            Number of rows of the batch.
        training : bool
            Whether a gradient will follow.
        ids : ndarray
            Row ids of the batch, sealed for this client.
        chooser : str, default=None
            The active client that selects them, where there are several.
        """
        active, several = self._agreement.active, self._agreement.choosers
        chooser = active if chooser is None else chooser
        if chooser not in several:
            raise SecureAggregationError(
                SERVER, f"rows are chosen by {several}, and it says by {chooser!r}"
            )
        batch = self._read(ids, n_rows, round_id, chooser)
        rows, positions = self._find(batch, chooser)
        cut = tape = None
        if training:
            self._count_batch()
        if positions.size:
            inputs = torch.from_numpy(self._inputs().take(rows, 0))
            if training:
                cut, tape = self.held(Training).trainer.forward("_bottom", inputs)
            else:
                cut = infer(self._bottom, inputs)
        if training:
            self.hold(Contribution(tape, positions))
        values = _spread(cut, positions, (n_rows, self._agreement.width))
        return self.held(Masks).layer.mask(
            values, round_id=round_id, what="its contribution to the secure layer"
        )

    def _count_batch(self):
        """Tell the callbacks of an epoch that begins; nobody else says so."""
        training = self.held(Training)
        if (watch := training.trainer.watch) is not None:
            if training.taken % self._n_batches == 0:
                watch.begin_epoch()
            training.taken += 1

    def _read(self, ids, n_rows, round_id, chooser):
        """Ids of the batch's rows that this client holds, and their positions."""
        if self._agreement.masked:
            return open_ids(
                self._ring, chooser, ids, capacity=n_rows, round_id=round_id
            )
        positions = np.flatnonzero(ids != NOT_HELD)
        return ids[positions], positions

    def _find(self, batch, chooser):
        """Where the rows are in the block."""
        ids, positions = batch
        held = self.held(Rows)
        rows = held.place.take(ids, mode="clip")
        # Looked up without a search, clipped, and compared afterwards: an id that the
        # party does not hold finds another one, and ids come from another organisation.
        if np.count_nonzero(held.ids.take(rows) != ids):
            raise SecureAggregationError(
                chooser,
                f"{self.name!r} does not hold a row that it chose",
            )
        return rows, positions

    def _inputs(self):
        if not self.holds(Inputs):
            rows = self.held(Rows)
            values = np.empty((len(rows.ids), 0), np.float32)
            if self._transformer is not None:
                values = by_rows(run(self._transformer.transform, rows.block)).numpy()
            self.hold(Inputs(values))
        return self.held(Inputs).values

    @operation
    def backward(self, round_id, gradient, tag=None):
        """Use the gradient of the secure layer's output.

        A client that is alone in its cluster updates its local module; the others
        reply with the gradient of their rows, masked.

        Parameters
        ----------
        round_id : int
            Number of the round.
        gradient : ndarray of shape (n_rows, width)
            Of the loss with respect to the secure layer's output.
        tag : ndarray
            The server's, for this client.
        """
        # The relay could alter what it passes on; the tag is the server's.
        self._agreement.verify(self._ring, SERVER, GRADIENT, gradient, tag, round_id)
        contribution, trainer = self.held(Contribution), self.held(Training).trainer
        tape, positions = contribution.tape, contribution.positions
        # One gradient for one contribution: a second one would move the models again.
        self.drop(Contribution)
        if tape is not None:
            if len(positions) < len(gradient):
                gradient = gradient[positions]
            trainer.backward(tape, torch.from_numpy(gradient))
        else:
            # As in a joint network, in which the rows of others leave a gradient of
            # zero: an optimiser with momentum moves on, whoever holds the batch.
            trainer.rest()
        if len(self._cluster) == 1:
            trainer.step()
            return None
        return self.held(Masks).gradients.mask(
            trainer.take().numpy(),
            round_id=round_id,
            what="its gradient of the local module",
        )

    @operation
    def update(self, round_id, gradient, tag=None, key=None):
        """Update the local module by the gradient of the whole cluster's rows.

        Parameters
        ----------
        round_id : int
            Number of the round.
        gradient : ndarray of shape (n_weights,)
            Of the loss with respect to the local module, as a sum that is masked still.
        tag : ndarray
            The server's, for this client.
        key : ndarray
            Key of the mask, which the cluster's first client has sealed for this one.
        """
        self._agreement.verify(self._ring, SERVER, UPDATE, gradient, tag, round_id)
        gradients = self.held(Masks).gradients
        gradient = gradients.unmask(gradient, key, round_id=round_id)
        trainer = self.held(Training).trainer
        trainer.put(torch.from_numpy(gradient.astype(np.float32)))
        trainer.step()

    @operation
    def remember(self):
        """Keep a copy of the local module as it is."""
        self.hold(Best(copy.deepcopy(self._bottom)))

    @operation
    def recall(self):
        """Go back to the copy that was kept last."""
        self._bottom = self.held(Best).model
        self.drop(Best)


class _Bias(nn.Module):
    """Local module of a client without columns."""

    def __init__(self, n_outputs):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_outputs))

    def forward(self, inputs):
        return self.bias.expand(len(inputs), -1)


def _drop_last_bias(network):
    """Leave the bias of the secure layer to the active party.

    A network of the user's own is taken as it is: its bias is one more term of the sum.
    """
    # Removed and not set to zero, as a zero bias would be trained.
    if isinstance(network, nn.Sequential):
        network[-1].register_parameter("bias", None)


def _spread(cut, positions, shape):
    """Contribution with zeros for the rows that are not held."""
    if cut is None:
        return np.zeros(shape, np.float32)
    values = cut.numpy()
    if len(values) == shape[0]:
        return values
    spread = np.zeros(shape, np.float32)
    spread[positions] = values
    return spread
