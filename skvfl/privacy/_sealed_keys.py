"""Keys that one organisation draws and hands to others through a server."""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag

from skvfl.privacy._errors import SecureAggregationError
from skvfl.privacy._keys import BYTE, KeyRing
from skvfl.privacy._masks import _nonce

MASK_KEY = "key of a mask"
SEALED_KEY = 32 + 16


def seal_key(ring: KeyRing, receiver: str, key: bytes, *, round_id: int) -> np.ndarray:
    """Encrypt a key for one receiver and one round.

    AES-256-GCM under a key that the two share for this purpose, direction and key
    epoch. The round is the nonce, which is why a round is claimed first.

    Raises
    ------
    SecureAggregationError
        If a key was sealed for this receiver in this round or a later one before.
    """
    ring.claim(f"{MASK_KEY} for {receiver!r}", round_id)
    aead = ring.aead(receiver, MASK_KEY, sender=ring.name)
    return np.frombuffer(aead.encrypt(_gcm_nonce(round_id), key, None), BYTE)


def open_key(ring: KeyRing, sender: str, sealed: Any, *, round_id: int) -> bytes:
    """Decrypt what :func:`seal_key` made for this receiver.

    Raises
    ------
    SecureAggregationError
        If it was altered or replayed, or is meant for another receiver or round; names
        the sender and the receiver.
    """
    aead = ring.aead(sender, MASK_KEY, sender=sender)
    try:
        if not isinstance(sealed, np.ndarray):
            raise InvalidTag
        key = aead.decrypt(_gcm_nonce(round_id), sealed.tobytes(), None)
    except InvalidTag:
        raise SecureAggregationError(
            sender,
            f"the {MASK_KEY} that {ring.name!r} received from it for round {round_id} "
            "does not open: altered or replayed, or meant for another client, round or "
            "key epoch",
        ) from None
    # After it has opened: a forged message must not use up the true one's round.
    ring.claim(f"{MASK_KEY} from {sender!r}", round_id)
    return key


def _gcm_nonce(round_id: int) -> bytes:
    return bytes(4) + _nonce(round_id, 0)
