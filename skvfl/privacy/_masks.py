"""Pairwise masks that cancel in the sum over all clients.

Client i adds the key stream shared with every client after it and subtracts the key
stream shared with every client before it, in the order of the clients, modulo 2^32 or
2^64. Its message is then uniformly random to whoever lacks one of its keys, and the
sum of all clients' messages is the sum of their values (equations 3 and 4 and lemma
5.1 of the vFedSec paper). Where there are many clients, each may share key streams with
some of the others alone: the masks then cancel over every set of clients that no pair
with a common stream divides.

The masks hide values and do not detect changes, so that every message also carries an
authentication tag under a key that the client shares with the server alone.

Where the server must not read the sum either, one client adds one more mask under a key
that only the sum's readers have. All messages are then uniformly random together: the
masks of the pairs leave the server nothing but the sum, and the last mask hides that.
"""

from __future__ import annotations

import hmac
import operator
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    CipherContext,
    algorithms,
    modes,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from skvfl.privacy._errors import SecureAggregationError
from skvfl.privacy._fixed_point import FixedPoint
from skvfl.privacy._keys import BYTE, PROTOCOL, KeyRing, context


class MaskPurpose(StrEnum):
    """What a secure sum is for: sums of different purposes have keys of their own.

    ``MASK_FORWARD`` is the sum over all clients' contributions to the secure layer,
    which the server reads, and ``MASK_GRADIENT`` the sum over the gradients of a
    cluster, which only the cluster's clients read. Any other text is a purpose, too.
    """

    FORWARD = "mask forward"
    GRADIENT = "mask gradient"


MASK_FORWARD = MaskPurpose.FORWARD
MASK_GRADIENT = MaskPurpose.GRADIENT
SERVER = "server"

_CHUNK = 1 << 16
_ZEROS = memoryview(bytes(_CHUNK))
_COUNTERS = ("epoch", "round", "tensor")
_FIELDS = {*_COUNTERS, "masked", "tag"}
_counters_of = operator.itemgetter(*_COUNTERS)
_WHOLE = [int] * len(_COUNTERS)


