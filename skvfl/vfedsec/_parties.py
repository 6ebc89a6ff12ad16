"""vFedSec: clients whose contributions only show in a masked sum, and the server.

No operation of a client returns an activation, a gradient or a row id that is not
masked or sealed (unless the clients agreed on no masks).
"""

from __future__ import annotations

import copy
import hmac
import os
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from skvfl.exceptions import ShareableError
from skvfl.federation import Party, operation
from skvfl.federation._party import run
from skvfl.nn._steps import TINY, infer
from skvfl.nn._streams import private_generator
from skvfl.privacy import (
    MASK_FORWARD,
    MASK_GRADIENT,
    Aggregator,
    FixedPoint,
    Masker,
    SecureAggregationError,
    open_ids,
    seal_ids,
)
from skvfl.privacy._keys import PROTOCOL, context, fingerprint
from skvfl.privacy._masks import SERVER, _is_tag, _nonce, _tag
from skvfl.privacy._sealed_keys import SEALED_KEY, open_key, seal_key

GRADIENT = "gradient of the secure layer"
UPDATE = "gradient of the cluster"
_COLUMNS = "prepared columns"
_GRADIENT_RANGE = 64
_NOT_HELD = -1


class Agreement(NamedTuple):
    """What all clients and the server have agreed on.

    Parameters
    ----------
    clusters : dict of str to list of str
        Names of the clients that hold each party's columns.
    active : str
        Name of the client that holds the labels and selects the rows.
    width : int
        Number of outputs of the secure layer.
    bound : float
        Largest magnitude of any client's contribution to the secure layer. A gradient
        may be 64 times as large.
    bits : {32, 64}
        Size of one number of the secure layer.
    masked : bool
        Whether there are keys, masks and sealed row ids.
    """

    clusters: dict
    active: str
    width: int
    bound: float
    bits: int
    masked: bool

    @property
    def clients(self):
        """All clients, in the order of the masks."""
        return [client for cluster in self.clusters.values() for client in cluster]

    @property
    def everybody(self):
        """All clients and the server: those who share keys."""
        return [*self.clients, SERVER]

    @property
    def passive(self):
        """All clients but the active one."""
        return [client for client in self.clients if client != self.active]

    @property
    def shared(self):
        """Clusters of several clients, which share a local module."""
        return {n: cluster for n, cluster in self.clusters.items() if len(cluster) > 1}

    def masker(self, ring, cluster=None):
        """A client's side of the sum over all clients, or over those of a cluster."""
        numbers = self._numbers(cluster)
        if not self.masked:
            return _Encoder(numbers)
        if cluster is None:
            return Masker(ring, self.clients, numbers, purpose=MASK_FORWARD)
        return _ClusterMasker(ring, cluster, numbers)

    def aggregator(self, ring, cluster=None):
        """The server's side of the same sum."""
        if not self.masked:
            return _Decoder(self._numbers(cluster))
        clients, purpose = self.clients, MASK_FORWARD
        if cluster is not None:
            clients, purpose = cluster, MASK_GRADIENT
        return Aggregator(ring, clients, self._numbers(cluster), purpose=purpose)

    def sign(self, ring, receiver, what, array, round_id):
        """Tag of an array in the clear, for one receiver; None without keys."""
        if not self.masked:
            return None
        ring.claim(f"{what} for {receiver!r}", round_id)
        aead = ring.aead(receiver, _terms(what, array.dtype), sender=ring.name)
        return _tag(aead, _nonce(round_id, 0), array)

    def verify(self, ring, sender, what, array, tag, round_id):
        """Check the tag of an array that is new in this round.

        Raises
        ------
        SecureAggregationError
            If the array was altered or replayed; names the sender.
        """
        if not self.masked:
            return
        aead = ring.aead(sender, _terms(what, array.dtype), sender=sender)
        nonce = _nonce(round_id, 0)
        if not isinstance(tag, np.ndarray) or not _is_tag(tag, aead, nonce, array):
            raise SecureAggregationError(
                sender,
                f"the {what} that {ring.name!r} received from it for round {round_id} "
                "fails authentication: it was altered or replayed, or made by somebody "
                "else",
            )
        ring.claim(f"{what} from {sender!r}", round_id)

    def _numbers(self, cluster):
        if cluster is None:
            return FixedPoint(len(self.clients), bound=self.bound, bits=self.bits)
        return FixedPoint(len(cluster), bound=_GRADIENT_RANGE * self.bound, bits=64)


