"""Row ids of one mini-batch, sealed for one client.

The active party tells each client which of its rows are in the batch, through a server
that must not read them and in front of clients that hold other rows. All sealed ids of
a batch have one length, so that it says nothing about how many rows a client holds.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag

from skvfl.privacy._errors import SecureAggregationError
from skvfl.privacy._keys import BYTE, KeyRing

ROW_IDS = "row ids"
_NONCE = 12
_TAG = 16
_ID: np.dtype[Any] = np.dtype("<i8")


def sealed_length(capacity: int) -> int:
    """Bytes that the sealed ids of a batch take.

    Parameters
    ----------
    capacity : int
        Number of rows of the batch.

    Returns
    -------
    length : int

    See Also
    --------
    seal_ids : Makes them.

    Examples
    --------
    >>> from skvfl.privacy import sealed_length
    >>> sealed_length(256)
    2108
    """
    return _NONCE + _bitmap_length(capacity) + _ID.itemsize * capacity + _TAG


def seal_ids(
    ring: KeyRing,
    client: str,
    ids: Any,
    positions: Any,
    *,
    capacity: int,
    round_id: int,
) -> np.ndarray:
    """Encrypt the ids of those rows of a batch that a client holds.

    Parameters
    ----------
    ring : KeyRing
        The sender's keys.
    client : str
        Name of the only one that can open the result.
    ids : array-like of int of shape (n_held,)
        Ids of the rows that the client holds; none is possible.
    positions : array-like of int of shape (n_held,)
        Where in the batch these rows are, in increasing order.
    capacity : int
        Number of rows of the batch.
    round_id : int
        Which round the batch belongs to.

    Returns
    -------
    sealed : ndarray of uint8 of shape (sealed_length(capacity),)

    Raises
    ------
    ValueError
        If the positions are not increasing, outside the batch, or not one per id.

    See Also
    --------
    open_ids : What the client does with the result.

    Notes
    -----
    AES-256-GCM with a random nonce. Session, key epoch, sender and client are part of
    the key; the round and the capacity are authenticated with the ids.

    Examples
    --------
    >>> from skvfl.privacy import KeyRing, open_ids, seal_ids
    >>> active, bank = KeyRing("active"), KeyRing("bank")
    >>> to_bank = active.public_keys(["bank"], session="fit 1", epoch=0)["bank"]
    >>> to_active = bank.public_keys(["active"], session="fit 1", epoch=0)["active"]
    >>> of_active = active.agree({"bank": to_active})["bank"]
    >>> of_bank = bank.agree({"active": to_bank})["active"]
    >>> active.confirm({"bank": of_bank})
    >>> bank.confirm({"active": of_active})
    >>> sealed = seal_ids(active, "bank", [17, 4], [0, 2], capacity=3, round_id=0)
    >>> open_ids(bank, "active", sealed, capacity=3, round_id=0)
    (array([17,  4]), array([0, 2]))
    """
    ids, positions = _integers(ids, "ids"), _integers(positions, "positions")
    if ids.ndim != 1 or ids.shape != positions.shape:
        raise ValueError(
            f"{ids.shape} ids at {positions.shape} positions: give one position per id"
        )
    # One bit and one id for every row of the batch, held or not: one length for all.
    # Most have taken the positions from ``every``, and need not be compared with them.
    if positions.size == capacity and (
        positions is every(capacity) or (positions == every(capacity)).all()
    ):
        held, padded = _all_held(capacity), ids.tobytes()
    else:
        held, padded = _padded(ids, positions, capacity)
    # Drawn, because nothing here keeps a round from being sealed twice.
    nonce = os.urandom(_NONCE)
    aead = ring.aead(client, ROW_IDS, sender=ring.name)
    sealed = aead.encrypt(nonce, held + padded, _associated(capacity, round_id))
    return np.frombuffer(nonce + sealed, BYTE)


def _padded(
    ids: np.ndarray, positions: np.ndarray, capacity: int
) -> tuple[bytes, bytes]:
    """Which rows of a batch are held, and their ids, in the length of a whole batch."""
    if positions.size and (
        positions[0] < 0
        or positions[-1] >= capacity
        or (positions[1:] <= positions[:-1]).any()
    ):
        raise ValueError(f"positions must increase from 0 to at most {capacity - 1}")
    held = np.zeros(capacity, bool)
    held[positions] = True
    padded = np.zeros(capacity, _ID)
    padded[: ids.size] = ids
    return np.packbits(held).tobytes(), padded.tobytes()


def open_ids(
    ring: KeyRing, sender: str, sealed: Any, *, capacity: int, round_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Decrypt what :func:`seal_ids` made for this client.

    Parameters
    ----------
    ring : KeyRing
        The client's keys.
    sender : str
        Name of the organisation that sealed the ids.
    sealed : ndarray of uint8
        What arrived.
    capacity : int
        Number of rows of the batch.
    round_id : int
        Which round is due, newer than the last one opened in this key epoch.

    Returns
    -------
    ids, positions : ndarray of int64 of shape (n_held,)

    Raises
    ------
    SecureAggregationError
        If the ids were altered or replayed, or are meant for another client, round or
        capacity; names the sender and the client.

    See Also
    --------
    seal_ids : Makes what is opened here.

    Examples
    --------
    >>> import numpy as np
    >>> from skvfl.privacy import KeyRing, open_ids
    >>> junk = np.zeros(20, np.uint8)
    >>> open_ids(KeyRing("bank"), "active", junk, capacity=3, round_id=0)
    Traceback (most recent call last):
        ...
    skvfl.privacy._errors.SecureAggregationError: party 'active': the row ids that
    'bank' received from it are not 53 bytes
    """
    if (
        not isinstance(sealed, np.ndarray)
        or sealed.dtype != BYTE
        or sealed.shape != (sealed_length(capacity),)
    ):
        raise SecureAggregationError(
            sender,
            f"the row ids that {ring.name!r} received from it are not "
            f"{sealed_length(capacity)} bytes",
        )
    raw = sealed.tobytes()
    aead = ring.aead(sender, ROW_IDS, sender=sender)
    try:
        opened = aead.decrypt(
            raw[:_NONCE], raw[_NONCE:], _associated(capacity, round_id)
        )
    except InvalidTag:
        raise SecureAggregationError(
            sender,
            f"the row ids that {ring.name!r} received from it for round {round_id} do "
            "not open: altered or replayed, or meant for another client, round or key "
            "epoch",
        ) from None
    # After they have opened: a forged message must not use up the true one's round.
    ring.claim(f"{ROW_IDS} from {sender!r}", round_id)
    length = _bitmap_length(capacity)
    if opened.startswith(_all_held(capacity)):
        positions = every(capacity).copy()
    else:
        bits = np.frombuffer(opened, BYTE, length)
        positions = np.flatnonzero(np.unpackbits(bits, count=capacity))
    ids = np.frombuffer(opened, _ID, positions.size, offset=length)
    return ids.astype(np.int64), positions


def _bitmap_length(capacity: int) -> int:
    return -(-capacity // 8)


# Kept, because most clients hold every row, and most batches are of one size.
@lru_cache
def every(capacity: int) -> np.ndarray:
    """Positions of all rows of a batch: one array for whoever asks, to be read only."""
    positions = np.arange(capacity)
    positions.setflags(write=False)
    return positions


@lru_cache
def _all_held(capacity: int) -> bytes:
    """The bits of a batch of which all rows are held."""
    return np.packbits(np.ones(capacity, bool)).tobytes()


def _associated(capacity: int, round_id: int) -> bytes:
    return struct.pack(">QQ", capacity, round_id)


def _integers(array: Any, what: str) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype == _ID:
        return array
    if array.size and not np.can_cast(array.dtype, _ID, "safe"):
        raise TypeError(f"{what} must be integers of 64 bits, got {array.dtype}")
    return np.asarray(array, _ID)