class Masker:
    """One client's side of a secure sum.

    Parameters
    ----------
    ring : KeyRing
        The client's keys; its peers are the other clients and the server.
    clients : sequence of str
        Names of all clients of the sum, in the order that all have agreed on.
    fixed_point : FixedPoint
        The same for all.
    purpose : str, default="mask forward"
        Sums with different purposes are masked under different keys.
    server : str, default="server"
        Name under which the server's key ring is known.
    neighbours : sequence of str, default=None
        Clients with which this one shares masks; each of them must have this one among
        its own. All others by default, and then nobody but all others together can
        read a value.

    See Also
    --------
    Aggregator : The server's side.

    Notes
    -----
    One nonce belongs to each round and tensor, and each purpose, pair and key epoch
    has a key of its own. A round and tensor that are not newer than the last ones are
    refused, whichever masker used them.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.privacy import FixedPoint, KeyRing, Masker
    >>> numbers = FixedPoint(2, bound=10)
    >>> masker = Masker(KeyRing("bank"), ["bank", "shop"], numbers)
    >>> masker.mask(np.zeros(3), round_id=0)
    Traceback (most recent call last):
        ...
    skvfl.privacy._errors.SecureAggregationError: party 'bank': it holds no confirmed
    keys: agree on keys with the peers first (keys of an epoch are not copied or
    pickled)
    """

    def __init__(
        self,
        ring: KeyRing,
        clients: Sequence[str],
        fixed_point: FixedPoint,
        *,
        purpose: str = MASK_FORWARD,
        server: str = SERVER,
        neighbours: Sequence[str] | None = None,
    ) -> None:
        _check_clients(clients, fixed_point)
        if ring.name not in clients:
            raise ValueError(f"{ring.name!r} is not among the clients {list(clients)}")
        place = list(clients).index(ring.name)
        near = _check_neighbours(ring.name, clients, neighbours)
        self._ring = ring
        # Of every two clients one adds their common stream and the other subtracts it.
        after = [name for name in clients[place + 1 :] if name in near]
        before = [name for name in clients[:place] if name in near]
        self._near, self._n_after = [*after, *before], len(after)
        self._fixed_point = fixed_point
        self._purpose = purpose
        self._server = server
        # Clients sign what they agreed on: a server that shortens the list gets no
        # valid tag.
        self._terms = _terms(clients, fixed_point, purpose)

    def mask(
        self,
        values: Any,
        *,
        round_id: int,
        tensor_id: int = 0,
        what: str | None = None,
        key: bytes | None = None,
    ) -> dict[str, Any]:
        """Encode, mask and authenticate one array.

        Parameters
        ----------
        values : array-like of numbers
            Of the same shape at all clients.
        round_id, tensor_id : int
            Newer than the last ones of this purpose and key epoch.
        what : str, default=None
            What an error message calls the values; "values of" the client by default.
        key : bytes of length 32, default=None
            For one more mask, which does not cancel: only who has the key can read the
            sum, with :meth:`unmask`. Drawn anew for every array, by one of the clients.

        Returns
        -------
        message : dict
            For the server: ``epoch``, ``round``, ``tensor``, the ``masked`` array
            and its ``tag``; made of what crosses a transport.

        Raises
        ------
        FixedPointRangeError
            If a value is not finite or over the bound.
        SecureAggregationError
            If no keys are agreed, or the round and tensor are not new.
        """
        ring = self._ring
        nonce = _nonce(round_id, tensor_id)
        total = self._fixed_point.encode(values, what or f"values of {ring.name!r}")
        # After the values are known to fit, and before any mask is drawn: a refused
        # array uses up no round, and no stream masks two arrays.
        ring.claim(self._purpose, round_id, tensor_id)
        self._add_masks(total.reshape(-1), nonce, key)
        # The terms are a part of the key, so that a client that has agreed on other
        # clients or numbers makes no tag that passes.
        aead = ring.aead(self._server, self._terms, sender=ring.name)
        return {
            "epoch": ring.epoch,
            "round": int(round_id),
            "tensor": int(tensor_id),
            "masked": total,
            "tag": _tag(aead, nonce, total),
        }

    def unmask(
        self, total: np.ndarray, key: bytes, *, round_id: int, tensor_id: int = 0
    ) -> np.ndarray:
        """Sum of all clients' values, from a sum on which one mask was left.

        Parameters
        ----------
        total : ndarray
            What :meth:`Aggregator.add_up` returned.
        key : bytes of length 32
            With which one of the clients masked its values.
        round_id, tensor_id : int
            Of those values.

        Returns
        -------
        total : ndarray of float64
        """
        # A copy, because other clients unmask the same total.
        left = np.array(total, order="C")
        stream = _key_stream(key, _nonce(round_id, tensor_id))
        _combine(left.reshape(-1), [], [stream])
        return self._fixed_point.decode(left)

    def _add_masks(
        self, total: np.ndarray, nonce: bytes, key: bytes | None = None
    ) -> None:
        streams = self._ring.streams(self._near, self._purpose, nonce)
        # Of each pair the one adds what the other subtracts, so that all masks cancel
        # in the sum over all clients, and only there.
        added, subtracted = streams[: self._n_after], streams[self._n_after :]
        if key is not None:
            added.append(_key_stream(key, nonce))
        _combine(total, added, subtracted)


