"""Key agreement between two organisations at a time, renewed in key epochs.

Two keys of each organisation go into a shared secret: its identity, which lasts, and a
key made for this epoch (the full unified model, C(2e, 2s), of NIST
SP 800-56A, on X25519). Who relays the public keys cannot sit in the middle unless it
can replace identities, which pinned fingerprints prevent. Keys of an epoch that have
been forgotten cannot be recovered from identities. HKDF-SHA256 derives one key per
purpose and direction, bound to the session, the epoch, both names and all four public
keys, and every pair confirms that it holds the same secret before any key is used.

Whoever steals an identity's private key can pose as its owner to all, and as anybody
to its owner.
"""

from __future__ import annotations

import hashlib
import hmac
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    CipherContext,
    algorithms,
    modes,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hmac import HMAC

from skvfl.privacy._errors import SecureAggregationError

PROTOCOL = "skvfl secure layer 1"
CONFIRMATION = "key confirmation"
_KEY = 32
# numpy looks a type up on every use, which takes longer than what it is needed for.
BYTE: np.dtype[Any] = np.dtype(np.uint8)
# One for all streams, each of which is set to a nonce of its own before it is used.
_COUNTER_MODE = modes.CTR(bytes(16))
_SHA256 = hashes.SHA256()
# What HKDF extracts with where there is no salt.
_NO_SALT = HMAC(bytes(_KEY), _SHA256)


# Kept, because whoever draws a graph meets everybody, in every run again.
@lru_cache(maxsize=4096)
def fingerprint(public_key: bytes) -> str:
    """SHA-256 of an identity's public key in hexadecimal digits."""
    return hashlib.sha256(public_key).hexdigest()


def context(*fields: str | int | bytes) -> bytes:
    """Fields in one string of bytes from which they can be told apart."""
    return b"".join([_framed_text(f) if type(f) is str else _framed(f) for f in fields])


def _framed(field: str | int | bytes) -> bytes:
    part = field if type(field) is bytes else str(field).encode()
    return len(part).to_bytes(8, "big") + part


# Kept, because every pair has the same few names and purposes in its contexts. None of
# them is a secret.
@lru_cache(maxsize=4096)
def _framed_text(text: str) -> bytes:
    return _framed(text)


def _digest(keyed: HMAC, message: bytes) -> bytes:
    """HMAC of a message, whose key is in place: that takes as long as a message."""
    keyed = keyed.copy()
    keyed.update(message)
    return keyed.finalize()


# Kept, because the keys of all pairs are for the same few purposes.
@lru_cache(maxsize=4096)
def _use(purpose: str | bytes, sender: str) -> bytes:
    # With HKDF's number of the block, as each key has one.
    return context(purpose, sender) + b"\1"