class _ClusterMasker:
    """A client's side of the sum over its cluster, which the server cannot read.

    The server knows the gradient of the secure layer, and from a cluster's gradient it
    could compute rows: with linear local modules by solving linear equations. That is
    why the first client of the cluster draws a key for every round, adds one more mask
    under it, and seals the key for each of the others. The mask of one client is enough
    to hide the sum, and it goes off exactly, as all numbers are taken modulo 2^64. A
    key for each round, not for each key epoch, takes no message of its own: it goes
    where the gradient goes.

    Parameters
    ----------
    ring : KeyRing
        The client's keys.
    cluster : list of str
        Names of the cluster's clients.
    fixed_point : FixedPoint
        The same for all.
    """

    def __init__(self, ring, cluster, fixed_point):
        self._ring = ring
        self._first, *self._others = cluster
        self._masker = Masker(ring, cluster, fixed_point, purpose=MASK_GRADIENT)
        self._key = None

    def mask(self, values, *, round_id, what):
        """Message for the server; the first client's has the sealed keys as well."""
        ring = self._ring
        if ring.name != self._first:
            return self._masker.mask(values, round_id=round_id, what=what)
        self._key = key = os.urandom(32)
        message = self._masker.mask(values, round_id=round_id, what=what, key=key)
        sealed = [seal_key(ring, peer, key, round_id=round_id) for peer in self._others]
        return {**message, "keys": np.stack(sealed)}

    def unmask(self, total, sealed, *, round_id):
        """Gradient of the whole cluster."""
        key = self._key
        if self._ring.name != self._first:
            key = open_key(self._ring, self._first, sealed, round_id=round_id)
        return self._masker.unmask(total, key, round_id=round_id)


class _Encoder:
    """Fixed-point numbers in the clear, with the interface of the maskers."""

    def __init__(self, fixed_point):
        self._fixed_point = fixed_point

    def mask(self, values, *, round_id, what):
        return {"masked": self._fixed_point.encode(values, what)}

    def unmask(self, total, sealed, *, round_id):
        return total


