"""A seed that all clients draw together, and that none of them can choose.

Every client sends the digest of its contribution, which binds it. A digest of all these
digests goes to everybody, who only then tells the contribution itself. The seed is a
digest of all contributions. Whoever knows an honest contribution is bound by then, so
that a single honest client makes the seed as random as its contribution is. Somebody
who does not like the seed can end the run, which everybody notices, and nothing else.

A contribution has the client's public identity in it. Everybody thus meets all others,
with most of whom it agrees on no keys in this run, and expects them in later ones.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from skvfl.privacy._errors import SecureAggregationError
from skvfl.privacy._keys import PROTOCOL, KeyRing, array_of, bytes_of, context

COMMITMENT = 32
_IDENTITY = 32
CONTRIBUTION = _IDENTITY + 32


class Draw:
    """One client's part in drawing a seed, or that of whoever relays the messages.

    Parameters
    ----------
    ring : KeyRing
        Its keys.
    clients : sequence of str
        Names of all clients, in the order that all have agreed on.
    session : str
        What this run is called.
    relay : str
        Name of the organisation through which all messages go.
    """

    after: ClassVar = "commit"

    def __init__(
        self, ring: KeyRing, clients: Sequence[str], session: str, relay: str
    ) -> None:
        self._ring = ring
        self._clients = list(clients)
        self._session = session
        self._relay = relay
        # From the operating system: who knew it beforehand could choose the seed.
        self._own = ring.identity + os.urandom(CONTRIBUTION - _IDENTITY)
        self._bound: bytes | None = None
        # Names are bound once, as every client checks the commitments of all.
        self._terms = _terms(session, tuple(clients))

    def commit(self) -> np.ndarray:
        """Digest of the contribution, which says nothing of it."""
        place = self._clients.index(self._ring.name)
        return array_of(self._commitment(place, self._own))

    def bind(self, commitments: Mapping[str, Any]) -> np.ndarray:
        """Digest of all commitments, which the relay sends to everybody."""
        self._committed = {
            name: bytes_of(name, commitments.get(name), COMMITMENT, "commitment")
            for name in self._clients
        }
        self._bound = self._digest(b"all", b"".join(self._committed.values()))
        return array_of(self._bound)

    def reveal(self, bound: Any) -> np.ndarray:
        """The contribution, to whoever has sent the digest of all commitments."""
        if self._bound is not None:
            # A second digest could depend on what the first one has brought to light.
            raise self._fault("it asks twice for a contribution to one draw")
        self._bound = bytes_of(self._relay, bound, COMMITMENT, "digest of commitments")
        return array_of(self._own)

    def gather(self, contributions: Mapping[str, Any]) -> np.ndarray:
        """All contributions one after the other, as the relay sends them."""
        told = {}
        for place, name in enumerate(self._clients):
            sent = contributions.get(name)
            told[name] = bytes_of(name, sent, CONTRIBUTION, "contribution to the draw")
            # Looked at by the relay, too: it names the client and not the relay.
            if self._commitment(place, told[name]) != self._committed[name]:
                raise SecureAggregationError(
                    name, "its contribution to the draw is not the one it has bound"
                )
        return array_of(b"".join(told.values()))

    def finish(self, contributions: Any) -> bytes:
        """Check what all have contributed, and meet them; the seed."""
        n_bytes = CONTRIBUTION * len(self._clients)
        raw = bytes_of(self._relay, contributions, n_bytes, "contributions to the draw")
        told = _cut(raw)
        # One digest for all, and in it everybody's own: who finds it has been counted.
        if self._bound is None or not hmac.compare_digest(
            self._digest(b"all", _commitments(self._terms, raw)), self._bound
        ):
            raise self._fault(
                "the contributions to the draw are not those it has bound"
            )
        name = self._ring.name
        if name in self._clients and told[self._clients.index(name)] != self._own:
            raise self._fault("its contribution to the draw was replaced")
        identities = [each[:_IDENTITY] for each in told]
        self._ring.meet(dict(zip(self._clients, identities, strict=True)))
        return self._seed(raw)

    def _commitment(self, place: int, contribution: bytes) -> bytes:
        return _digest(self._terms, b"one", place.to_bytes(4, "big") + contribution)

    def _seed(self, contributions: bytes) -> bytes:
        return self._digest(b"sum", contributions)

    def _digest(self, what: bytes, data: bytes) -> bytes:
        return _digest(self._terms, what, data)

    def _fault(self, what: str) -> SecureAggregationError:
        return SecureAggregationError(
            self._relay, f"{self._ring.name!r} finds that {what}"
        )


def _cut(contributions: bytes) -> list[bytes]:
    """Each client's contribution."""
    starts = range(0, len(contributions), CONTRIBUTION)
    return [contributions[start : start + CONTRIBUTION] for start in starts]


def _digest(terms: bytes, what: bytes, data: bytes) -> bytes:
    # What a digest is for has three letters, and every part a fixed length.
    return hashlib.sha256(terms + what + data).digest()


# Both are kept, because in a simulation all clients look at the same names and
# contributions, which are everybody's to know by then.
@lru_cache(maxsize=8)
def _terms(session: str, clients: tuple[str, ...]) -> bytes:
    return hashlib.sha256(context(PROTOCOL, "draw", session, *clients)).digest()


@lru_cache(maxsize=8)
def _commitments(terms: bytes, contributions: bytes) -> bytes:
    """Those of all clients, one after the other."""
    return b"".join(
        _digest(terms, b"one", place.to_bytes(4, "big") + each)
        for place, each in enumerate(_cut(contributions))
    )
