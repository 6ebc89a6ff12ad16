"""vFedSec: what the clients and the server have agreed on, and their masks."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from skvfl.exceptions import SettingsError, ShareableError
from skvfl.federation import Settings
from skvfl.privacy import (
    MASK_FORWARD,
    MASK_GRADIENT,
    Aggregator,
    FixedPoint,
    KeyRing,
    Masker,
    SecureAggregationError,
)
from skvfl.privacy._keys import PROTOCOL, context
from skvfl.privacy._masks import SERVER, _is_tag, _nonce, _tag
from skvfl.privacy._rings import count_rings, neighbours
from skvfl.privacy._sealed_keys import open_key, seal_key

GRADIENT = "gradient of the secure layer"
UPDATE = "gradient of the cluster"
KEY_RING = "key_ring"
# Fingerprints of whoever may take part, known before: more names than a run has.
IDENTITIES = "identities"
# Gradients are sums over rows and weights of a layer, so they may be larger than what
# a layer says of one row.
_GRADIENT_RANGE = 64


@dataclass
class Masks:
    """What hides the client's contributions, under keys of this run."""

    after: ClassVar = "draw_graph"
    layer: Any
    gradients: Any


class BareRowsError(ShareableError, ValueError):
    """Rows whose sum over all clients would show what one organisation contributes."""


@dataclass(frozen=True)
class Agreement:
    """What all clients and the server have agreed on.

    What follows from it is found once, as a simulation has one for all clients.

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
    also_active : list of str, default=()
        Further clients that hold labels and select rows, each of rows of its own.
    """

    clusters: dict
    active: str
    width: int
    bound: float
    bits: int
    masked: bool
    also_active: Any = ()

    @cached_property
    def choosers(self):
        """All clients that select rows; the first one predicts."""
        return [self.active, *self.also_active]

    @cached_property
    def clients(self):
        """All clients, in the order of the masks."""
        return tuple(c for cluster in self.clusters.values() for c in cluster)

    @cached_property
    def everybody(self):
        """All clients and the server: those who share keys, and their places."""
        return {name: place for place, name in enumerate([*self.clients, SERVER])}

    @cached_property
    def cluster_of(self):
        """Cluster of each client, by name."""
        return {c: cluster for cluster in self.clusters.values() for c in cluster}

    def beside(self, chooser):
        """All clients but one that selects rows."""
        return [client for client in self.clients if client != chooser]

    @cached_property
    def shared(self):
        """Clusters of several clients, which share a local module."""
        return {n: cluster for n, cluster in self.clusters.items() if len(cluster) > 1}

    @property
    def draws_graph(self):
        """Whether masks are along a random graph, and not between every two clients."""
        return self.masked and bool(count_rings(len(self.clients)))

    def neighbours(self, name, seed, cluster=None):
        """Clients with which one shares masks, in the sum over all or over a cluster.

        Parameters
        ----------
        name : str
            Name of the client.
        seed : bytes or None
            That all clients have drawn for this run; None where they draw none.
        cluster : list of str, default=None
            The cluster, for the sum over its gradients.
        """
        if cluster is None:
            return neighbours(name, self.clients, seed, MASK_FORWARD)
        return neighbours(name, cluster, seed, MASK_GRADIENT)

    def peers(self, name, seed):
        """Everybody with whom somebody agrees on keys, in the order of all.

        Parameters
        ----------
        name : str
            Name of a client, or of the server.
        seed : bytes or None
            As for :meth:`neighbours`.
        """
        # The server has tags for everybody, active clients have ids.
        if name in (SERVER, *self.choosers) or not self.draws_graph:
            return [other for other in self.everybody if other != name]
        near = {SERVER, *self.choosers, *self.neighbours(name, seed)}
        cluster = self.cluster_of[name]
        if len(cluster) > 1:
            first, *others = cluster
            near.update(self.neighbours(name, seed, cluster))
            # The first client seals a key of the cluster's sum for each of the others.
            near.update(others if name == first else [first])
        return sorted(near, key=self.everybody.__getitem__)

    def masks(self, ring, cluster, seed=None):
        """What hides the contributions of a client of a cluster."""
        # A client that is alone takes its steps itself, and sends no gradient.
        gradients = self.masker(ring, seed, cluster) if len(cluster) > 1 else None
        return Masks(self.masker(ring, seed), gradients)

    def masker(self, ring, seed, cluster=None):
        """A client's side of the sum over all clients, or over those of a cluster."""
        numbers = self._numbers(cluster)
        if not self.masked:
            return _Encoder(numbers)
        near = self.neighbours(ring.name, seed, cluster)
        if cluster is None:
            return Masker(
                ring, self.clients, numbers, purpose=MASK_FORWARD, neighbours=near
            )
        return _ClusterMasker(ring, cluster, numbers, near)

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
        # Once for each round: a second tag under one nonce would give the key away.
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
        # Only what passed is claimed, so that nobody can use up a round with rubbish.
        ring.claim(f"{what} from {sender!r}", round_id)

    def _numbers(self, cluster):
        # Gradients have 64 bits always, as their range is so much wider.
        if cluster is None:
            return FixedPoint(len(self.clients), bound=self.bound, bits=self.bits)
        return FixedPoint(len(cluster), bound=_GRADIENT_RANGE * self.bound, bits=64)