class _Decoder:
    """Sum of fixed-point numbers, with the interface of ``Aggregator``."""

    def __init__(self, fixed_point):
        self._fixed_point = fixed_point

    def total(self, messages, *, round_id):
        shape = None
        for name, message in messages.items():
            sent = message.get("masked") if isinstance(message, dict) else None
            if getattr(sent, "dtype", None) != self._fixed_point.dtype or (
                shape not in (None, sent.shape)
            ):
                raise SecureAggregationError(
                    name, "it did not send an array of numbers like the others"
                )
            shape = sent.shape
        first, *others = (message["masked"] for message in messages.values())
        for other in others:
            first = first + other
        return self._fixed_point.decode(first)

    def add_up(self, messages, *, round_id):
        return self.total(messages, round_id=round_id).astype(np.float32)


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
    """

    def __init__(
        self, name, transformer, build_bottom, optimize, stream, agreement, ring
    ):
        super().__init__(name)
        self._transformer = transformer
        self._build_bottom = build_bottom
        self._optimize = optimize
        self._generator = private_generator(stream)
        self._agreement = agreement
        self._ring = ring
        (self._cluster,) = (c for c in agreement.clusters.values() if name in c)

    def holding(self, **data):
        """Copy that holds ``data`` and has keys of its own, agreed on in each run."""
        party = super().holding(**data)
        party._ring = copy.copy(self._ring)
        ids = party._held["ids"]
        party._held["place"] = np.full(ids.max(initial=0) + 2, -1)
        party._held["place"][ids] = np.arange(len(ids))
        party._held["layer"] = self._agreement.masker(party._ring)
        if len(self._cluster) > 1:
            party._held["gradients"] = self._agreement.masker(
                party._ring, self._cluster
            )
        return party

    @property
    def fingerprint(self):
        """Fingerprint of this client's identity."""
        return self._ring.fingerprint

    def release(self):
        """Drop the block and the keys; identity and local module stay."""
        super().release()
        self._ring.forget()
        if hasattr(self, "_bottom"):
            self._bottom.eval()

    @operation
    def offer_keys(self, session, epoch):
        """Begin a key epoch: public keys for every peer, in the order of the peers.

        Parameters
        ----------
        session : str
            What this run is called.
        epoch : int
            Number of the key epoch.
        """
        return self._keys.offer(session, epoch)

    @operation
    def agree_keys(self, parcels):
        """Compute the shared secrets from the peers' public keys; proofs of them."""
        return self._keys.agree(parcels)

    @operation
    def confirm_keys(self, parcels):
        """Check the peers' proofs; the keys are in use from here on."""
        self._keys.confirm(parcels)

    @property
    def _keys(self):
        return _Keys(self._ring, self._agreement)

    @operation
    def prepare(self):
        """Prepare the columns and build the local module."""
        if self._transformer is None:
            self._bottom = _Bias(self._agreement.width)
        else:
            block = self._held["block"]
            self._held["inputs"] = _tensor(run(self._transformer.fit_transform, block))
            n_inputs = self._held["inputs"].shape[1]
            self._bottom = self._build_bottom(n_inputs, self._generator)
            if self.name != self._agreement.active:
                _drop_last_bias(self._bottom)
        self._held["optimizer"] = self._optimize(list(self._bottom.parameters()))
        self._check_bottom()

    def _check_bottom(self):
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
        described = repr((self._held["inputs"].shape[1], [str(n) for n in names]))
        key = b"none"
        if self._agreement.masked:
            key = self._ring.key(peer, _COLUMNS, sender=sender)
        return hmac.digest(key, described.encode(), "sha256")

    @operation
    def forward(self, round_id, n_rows, training, ids=None):
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
            Row ids of the batch, sealed for each passive client.
        """
        rows, positions = self._find(self._read(ids, n_rows, round_id))
        cut = None
        if positions.size and training:
            cut = self._bottom.train()(self._inputs().index_select(0, rows))
        elif positions.size:
            cut = infer(self._bottom, self._inputs().index_select(0, rows))
        if training:
            self._held["cut"], self._held["positions"] = cut, positions
        values = _spread(cut, positions, (n_rows, self._agreement.width))
        return self._held["layer"].mask(
            values, round_id=round_id, what="its contribution to the secure layer"
        )

    def _read(self, ids, n_rows, round_id):
        """Ids of the batch's rows that this client holds, and their positions."""
        active = self._agreement.active
        if self._agreement.masked:
            place = self._agreement.passive.index(self.name)
            if ids.ndim != 2 or len(ids) <= place:
                raise SecureAggregationError(active, "it sealed no ids for this client")
            return open_ids(
                self._ring, active, ids[place], capacity=n_rows, round_id=round_id
            )
        positions = np.flatnonzero(ids != _NOT_HELD)
        return ids[positions], positions

    def _find(self, batch):
        """Where the rows are in the block."""
        ids, positions = batch
        rows = self._held["place"].take(ids, mode="clip")
        if not np.array_equal(self._held["ids"][rows], ids):
            raise SecureAggregationError(
                self._agreement.active,
                f"{self.name!r} does not hold a row that it chose",
            )
        return torch.from_numpy(rows), positions

    def _inputs(self):
        if "inputs" not in self._held:
            self._held["inputs"] = (
                torch.empty(len(self._held["ids"]), 0)
                if self._transformer is None
                else _tensor(run(self._transformer.transform, self._held["block"]))
            )
        return self._held["inputs"]

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
        self._agreement.verify(self._ring, SERVER, GRADIENT, gradient, tag, round_id)
        optimizer = self._held["optimizer"]
        optimizer.zero_grad()
        cut, positions = self._held.pop("cut"), self._held.pop("positions")
        if cut is not None:
            gradient = torch.from_numpy(gradient)
            if len(positions) < len(gradient):
                gradient = gradient[positions]
            cut.backward(gradient)
        else:
            # As in a joint network, in which the rows of others leave a gradient of
            # zero: an optimiser with momentum moves on, whoever holds the batch.
            for parameter in self._bottom.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        if len(self._cluster) == 1:
            optimizer.step()
            return None
        values = [
            np.zeros(p.numel(), np.float32)
            if p.grad is None
            else p.grad.numpy().ravel()
            for p in self._bottom.parameters()
        ]
        return self._held["gradients"].mask(
            np.concatenate(values),
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
        gradient = self._held["gradients"].unmask(gradient, key, round_id=round_id)
        gradient = gradient.astype(np.float32)
        parameters = list(self._bottom.parameters())
        sizes = [p.numel() for p in parameters]
        parts = torch.from_numpy(gradient).split(sizes)
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        self._held["optimizer"].step()

    @operation
    def remember(self):
        """Keep a copy of the local module as it is."""
        self._best = copy.deepcopy(self._bottom)

    @operation
    def recall(self):
        """Go back to the copy that was kept last."""
        self._bottom = self.__dict__.pop("_best")


class ActiveClient(SecureClient):
    """The active party of vFedSec: it holds the labels and selects the rows.

    The server learns neither its order of rows nor who holds which of them.

    Parameters
    ----------
    name, transformer, build_bottom, optimize, stream, agreement, ring
        As for :class:`SecureClient`.
    to_order : SeedSequence
        Of the order of rows.
    """

    def __init__(
        self,
        name,
        transformer,
        build_bottom,
        optimize,
        stream,
        agreement,
        ring,
        to_order,
    ):
        super().__init__(
            name, transformer, build_bottom, optimize, stream, agreement, ring
        )
        self._to_order = to_order

    @operation
    def begin_training(self):
        """Choose an order of all rows, the last of which may be held out."""
        self._held["shuffle"] = np.random.default_rng(self._to_order).permutation
        self._held["order"] = self._held["shuffle"](self._held["ids"])

    @operation
    def begin_epoch(self, n_train):
        """Choose a new order of the rows that are trained on.

        Parameters
        ----------
        n_train : int
            Number of rows that are trained on.
        """
        order = self._held["order"]
        order[:n_train] = self._held["shuffle"](order[:n_train])

    @operation
    def select(self, round_id, start, stop):
        """Select a batch: sealed row ids for the clients, labels for the server.

        Parameters
        ----------
        round_id : int
            Number of the round.
        start, stop : int
            Bounds of the batch in the order of rows.
        """
        rows = self._held.get("order", self._held["ids"])[start:stop]
        self._held["batch"] = rows
        every = np.arange(len(rows))
        ids = [
            self._seal(client, rows, held, round_id)
            for client, held in (
                (client, every if mine is None else np.flatnonzero(mine[rows]))
                for client, mine in self._held["holders"].items()
            )
        ]
        chosen = {"ids": np.stack(ids)}
        for what in ("labels", "weights"):
            if self._held.get(what) is not None:
                chosen[what] = self._held[what][rows]
                chosen[f"tag of {what}"] = self._agreement.sign(
                    self._ring, SERVER, what, chosen[what], round_id
                )
        return chosen

    def _seal(self, client, rows, positions, round_id):
        if self._agreement.masked:
            return seal_ids(
                self._ring,
                client,
                rows[positions],
                positions,
                capacity=len(rows),
                round_id=round_id,
            )
        ids = np.full(len(rows), _NOT_HELD)
        ids[positions] = rows[positions]
        return ids

    def _read(self, ids, n_rows, round_id):
        return self._held["batch"], np.arange(n_rows)


class SecureServer:
    """The server of vFedSec: it adds up what it cannot read, and holds the top model.

    Parameters
    ----------
    agreement : Agreement
        What all have agreed on.
    build_top : callable
        ``build_top(n_inputs, generator)`` gives the global module.
    stream : SeedSequence
        The server's private one.
    ring : KeyRing
        The server's keys.
    """

    def __init__(self, agreement, build_top, stream, ring):
        self.agreement = agreement
        self._ring = ring
        self._top = build_top(agreement.width, private_generator(stream))

    def opened(self):
        """Copy with keys of its own, agreed on in each run; the model is shared."""
        server = copy.copy(self)
        agreement, server._ring = self.agreement, copy.copy(self._ring)
        server._layer = agreement.aggregator(server._ring)
        server._gradients = {
            name: agreement.aggregator(server._ring, cluster)
            for name, cluster in agreement.shared.items()
        }
        return server

    def closed(self):
        """Copy without keys and without what only training needs."""
        server = SecureServer.__new__(SecureServer)
        server.agreement, server._top = self.agreement, self._top.eval()
        server._ring = copy.copy(self._ring)
        return server

    @property
    def fingerprint(self):
        """Fingerprint of the server's identity."""
        return self._ring.fingerprint

    @property
    def keys(self):
        """The server's part in agreeing on keys."""
        return _Keys(self._ring, self.agreement)

    def add_up(self, messages, n_rows, round_id):
        """Output of the secure layer for a batch.

        Parameters
        ----------
        messages : dict of str to message
            Every client's masked contribution.
        n_rows : int
            Number of rows of the batch.
        round_id : int
            Number of the round.

        Returns
        -------
        total : ndarray of shape (n_rows, width), dtype float32
        """
        total = self._layer.total(messages, round_id=round_id)
        if total.shape != (n_rows, self.agreement.width):
            raise SecureAggregationError(
                self.agreement.clients[0],
                f"it and all others sent arrays of shape {total.shape} where "
                f"{(n_rows, self.agreement.width)} was due",
            )
        return total.astype(np.float32)

    def add_up_gradients(self, cluster, messages, round_id):
        """Gradient of a cluster's local module over all of its rows in the batch.

        It is masked still, as only the cluster's clients can read it.
        """
        return self._gradients[cluster].add_up(messages, round_id=round_id)

    def take_keys(self, cluster, messages):
        """Keys that the first client of a cluster has sealed for each of the others.

        They are taken out of its message.
        """
        first, *others = self.agreement.shared[cluster]
        if not self.agreement.masked:
            return {}
        message = messages.get(first)
        sealed = message.get("keys") if isinstance(message, dict) else None
        if (
            not isinstance(sealed, np.ndarray)
            or sealed.dtype != np.uint8
            or sealed.shape != (len(others), SEALED_KEY)
        ):
            raise SecureAggregationError(
                first,
                f"it did not send {SEALED_KEY} bytes to each of {others} for the key "
                "of their mask",
            )
        messages[first] = {k: v for k, v in message.items() if k != "keys"}
        return dict(zip(others, sealed, strict=True))

    def receive(self, chosen, what, n_rows, round_id):
        """Labels or weights of a batch from the active party; None if it sent none."""
        if what not in chosen:
            return None
        active, array = self.agreement.active, chosen[what]
        if not isinstance(array, np.ndarray) or array.shape[:1] != (n_rows,):
            raise SecureAggregationError(
                active,
                f"its {what} are not an array for the {n_rows} rows of the batch",
            )
        tag = chosen.get(f"tag of {what}")
        self.agreement.verify(self._ring, active, what, array, tag, round_id)
        return array

    def tags(self, clients, what, array, round_id):
        """Tag of an array for each of the clients it is sent to."""
        sign = self.agreement.sign
        return {
            name: {"tag": sign(self._ring, name, what, array, round_id)}
            for name in clients
        }

    def begin_training(self, optimize, loss):
        """Take an optimiser, and ``loss(outputs, labels)`` of each row."""
        self._optimizer = optimize(list(self._top.parameters()))
        self._loss = loss

    def learn(self, total, labels, weights):
        """One step: mean loss and weight of a batch, gradient of the secure layer."""
        cut = torch.from_numpy(total).requires_grad_()
        loss, size = self._losses(self._top.train()(cut), labels, weights)
        loss = loss / max(size, TINY)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return {"loss": loss.item(), "weight": float(size)}, cut.grad.numpy()

    def evaluate(self, total, labels, weights):
        """Sum of the losses of rows, and of their weights."""
        with torch.inference_mode():
            outputs = infer(self._top, torch.from_numpy(total)).float()
            loss, size = self._losses(outputs, labels, weights)
            return loss.item(), float(size)

    def predict(self, total):
        """Outputs of the global module."""
        return infer(self._top, torch.from_numpy(total)).numpy()

    def remember(self):
        """Keep a copy of the global module as it is."""
        self._best = copy.deepcopy(self._top)

    def recall(self):
        """Go back to the copy that was kept last."""
        self._top = self._best

    def _losses(self, outputs, labels, weights):
        if labels.dtype.kind == "u":
            labels = labels.astype(np.int64)
        losses = self._loss(outputs, torch.from_numpy(labels))
        if weights is None:
            return losses.sum(), len(losses)
        weights = torch.from_numpy(weights)
        return (losses * weights).sum(), weights.sum()


@lru_cache
def _terms(what, dtype):
    return context(PROTOCOL, what, dtype.str)


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
    if isinstance(network, nn.Sequential):
        network[-1].register_parameter("bias", None)


def _tensor(array):
    """Single-precision tensor of its own."""
    return torch.from_numpy(np.array(array, np.float32, order="C"))


def _spread(cut, positions, shape):
    """Contribution with zeros for the rows that are not held."""
    if cut is None:
        return np.zeros(shape, np.float32)
    values = cut.detach().numpy()
    if len(values) == shape[0]:
        return values
    spread = np.zeros(shape, np.float32)
    spread[positions] = values
    return spread


class _Keys:
    """One organisation's part in agreeing on keys: one row for each peer."""

    def __init__(self, ring, agreement):
        self._ring = ring
        self._peers = [name for name in agreement.everybody if name != ring.name]

    def offer(self, session, epoch):
        keys = self._ring.public_keys(self._peers, session=session, epoch=epoch)
        return np.stack([keys[peer] for peer in self._peers])

    def agree(self, parcels):
        received = dict(zip(self._peers, parcels, strict=True))
        proofs = self._ring.agree(received)
        met = {
            peer: fingerprint(keys[:32].tobytes()) for peer, keys in received.items()
        }
        self._ring.pinned = met | self._ring.pinned
        return np.stack([proofs[peer] for peer in self._peers])

    def confirm(self, parcels):
        self._ring.confirm(dict(zip(self._peers, parcels, strict=True)))


def relay(sent, names, size):
    """Hand everybody what the others have sent to it.

    Parameters
    ----------
    sent : dict of str to ndarray of uint8 of shape (n_names - 1, size)
        Each one's parcels for the others, in the order of names.
    names : list of str
        Everybody.
    size : int
        Bytes of a parcel.

    Returns
    -------
    received : dict of str to ndarray of uint8 of shape (n_names - 1, size)
        The others' parcels for each one, in the order of names.
    """
    n_names = len(names)
    for name in names:
        parcels = sent.get(name)
        if (
            not isinstance(parcels, np.ndarray)
            or parcels.dtype != np.uint8
            or parcels.shape != (n_names - 1, size)
        ):
            raise SecureAggregationError(
                name, f"it did not send {size} bytes to each of the others for the keys"
            )
    others = ~np.eye(n_names, dtype=bool)
    parcels = np.zeros((n_names, n_names, size), np.uint8)
    parcels[others] = np.concatenate([sent[name] for name in names])
    received = np.split(parcels.swapaxes(0, 1)[others], n_names)
    return dict(zip(names, received, strict=True))