class Aggregator:
    """The server's side of a secure sum.

    Parameters
    ----------
    ring : KeyRing
        The server's keys; the clients are among its peers.
    clients : sequence of str
        Names of all clients of the sum, in the order that all have agreed on.
    fixed_point : FixedPoint
        The same for all.
    purpose : str, default="mask forward"
        As the clients' maskers have it.

    See Also
    --------
    Masker : A client's side.

    Notes
    -----
    What is detected, and named: a client whose message is missing, a message that was
    altered, comes from another round, tensor, key epoch or client, or was made under
    another list of clients or other fixed-point numbers. What is not: a client that
    sends a wrong value on purpose, as nobody can look at one value alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.privacy import Aggregator, FixedPoint, KeyRing, Masker
    >>> rings = {name: KeyRing(name) for name in ("bank", "shop", "server")}
    >>> keys = {
    ...     name: ring.public_keys(set(rings) - {name}, session="fit 1", epoch=0)
    ...     for name, ring in rings.items()
    ... }
    >>> proofs = {
    ...     name: ring.agree({peer: keys[peer][name] for peer in keys if peer != name})
    ...     for name, ring in rings.items()
    ... }
    >>> for name, ring in rings.items():
    ...     ring.confirm({peer: proofs[peer][name] for peer in keys if peer != name})
    >>> numbers = FixedPoint(2, bound=10)
    >>> messages = {
    ...     name: Masker(rings[name], ["bank", "shop"], numbers).mask(
    ...         np.array([value]), round_id=0
    ...     )
    ...     for name, value in (("bank", 1.25), ("shop", 3.5))
    ... }
    >>> server = Aggregator(rings["server"], ["bank", "shop"], numbers)
    >>> server.total(messages, round_id=0)
    array([4.75])
    """

    def __init__(
        self,
        ring: KeyRing,
        clients: Sequence[str],
        fixed_point: FixedPoint,
        *,
        purpose: str = MASK_FORWARD,
    ) -> None:
        _check_clients(clients, fixed_point)
        self._ring = ring
        self._clients = list(clients)
        self._fixed_point = fixed_point
        self._purpose = purpose
        self._terms = _terms(clients, fixed_point, purpose)
        # By clients, because every cluster counts its own rounds.
        self._counted = f"{purpose} by {self._clients}"

    def total(
        self, messages: Mapping[str, Any], *, round_id: int, tensor_id: int = 0
    ) -> np.ndarray:
        """Check all messages of one round and tensor, and add them up.

        Parameters
        ----------
        messages : dict of str to message
            What each client's :meth:`Masker.mask` returned.
        round_id, tensor_id : int
            Which are due.

        Returns
        -------
        total : ndarray of float64
            Sum of the clients' values.

        Raises
        ------
        SecureAggregationError
            If a message is missing, wrong, or of another time; names the client.
        """
        total = self.add_up(messages, round_id=round_id, tensor_id=tensor_id)
        return self._fixed_point.decode(total)

    def add_up(
        self, messages: Mapping[str, Any], *, round_id: int, tensor_id: int = 0
    ) -> np.ndarray:
        """Check all messages, and add them up to a sum that may be masked still.

        Parameters
        ----------
        messages, round_id, tensor_id
            As for :meth:`total`.

        Returns
        -------
        total : ndarray
            Sum of the clients' fixed-point numbers, and of the mask that one of them
            has left on it for those who have its key; see :meth:`Masker.unmask`.

        Raises
        ------
        SecureAggregationError
            As in :meth:`total`.
        """
        nonce = _nonce(round_id, tensor_id)
        self._check_clients_present(messages)
        due = (self._ring.epoch, round_id, tensor_id)
        opened = {
            client: self._open(client, messages[client], due, nonce)
            for client in self._clients
        }
        first = self._clients[0]
        for client, masked in opened.items():
            if masked.shape != opened[first].shape:
                raise SecureAggregationError(
                    client,
                    f"it sent an array of shape {masked.shape} where {first!r} sent "
                    f"{opened[first].shape}",
                )
        # After the tags have passed: a forged message must not use up the round of the
        # true one.
        self._ring.claim(self._counted, round_id, tensor_id)
        total = opened[first].copy()
        for client in self._clients[1:]:
            # Unsigned integers wrap, which is the modulus of the masks.
            total += opened[client]
        return total

    def _check_clients_present(self, messages: Mapping[str, Any]) -> None:
        missing = [client for client in self._clients if client not in messages]
        if missing:
            others = f" (and those of {missing[1:]})" if missing[1:] else ""
            raise SecureAggregationError(
                missing[0],
                f"its masked message did not arrive{others}; the masks of the others "
                "cancel only with it, so there is no sum without it",
            )
        if len(messages) > len(self._clients):
            name = next(name for name in messages if name not in self._clients)
            raise SecureAggregationError(
                name, f"it is no client of this sum over {self._clients}"
            )

    def _open(
        self, client: str, message: Any, due: tuple[int | None, ...], nonce: bytes
    ) -> np.ndarray:
        dtype = self._fixed_point.dtype
        if (
            not isinstance(message, Mapping)
            or message.keys() != _FIELDS
            or [*map(type, found := _counters_of(message))] != _WHOLE
            or not isinstance(masked := message["masked"], np.ndarray)
            or masked.dtype != dtype
            or not isinstance(tag := message["tag"], np.ndarray)
            or tag.dtype != BYTE
            or tag.shape != (16,)
        ):
            raise SecureAggregationError(
                client, f"it did not send a masked array of {dtype} with its tag"
            )
        if found != due:
            raise SecureAggregationError(
                client,
                f"its message is for {_moment(found)}, where {_moment(due)} is due: a "
                "replayed, reordered or late message",
            )
        masked = np.asarray(masked, order="C")
        aead = self._ring.aead(client, self._terms, sender=client)
        if not _is_tag(tag, aead, nonce, masked):
            raise SecureAggregationError(
                client,
                f"its message for {_moment(due)} fails authentication: it was altered "
                "or made by somebody else, or the client has other keys, another list "
                "of clients or other fixed-point numbers",
            )
        return masked


