"""Keys and certificates: who an organisation is, to those that it has met.

Every organisation makes one key and signs a certificate with it itself. Organisations
exchange certificates, compare their fingerprints by telephone, and let in nobody else;
there is no authority that everybody would have to trust.
"""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from skvfl.exceptions import ConfigurationError

DAYS = 365
# For files there are two more keys, and one for vFedSec's masks, made of the same
# secret. Their public halves are in the certificate, so that a fingerprint speaks for
# all of them.
_PUBLIC_KEYS = x509.ObjectIdentifier("2.25.199340981362954811302174829461553310277")
_SIGN, _OPEN = b"skvfl files: sign", b"skvfl files: open"
_MASK = b"skvfl masks: identity"
_BLOCK = re.compile(
    b"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\r?\n?", re.DOTALL
)


def make_keys(name: str, key: Path, certificate: Path, days: int = DAYS) -> None:
    """Make a key, unless there is one, and a certificate.

    Parameters
    ----------
    name : str
        Of the organisation.
    key : Path
        File of the key, which nobody else may read. One that exists is kept, so that a
        certificate that runs out can be renewed.
    certificate : Path
        File of the certificate, for the other organisations.
    days : int, default=365
        For how long it is valid.

    Raises
    ------
    ConfigurationError
        If there is a certificate of that name: nothing is overwritten.
    """
    if certificate.exists():
        raise ConfigurationError(
            f"{certificate} is there already: move it away to make another"
        )
    if not key.exists():
        secret = ec.generate_private_key(ec.SECP256R1())
        pem = secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        key.parent.mkdir(parents=True, exist_ok=True)
        # Never readable by others, not even for a moment.
        file = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "wb") as opened:
            opened.write(pem)
    certificate.parent.mkdir(parents=True, exist_ok=True)
    certificate.write_bytes(_certify(name, key, days))


def _certify(name: str, key: Path, days: int) -> bytes:
    secret = private_key(key)
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    # Clocks of two organisations are never quite the same.
    now = datetime.now(UTC)
    begins, ends = now - timedelta(hours=1), now + timedelta(days=days)
    public = [
        each.public_key().public_bytes_raw()
        for each in (signing_key(key), opening_key(key), masking_key(key))
    ]
    names = [
        x509.DNSName(name),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    usage = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    usage.append(x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(begins, ends))
        .not_valid_after(ends)
        # An organisation can speak for itself, and cannot certify another.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(
            x509.UnrecognizedExtension(_PUBLIC_KEYS, b"".join(public)), critical=False
        )
    )
    made = builder.sign(secret, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The organisation's own key.

    Raises
    ------
    ConfigurationError
        If the file has none that can be used.
    """
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as exc:
        raise ConfigurationError(
            f"{path} cannot be read ({exc.strerror}): `skvfl party keys` makes it"
        ) from None
    except (ValueError, TypeError):
        raise ConfigurationError(f"{path} is no key without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{path} is no key of `skvfl party keys`")
    return key


def signing_key(path: Path) -> ed25519.Ed25519PrivateKey:
    """Key with which the organisation signs files."""
    return ed25519.Ed25519PrivateKey.from_private_bytes(_derive(path, _SIGN))


def opening_key(path: Path) -> x25519.X25519PrivateKey:
    """Key with which the organisation opens files that were sealed for it."""
    return x25519.X25519PrivateKey.from_private_bytes(_derive(path, _OPEN))


def masking_key(path: Path) -> x25519.X25519PrivateKey:
    """Key that is the organisation's identity where keys of masks are agreed on."""
    return x25519.X25519PrivateKey.from_private_bytes(_derive(path, _MASK))


def _derive(path: Path, purpose: bytes) -> bytes:
    secret = private_key(path).private_numbers().private_value.to_bytes(66, "big")
    return HKDF(hashes.SHA256(), 32, salt=None, info=purpose).derive(secret)


def public_keys(
    pem: bytes,
) -> tuple[ed25519.Ed25519PublicKey, x25519.X25519PublicKey]:
    """Keys of a certificate that check signatures, and seal files for its owner.

    Parameters
    ----------
    pem : bytes
        The certificate.

    Raises
    ------
    ConfigurationError
        If it has none.
    """
    raw = _public_keys(pem)
    return (
        ed25519.Ed25519PublicKey.from_public_bytes(raw[:32]),
        x25519.X25519PublicKey.from_public_bytes(raw[32:64]),
    )


def masking_identity(pem: bytes) -> bytes:
    """Public half of what :func:`masking_key` gives, from a certificate.

    Raises
    ------
    ConfigurationError
        If it has none.
    """
    return _public_keys(pem)[64:]


def _public_keys(pem: bytes) -> bytes:
    certificate = read_certificate(pem)
    try:
        found = certificate.extensions.get_extension_for_oid(_PUBLIC_KEYS).value
    except x509.ExtensionNotFound:
        raise ConfigurationError(
            f"the certificate of {name_in(pem)!r} was not made by `skvfl party keys`, "
            "and has no keys for files and masks"
        ) from None
    raw = found.value if isinstance(found, x509.UnrecognizedExtension) else b""
    if len(raw) != 96:
        raise ConfigurationError(
            f"the keys for files and masks are damaged in the certificate of "
            f"{name_in(pem)!r}: ask for a new one"
        )
    return raw


def read_certificate(pem: bytes) -> x509.Certificate:
    """A certificate from its text.

    Raises
    ------
    ConfigurationError
        If it is none.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigurationError("this is no certificate") from None


@lru_cache(maxsize=256)
def _fingerprint(pem: bytes) -> str:
    return read_certificate(pem).fingerprint(hashes.SHA256()).hex(":")


def fingerprint(pem: bytes | str) -> str:
    """What two people compare: the certificate's SHA-256, in pairs of digits."""
    return _fingerprint(pem.encode() if isinstance(pem, str) else bytes(pem))


def name_in(pem: bytes) -> str:
    """Whose certificate it says it is."""
    subject = read_certificate(pem).subject
    names = subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def certificates_in(path: Path) -> list[bytes]:
    """The certificates of a file; two while one is being renewed.

    Raises
    ------
    ConfigurationError
        If there is none.
    """
    try:
        found: list[bytes] = _BLOCK.findall(path.read_bytes())
    except OSError as exc:
        raise ConfigurationError(
            f"{path} cannot be read ({exc.strerror}): ask its owner for the .pem file "
            "that `skvfl party keys` made"
        ) from None
    if not found:
        raise ConfigurationError(f"{path} has no certificate")
    for each in found:
        read_certificate(each)
    return [each if each.endswith(b"\n") else each + b"\n" for each in found]


def belong_together(key: Path, pem: bytes) -> bool:
    """Whether a certificate is of this key."""
    return read_certificate(pem).public_key() == private_key(key).public_key()


def signs_itself(pem: bytes) -> bool:
    """Whether its own key signed it, and it can certify nobody else."""
    certificate = read_certificate(pem)
    try:
        certificate.verify_directly_issued_by(certificate)
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (InvalidSignature, TypeError, ValueError, x509.ExtensionNotFound):
        return False
    return not basic.value.ca


def days_left(pem: bytes) -> float:
    """For how many days it is valid; negative when it has expired."""
    left = read_certificate(pem).not_valid_after_utc - datetime.now(UTC)
    return left / timedelta(days=1)