@dataclass(frozen=True, kw_only=True)
class AgreedSettings(Settings):
    """What the clients and the server are all told; the estimator's parameters."""

    clusters: dict
    active: str
    cut_width: int
    bound: float
    bits: int
    masked: bool
    lr: float
    optimizer: Any = None
    weight_decay: float = 0.0
    also_active: Any = ()

    def pack(self):
        """What can be sent, see :class:`Settings`."""
        words = super().pack()
        # Most runs have one active party, and need not speak of others.
        if not self.also_active:
            del words["also_active"]
        return words

    @property
    def agreement(self):
        """What all have agreed on."""
        clusters = ((name, tuple(cluster)) for name, cluster in self.clusters.items())
        return _agreed(
            tuple(clusters),
            active=self.active,
            width=self.cut_width,
            bound=self.bound,
            bits=self.bits,
            masked=self.masked,
            also_active=tuple(self.also_active),
        )


# Kept, because in a simulation all clients are told the same, and each would otherwise
# hold the names of all. By type, as 1000 and 1000.0 are equal and are said differently.
@lru_cache(maxsize=4, typed=True)
def _agreed(clusters, **said):
    return Agreement({name: list(cluster) for name, cluster in clusters}, **said)


def own_ring(member, agreement):
    """An organisation's identity: the one that it has, or a new one.

    Its secrets come from the operating system, in a simulation as well: a seed that is
    known would be everybody's private key.
    """
    ring = member.own.get(KEY_RING, KeyRing(member.name))
    if ring.name != member.name:
        raise SettingsError(f"its own key ring is that of {ring.name!r}")
    # A copy has the identity and no key of an epoch, so runs share none.
    ring = copy.copy(ring)
    known = member.own.get(IDENTITIES, {})
    ring.pinned = {n: known[n] for n in agreement.clients if n in known} | ring.pinned
    return ring


def check_contributors(filled, n_rows):
    """Refuse rows whose sum over all clients is that of one organisation.

    Parameters
    ----------
    filled : dict of str to ndarray of bool
        Rows of which each organisation with columns has something.
    n_rows : int
        Number of rows of the run.

    Raises
    ------
    BareRowsError
        If fewer than two have something of a row; the message counts and names.
    """
    # By organisation, as a row is held by one client of a cluster alone.
    count = np.sum([*filled.values()], axis=0)
    n_bare = int((count < 2).sum())
    if not n_bare:
        return
    alone = {name: int((rows & (count == 1)).sum()) for name, rows in filled.items()}
    said = [f"{n} of {name!r} alone" for name, n in alone.items() if n]
    if not count.all():
        said.append(f"{int((count == 0).sum())} of nobody")
    raise BareRowsError(
        f"{n_bare} of {n_rows} rows have columns of fewer than two organisations "
        f"({', '.join(said)}), and the sum over all clients would show the server "
        "what one of them contributes: leave out these rows, give columns of them "
        "to one more party, or set masked=False, which hides nothing"
    )


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
    near : list of str
        Clients of the cluster with which this one shares masks.
    """

    def __init__(self, ring, cluster, fixed_point, near):
        self._ring = ring
        self._first, *self._others = cluster
        self._masker = Masker(
            ring, cluster, fixed_point, purpose=MASK_GRADIENT, neighbours=near
        )
        self._key = None

    def mask(self, values, *, round_id, what):
        """Message for the server; the first client's has the sealed keys as well."""
        ring = self._ring
        if ring.name != self._first:
            return self._masker.mask(values, round_id=round_id, what=what)
        # From the operating system, as a seed that is known would unmask the sum.
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