def _key_stream(key: bytes, nonce: bytes) -> CipherContext:
    """AES-256-CTR key stream under a key that no pair has agreed on."""
    return Cipher(algorithms.AES256(key), modes.CTR(nonce + bytes(8))).encryptor()


def _combine(
    total: np.ndarray,
    added: Sequence[CipherContext],
    subtracted: Sequence[CipherContext],
) -> None:
    """Add and subtract key streams in place, modulo 2^32 or 2^64."""
    # In pieces, because the masks of all peers would take as much memory as so many
    # arrays, and a piece stays in the processor's cache.
    per_chunk = _CHUNK // total.itemsize
    buffer = np.empty(min(per_chunk, total.size), total.dtype)
    for start in range(0, total.size, per_chunk):
        part = total[start : start + per_chunk]
        mask = buffer[: part.size]
        zeros, raw = _ZEROS[: part.nbytes], _raw(mask)
        for stream in added:
            stream.update_into(zeros, raw)
            part += mask
        for stream in subtracted:
            stream.update_into(zeros, raw)
            part -= mask


def _check_clients(clients: Sequence[str], fixed_point: FixedPoint) -> None:
    if len(clients) < 2 or len(set(clients)) < len(clients):
        raise ValueError(
            f"a masked sum needs at least two clients, once each: {list(clients)}"
        )
    if len(clients) > fixed_point.n_clients:
        raise ValueError(
            f"{fixed_point} is too small for a sum over {len(clients)} clients"
        )


def _check_neighbours(
    name: str, clients: Sequence[str], neighbours: Sequence[str] | None
) -> set[str]:
    others = set(clients) - {name}
    near = others if neighbours is None else set(neighbours)
    # Without any, its values would be sent as they are.
    if not near or not near <= others:
        raise ValueError(
            f"{name!r} needs neighbours among the other clients, got "
            f"{sorted(near - others) or 'none'}"
        )
    return near


def _terms(clients: Sequence[str], fixed_point: FixedPoint, purpose: str) -> bytes:
    """What all have agreed on, for the tags."""
    said = purpose, fixed_point.bits, fixed_point.fraction_bits, *clients
    return _in_context(said)


# Kept, because in a simulation all clients have agreed on the same.
@lru_cache(maxsize=8)
def _in_context(said: tuple[str | int, ...]) -> bytes:
    return context(PROTOCOL, *said)


def _nonce(round_id: int, tensor_id: int) -> bytes:
    try:
        return struct.pack(">II", round_id, tensor_id)
    except struct.error:
        raise ValueError(
            "round_id and tensor_id must be integers from 0 to 2**32 - 1, got "
            f"{round_id!r} and {tensor_id!r}"
        ) from None


def _tag(aead: AESGCM, nonce: bytes, array: np.ndarray) -> np.ndarray:
    """AES-GCM's tag of an array, which is not encrypted, and of its shape."""
    return np.frombuffer(_authenticate(aead, nonce, array), BYTE)


def _authenticate(aead: AESGCM, nonce: bytes, array: np.ndarray) -> bytes:
    # The array is associated data, of which AES-GCM makes no ciphertext; the shape is
    # the text, of which only the tag is sent.
    shape = _packed(array.shape)
    return aead.encrypt(bytes(4) + nonce, shape, _raw(array))[len(shape) :]


def _raw(array: np.ndarray) -> memoryview:
    """The bytes of an array in C order."""
    try:
        return array.data.cast("B")
    # Without any number, not in one piece, or of a type that Python has no word for.
    except (TypeError, ValueError):
        return array.reshape(-1).view(BYTE).data


# Kept, because every message of a run has the same few.
@lru_cache
def _packed(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(shape)}Q", *shape)


def _is_tag(tag: np.ndarray, aead: AESGCM, nonce: bytes, array: np.ndarray) -> bool:
    # Made again and not opened, because the shape's ciphertext was not sent.
    return hmac.compare_digest(_authenticate(aead, nonce, array), tag.tobytes())


def _moment(ids: tuple[int | None, ...]) -> str:
    named = zip(_COUNTERS, ids, strict=True)
    return ", ".join(f"{field} {value!r}" for field, value in named)
