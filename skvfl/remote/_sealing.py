"""Files between two organisations: signed by one, and sealed for the other.

A file is a line that says what it is, a header in the clear (what kind of file, from
whom, for whom), and the content: a signature and messages of the wire format, sealed
with HPKE for the receiver's key. The signature covers the header, so that nobody can
seal the content again for somebody else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from skvfl.exceptions import PartyValueError
from skvfl.federation import _wire

MAGIC = b"skvfl file 1\n"
_LENGTH = struct.Struct("<I")
_SIGNATURE = 64
_MOST_HEADER = 1 << 12


class PublicKeys(NamedTuple):
    """What others know of an organisation."""

    verify: Ed25519PublicKey
    seal: X25519PublicKey


class PrivateKeys(NamedTuple):
    """What an organisation signs with, and what opens files for it."""

    sign: Ed25519PrivateKey
    open: X25519PrivateKey

    @property
    def public(self) -> PublicKeys:
        """What others may know of them."""
        return PublicKeys(self.sign.public_key(), self.open.public_key())


def _suite() -> Any:
    try:
        from cryptography.hazmat.primitives import hpke
    except ImportError:
        raise ImportError(
            "files between organisations need cryptography 47 or later: pip install "
            "'skvfl[remote]'"
        ) from None
    return hpke.Suite(
        hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305
    )


def seal(
    content: Any,
    *,
    kind: str,
    sender: str,
    receiver: str,
    keys: PrivateKeys,
    to: PublicKeys,
) -> bytes:
    """A file for one receiver.

    Parameters
    ----------
    content : arrays, scalars, strings, lists and dicts
        What it says.
    kind : str
        Which kind of file it is.
    sender, receiver : str
        Names of the organisations.
    keys : PrivateKeys
        The sender's.
    to : PublicKeys
        The receiver's.
    """
    header = _wire.pack({"kind": kind, "from": sender, "to": receiver})
    head = MAGIC + _LENGTH.pack(len(header)) + header
    body = _wire.pack(content)
    # The header is signed with the content and authenticated by the seal, too.
    signed = keys.sign.sign(head + body) + body
    sealed: bytes = _suite().encrypt(signed, to.seal, info=head)
    return head + sealed


def unseal(
    file: bytes,
    *,
    kind: str,
    receiver: str,
    keys: PrivateKeys,
    known: Mapping[str, PublicKeys],
) -> tuple[str, Any]:
    """Who wrote a file, and what it says.

    Parameters
    ----------
    file : bytes
        What :func:`seal` wrote.
    kind : str
        Which kind of file is due.
    receiver : str
        Name of the organisation that reads it.
    keys : PrivateKeys
        The receiver's.
    known : dict of str to PublicKeys
        The organisations whose files are read.

    Raises
    ------
    ValueError
        If it is something else, or was changed; the message names the sender.
    """
    head, said = _read_header(file)
    sender = said["from"]
    if sender not in known:
        raise ValueError(
            f"it says that it is from {sender!r}, of whom there is no certificate "
            "here, or one that has run out"
        )
    if said["kind"] != kind:
        raise PartyValueError(sender, f"its file is a {said['kind']}, and no {kind}")
    if said["to"] != receiver:
        raise PartyValueError(
            sender, f"its file is for {said['to']!r}, and not for {receiver!r}"
        )
    try:
        signed = _suite().decrypt(file[len(head) :], keys.open, info=head)
    except (InvalidTag, ValueError):
        raise PartyValueError(
            sender, "its file was changed on its way, or was sealed for another key"
        ) from None
    signature, body = signed[:_SIGNATURE], signed[_SIGNATURE:]
    try:
        known[sender].verify.verify(signature, head + body)
        return sender, _wire.unpack(body)
    except InvalidSignature:
        raise PartyValueError(
            sender, "its file is not signed by the key that is known of it"
        ) from None
    except ValueError:
        raise PartyValueError(sender, "its file holds no message") from None


def _read_header(file: bytes) -> tuple[bytes, dict[str, str]]:
    start = len(MAGIC) + _LENGTH.size
    name, _, _ = MAGIC.rpartition(b" ")
    if file.startswith(name) and not file.startswith(MAGIC):
        version = file[len(name) : len(MAGIC)].strip().decode(errors="replace")
        raise ValueError(
            f"it has format {version!r}, and this version of skvfl reads "
            f"{MAGIC[len(name) :].strip().decode()!r}: install the same version"
        )
    if len(file) < start or not file.startswith(MAGIC):
        raise ValueError("it is no file that skvfl has written")
    (length,) = _LENGTH.unpack_from(file, len(MAGIC))
    head = file[: start + length]
    try:
        said = _wire.unpack(head[start:], _MOST_HEADER)
    except ValueError:
        said = None
    if not isinstance(said, dict) or {*said} != {"kind", "from", "to"}:
        raise ValueError("it is no file that skvfl has written")
    if not all(isinstance(each, str) for each in said.values()):
        raise ValueError("it is no file that skvfl has written")
    return head, said


def write_new(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file that is not there yet, all of it or nothing.

    Parameters
    ----------
    path : path
        Of the file.
    content : bytes
        What it holds.
    private : bool, default=False
        Whether nobody else on this machine may read it.

    Raises
    ------
    FileExistsError
        If it is there.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    mode = 0o600 if private else 0o644
    try:
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb"
        ) as f:
            f.write(content)
        # Unlike a renaming, a link does not replace what is there.
        os.link(part, path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