class KeyRing:
    """Keys that one organisation shares with each of its peers.

    In every key epoch each organisation calls :meth:`public_keys`, :meth:`agree` and
    :meth:`confirm` in this order; what a call returns for a peer is carried to that
    peer, and given to its next call under the sender's name. Secrets come from the
    operating system. A copy or a pickle holds the identity and the pinned
    fingerprints, and no key of an epoch: two copies can never use one key twice.

    Parameters
    ----------
    name : str
        Name of the organisation.
    pinned : dict of str to str, default=None
        Fingerprints of peers' identities, learnt on another way than through the
        server. An identity that is not pinned is trusted when it is first seen in a
        session, and must not change in it: a server that replaces it from the start
        is not detected.

    Attributes
    ----------
    fingerprint : str
        Of this organisation's identity; for the peers to pin.
    epoch : int or None
        Key epoch in use; None where no keys are agreed.

    Raises
    ------
    ValueError
        If a pinned fingerprint is not one.

    See Also
    --------
    Masker : Uses the keys for masks.
    seal_ids : Uses the keys for row ids.

    Examples
    --------
    >>> from skvfl.privacy import KeyRing
    >>> bank, shop = KeyRing("bank"), KeyRing("shop")
    >>> from_bank = bank.public_keys(["shop"], session="fit 1", epoch=0)
    >>> from_shop = shop.public_keys(["bank"], session="fit 1", epoch=0)
    >>> proof_of_bank = bank.agree({"shop": from_shop["bank"]})
    >>> proof_of_shop = shop.agree({"bank": from_bank["shop"]})
    >>> bank.confirm({"shop": proof_of_shop["bank"]})
    >>> shop.confirm({"bank": proof_of_bank["shop"]})
    >>> bank.key("shop", "greetings") == shop.key("bank", "greetings")
    True
    """

    def __init__(self, name: str, *, pinned: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.pinned = {
            peer: _checked_fingerprint(peer, pin)
            for peer, pin in (pinned or {}).items()
        }
        self._adopt(X25519PrivateKey.generate())

    def _adopt(self, identity: X25519PrivateKey) -> None:
        self._identity = identity
        self._public_identity = identity.public_key().public_bytes_raw()
        self._static_secrets: dict[bytes, bytes] = {}
        self._session: str | None = None
        self._last_epoch = -1
        self._met: dict[str, bytes] = {}
        self.forget()

    @classmethod
    def of(
        cls, name: str, identity: X25519PrivateKey, pinned: Mapping[str, str]
    ) -> KeyRing:
        """A ring with an identity that the organisation has already.

        Parameters
        ----------
        name : str
            Name of the organisation.
        identity : X25519PrivateKey
            Its private key.
        pinned : dict of str to str
            Fingerprints of peers' identities.

        Returns
        -------
        ring : KeyRing
        """
        ring = cls(name, pinned=pinned)
        ring._adopt(identity)
        return ring

    @property
    def fingerprint(self) -> str:
        """Fingerprint of this organisation's identity."""
        return fingerprint(self._public_identity)

    @property
    def epoch(self) -> int | None:
        """Key epoch in use; None where no keys are agreed."""
        return None if self._confirmed is None else self._confirmed.epoch

    @property
    def identity(self) -> bytes:
        """Public key of this organisation's identity."""
        return self._public_identity

    def forget(self) -> None:
        """Drop the keys of the epoch, so that nobody can take them from here."""
        self._offered: _Epoch | None = None
        self._agreed: _Epoch | None = None
        self._confirmed: _Epoch | None = None

    def public_keys(
        self,
        peers: Iterable[str],
        *,
        session: str,
        epoch: int,
        members: Iterable[str] | None = None,
    ) -> dict[str, np.ndarray]:
        """Begin a key epoch: forget the last one's keys and make new ones.

        Parameters
        ----------
        peers : iterable of str
            Names of the other organisations, the server among them.
        session : str
            What this protocol run is called; the same for all.
        epoch : int
            Number of the key epoch, larger than any before in this session.
        members : iterable of str, default=None
            Names of all organisations of the session, where some are no peers; a
            fingerprint may be pinned for each of them.

        Returns
        -------
        public_keys : dict of str to ndarray of uint8
            For each peer, this organisation's identity and its key of this epoch.
        """
        self.forget()
        epoch, peers = operator.index(epoch), list(peers)
        if self.name in peers or len(set(peers)) < len(peers):
            raise ValueError(f"peers must be other organisations, once each: {peers}")
        known = peers if members is None else [*peers, *members]
        if unknown := self.pinned.keys() - known:
            raise ValueError(
                f"a fingerprint is pinned for {min(unknown)!r}, which is no peer of "
                f"{self.name!r}; its peers are {peers}"
            )
        if session != self._session:
            # Identities may change between sessions, never within one.
            self._session, self._last_epoch, self._met = session, -1, {}
        # An old epoch taken again would use its key streams twice, and two masked
        # arrays would give away their difference.
        if epoch <= self._last_epoch:
            raise ValueError(
                f"key epoch {epoch} is not newer than {self._last_epoch}, the last one "
                "of this session: number key epochs upwards"
            )
        self._last_epoch = epoch
        self._offered = _Epoch(session, epoch, peers)
        public = self._public_identity + self._offered.public
        return {peer: array_of(public) for peer in peers}

    def agree(self, public_keys: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Compute the secret shared with each peer.

        Parameters
        ----------
        public_keys : dict of str to ndarray of uint8
            What each peer's :meth:`public_keys` returned for this organisation.

        Returns
        -------
        proofs : dict of str to ndarray of uint8
            For each peer, proof that this organisation holds the secret.

        Raises
        ------
        SecureAggregationError
            If a peer's keys are missing or malformed, or its identity is not the
            pinned one or has changed; names the peer.
        """
        # Taken and forgotten at once, so that a failure half way leaves no keys that
        # look agreed.
        offered = self._offered
        self.forget()
        if offered is None:
            raise ValueError("call public_keys first: no key epoch has begun")
        received = _one_each(offered.peers, public_keys, "public keys")
        protocol, run = context(PROTOCOL), context(offered.epoch, offered.session)
        name, public = _framed_text(self.name), self._public_identity + offered.public
        mine, static_secrets = name + _framed(public), self._static_secrets
        exchange, read = offered.private.exchange, X25519PublicKey.from_public_bytes
        proofs = {}
        for peer, keys in received.items():
            both = bytes_of(peer, keys, 2 * _KEY, "public keys")
            identity, ephemeral = both[:_KEY], both[_KEY:]
            if self._met.get(peer) != identity:
                self._check_identity(peer, identity)
            try:
                # The exchange of identities is the same in every epoch, and is half of
                # the work.
                if identity not in static_secrets:
                    static = self._identity.exchange(read(identity))
                    static_secrets[identity] = static
                secret = exchange(read(ephemeral))
            except ValueError:
                raise SecureAggregationError(
                    peer, f"{self.name!r} received unusable public keys of it"
                ) from None
            offered.secrets[peer] = secret + static_secrets[identity]
            # Both names and all keys are bound in, in one order for both sides: a key
            # that was moved to another pair gives another secret.
            other = _framed_text(peer)
            theirs = other + _framed(both)
            pair = mine + theirs if self.name < peer else theirs + mine
            offered.bindings[peer] = protocol + pair + run
            keyed = HMAC(offered.key(peer, CONFIRMATION), _SHA256)
            proofs[peer] = array_of(_digest(keyed, name + other))
            offered.expected[peer] = _digest(keyed, other + name)
        # Forward secrecy: what is stolen later does not open what was recorded before.
        del offered.private, exchange
        self._agreed = offered
        return proofs

    def meet(self, identities: Mapping[str, bytes]) -> None:
        """Check public identities, and pin those that are not pinned yet.

        Parameters
        ----------
        identities : dict of str to bytes
            By name; this organisation's own is left out.

        Raises
        ------
        SecureAggregationError
            If an identity is not the one that is pinned; names the peer.
        """
        pinned, met = self.pinned, self._met
        # What was met before in this session was checked then.
        found = {
            peer: self._check_pinned(peer, identity)
            for peer, identity in identities.items()
            if (peer not in pinned or met.get(peer) != identity) and peer != self.name
        }
        # What was pinned before wins: who is met later cannot take a peer's place.
        if found:
            self.pinned = found | pinned

    def _check_pinned(self, peer: str, identity: bytes) -> str:
        found = fingerprint(identity)
        # A message that came back to its sender would agree with itself.
        if identity == self._public_identity:
            raise SecureAggregationError(
                peer, f"{self.name!r} received its own identity as that of {peer!r}"
            )
        pinned = self.pinned.get(peer)
        if pinned is not None and found != pinned:
            raise SecureAggregationError(
                peer,
                f"its identity has the fingerprint {short(found)}, where {self.name!r} "
                f"has pinned {short(pinned)}: somebody else answers for it, or it has "
                "a new identity; ask it for its fingerprint",
            )
        return found

    def _check_identity(self, peer: str, identity: bytes) -> None:
        found = self._check_pinned(peer, identity)
        if self._met.setdefault(peer, identity) != identity:
            raise SecureAggregationError(
                peer,
                f"its identity has changed in this session, {self.name!r} finds: "
                f"{short(fingerprint(self._met[peer]))} before, {short(found)} now; "
                "pin its fingerprint",
            )

    def confirm(self, proofs: Mapping[str, Any]) -> None:
        """Check that every peer holds the same secret; the keys may be used then.

        Parameters
        ----------
        proofs : dict of str to ndarray of uint8
            What each peer's :meth:`agree` returned for this organisation.

        Raises
        ------
        SecureAggregationError
            If a proof is missing or wrong; names both organisations.
        """
        agreed = self._agreed
        self.forget()
        if agreed is None:
            raise ValueError("call agree first: there are no keys to confirm")
        for peer, proof in _one_each(agreed.peers, proofs, "key confirmation").items():
            found = bytes_of(peer, proof, _KEY, "key confirmation")
            # In constant time, so that a forger learns nothing from how long it takes.
            if not hmac.compare_digest(found, agreed.expected[peer]):
                raise SecureAggregationError(
                    peer,
                    f"it and {self.name!r} do not hold the same key in key epoch "
                    f"{agreed.epoch}: a public key was replaced or altered on the way, "
                    "or they are in different sessions or epochs",
                )
        agreed.expected.clear()
        self._confirmed = agreed

    def _in_use(self) -> _Epoch:
        if self._confirmed is None:
            raise SecureAggregationError(
                self.name,
                "it holds no confirmed keys: agree on keys with the peers first (keys "
                "of an epoch are not copied or pickled)",
            )
        return self._confirmed

    def key(self, peer: str, purpose: str, *, sender: str | None = None) -> bytes:
        """Key shared with a peer for one purpose in this epoch.

        Parameters
        ----------
        peer : str
            Name of the other organisation.
        purpose : str
            What the key is for.
        sender : str, default=None
            Which of the two uses it to send, where each direction needs its own key.

        Returns
        -------
        key : bytes of length 32
        """
        return self._in_use().key(peer, purpose, sender)

    def stream(self, peer: str, purpose: str, nonce: bytes) -> CipherContext:
        """AES-256-CTR key stream shared with a peer; for one nonce, once.

        Parameters
        ----------
        peer, purpose : str
            As for :meth:`key`.
        nonce : bytes of length 8
            Which stream of this purpose and key epoch.

        Returns
        -------
        stream : CipherContext
            Valid until the peer's next stream of this purpose is asked for.
        """
        return self.streams([peer], purpose, nonce)[0]

    def streams(
        self, peers: Sequence[str], purpose: str, nonce: bytes
    ) -> list[CipherContext]:
        """:meth:`stream` of each of several peers.

        Parameters
        ----------
        peers : sequence of str
            Names of the other organisations.
        purpose, nonce
            As there.

        Returns
        -------
        streams : list of CipherContext
        """
        epoch, start = self._in_use(), nonce + bytes(8)
        opened = epoch.streams.setdefault(purpose, {})
        streams = []
        for peer in peers:
            stream = opened.get(peer)
            if stream is None:
                cipher = algorithms.AES256(epoch.key(peer, purpose))
                stream = opened[peer] = Cipher(cipher, _COUNTER_MODE).encryptor()
            stream.reset_nonce(start)
            streams.append(stream)
        return streams

    def aead(self, peer: str, purpose: str | bytes, *, sender: str) -> AESGCM:
        """AES-256-GCM under :meth:`key` of the same arguments.

        Parameters
        ----------
        peer : str
            Name of the other organisation.
        purpose : str or bytes
            What the key is for.
        sender : str
            Name of the one of the two who seals.

        Returns
        -------
        aead : AESGCM
        """
        epoch, wanted = self._in_use(), (peer, purpose, sender)
        aead = epoch.aeads.get(wanted)
        if aead is None:
            aead = epoch.aeads[wanted] = AESGCM(epoch.key(*wanted))
        return aead

    def claim(self, purpose: str, round_id: int, tensor_id: int = 0) -> None:
        """Use a round and tensor number for a purpose, once in a key epoch.

        Parameters
        ----------
        purpose : str
            What they number.
        round_id, tensor_id : int
            Newer than the last ones claimed: a later round, or the same round and a
            later tensor.

        Raises
        ------
        SecureAggregationError
            If it is not newer than the last one claimed for this purpose.
        """
        last, new = self._in_use().last, (round_id, tensor_id)
        before = last.get(purpose)
        if before is not None and new <= before:
            raise SecureAggregationError(
                self.name,
                f"{purpose}: round {new[0]}, tensor {new[1]} is not newer than round "
                f"{before[0]}, tensor {before[1]}, the last one of this key epoch; "
                "each may be used once, in increasing order, so that no mask repeats",
            )
        last[purpose] = new

    def __getstate__(self) -> dict[str, Any]:
        identity = self._identity.private_bytes_raw()
        return {"name": self.name, "pinned": self.pinned, "identity": identity}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name, self.pinned = state["name"], state["pinned"]
        self._adopt(X25519PrivateKey.from_private_bytes(state["identity"]))

    def __repr__(self) -> str:
        return f"KeyRing({self.name!r}, fingerprint={short(self.fingerprint)})"


class _Epoch:
    """What one organisation knows in one key epoch."""

    def __init__(self, session: str, epoch: int, peers: list[str]) -> None:
        self.session = session
        self.epoch = epoch
        self.peers = peers
        self.private = X25519PrivateKey.generate()
        self.public = self.private.public_key().public_bytes_raw()
        self.secrets: dict[str, bytes] = {}
        self.bindings: dict[str, bytes] = {}
        # The peers' proofs, until they have arrived.
        self.expected: dict[str, bytes] = {}
        self._extracted: dict[str, HMAC] = {}
        self.last: dict[str, tuple[int, int]] = {}
        self.streams: dict[str, dict[str, CipherContext]] = {}
        self.aeads: dict[tuple[str, str | bytes, str], AESGCM] = {}

    def key(self, peer: str, purpose: str | bytes, sender: str | None = None) -> bytes:
        # HKDF (RFC 5869) without salt, and for one block of output. Its first half is
        # the same for all keys of a pair, so it is computed once. The keys themselves
        # are not kept: each goes into what uses it, once.
        extracted = self._extracted.get(peer)
        if extracted is None:
            extracted = HMAC(_digest(_NO_SALT, self.secrets[peer]), _SHA256)
            self._extracted[peer] = extracted
        return _digest(extracted, self.bindings[peer] + _use(purpose, sender or ""))


def short(full: str) -> str:
    """Beginning of a fingerprint in groups, for people."""
    return " ".join(full[i : i + 4] for i in range(0, 16, 4)) + " …"


def _checked_fingerprint(peer: str, pin: str) -> str:
    digits = pin.replace(" ", "").lower()
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise ValueError(
            f"the fingerprint pinned for {peer!r} is not one: it must be the 64 "
            "hexadecimal digits of the peer's KeyRing.fingerprint"
        )
    return digits


def _one_each(
    peers: list[str], received: Mapping[str, Any], what: str
) -> dict[str, Any]:
    for peer in peers:
        if peer not in received:
            raise SecureAggregationError(peer, f"its {what} did not arrive")
    if len(received) > len(peers):
        name = next(name for name in received if name not in peers)
        raise SecureAggregationError(name, f"it sent {what} and is no peer")
    return {peer: received[peer] for peer in peers}


def bytes_of(peer: str, array: Any, length: int, what: str) -> bytes:
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != BYTE
        or array.shape != (length,)
    ):
        raise SecureAggregationError(peer, f"its {what} are not {length} bytes")
    return array.tobytes()


def array_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, BYTE).copy()