# Cached, because every message of a run has the same few.
@lru_cache
def _terms(what, dtype):
    return context(PROTOCOL, what, dtype.str)


@dataclass
class Keys:
    """One organisation's part in agreeing on keys: one row for each peer.

    Parameters
    ----------
    ring : KeyRing
        Its keys.
    agreement : Agreement
        What all have agreed on.
    seed : bytes or None
        That all clients have drawn for this run; None where they draw none.
    """

    after: ClassVar = "draw_graph"
    ring: KeyRing
    agreement: Agreement
    seed: bytes | None = None

    def __post_init__(self):
        self.peers = self.agreement.peers(self.ring.name, self.seed)

    def offer(self, session, epoch):
        """Public keys for each peer."""
        # Keys are of a session, and the seed is a part of its name: who was made to
        # draw another graph has other keys, and nobody confirms them.
        drawn = "" if self.seed is None else f" {self.seed.hex()}"
        keys = self.ring.public_keys(
            self.peers,
            session=session + drawn,
            epoch=epoch,
            members=self.agreement.everybody,
        )
        return _joined(keys)

    def agree(self, parcels):
        """Proofs for each peer, whose public keys arrive."""
        received = dict(zip(self.peers, parcels, strict=True))
        proofs, pinned = self.ring.agree(received), self.ring.pinned
        # Those that are pinned have just shown the same identity.
        new = {p: k[:32].tobytes() for p, k in received.items() if p not in pinned}
        self.ring.meet(new)
        return _joined(proofs)

    def confirm(self, parcels):
        """Check every peer's proof."""
        self.ring.confirm(dict(zip(self.peers, parcels, strict=True)))


def _joined(parcels):
    """Parcels of one size for all peers, a row for each, as they are sent."""
    return np.concatenate([*parcels.values()]).reshape(len(parcels), -1)


class Relay:
    """Hands everybody what the others have sent to it.

    Parameters
    ----------
    peers : dict of str to list of str
        To whom each one sends, in order; each of them sends to it as well.
    """

    def __init__(self, peers):
        self._peers = peers
        place = {name: i for i, name in enumerate(peers)}
        sizes = [len(others) for others in peers.values()]
        senders = np.repeat(np.arange(len(peers)), sizes)
        receivers = [place[other] for others in peers.values() for other in others]
        # Sorted by sender as they are sent, and by receiver as they arrive.
        self._order = np.lexsort((senders, receivers))
        self._stops = [0, *np.cumsum(sizes).tolist()]

    def deliver(self, sent, size):
        """Everybody's parcels from the others.

        Parameters
        ----------
        sent : dict of str to ndarray of uint8 of shape (n_peers, size)
            Each one's parcels for its peers, in their order.
        size : int
            Bytes of a parcel.

        Returns
        -------
        received : dict of str to ndarray of uint8 of shape (n_peers, size)
            The peers' parcels for each one, in their order.
        """
        for name, peers in self._peers.items():
            parcels = sent.get(name)
            if (
                not isinstance(parcels, np.ndarray)
                or parcels.dtype != np.uint8
                or parcels.shape != (len(peers), size)
            ):
                raise SecureAggregationError(
                    name,
                    f"it did not send {size} bytes to each of the others for the keys",
                )
        parcels = np.concatenate([sent[name] for name in self._peers])[self._order]
        received = [parcels[start:stop] for start, stop in pairwise(self._stops)]
        return dict(zip(self._peers, received, strict=True))
