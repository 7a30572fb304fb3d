"""Requests for certificates (PKCS #10): read without trust, and signed where they are to be."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from corral.pki.certificates import PublicKey, issue_client, pem, subject_of, told
from corral.pki.server_identity import CLIENT_DAYS, clients_authority

_REQUEST: Final = "CERTIFICATE REQUEST"
_CERTIFICATE: Final = "CERTIFICATE"
_BEGIN, _END, _DASHES = b"-----BEGIN ", b"-----END ", b"-----"
_UNVERIFIED: Final = "x509: cannot verify signature: algorithm unimplemented"
_FALSE: Final[dict[type, str]] = {
    ec.EllipticCurvePublicKey: "x509: ECDSA verification failure",
    ed25519.Ed25519PublicKey: "x509: Ed25519 verification failure",
    rsa.RSAPublicKey: "crypto/rsa: verification error",
}
"""The keys that are taken, and what is said of a signature that is none of theirs."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """For whom a certificate is wanted, as Kubernetes reads it: the CN, and every O."""

    name: str
    groups: tuple[str, ...]
    key: PublicKey


def read_request(content: bytes) -> Wanted:
    """What a request in PEM says; its sender has the key.  Raises ValueError for anything else."""
    label, block = next(_blocks(content), ("", b""))
    if label != _REQUEST:
        raise ValueError(f"PEM block type must be {_REQUEST}")
    try:
        request = x509.load_pem_x509_csr(block)
        key = request.public_key()
        failure = next((text for known, text in _FALSE.items() if isinstance(key, known)), "")
        if not failure:
            raise ValueError(_UNVERIFIED)
        if not request.is_signature_valid:
            raise ValueError(failure)
    except UnsupportedAlgorithm:
        raise ValueError(_UNVERIFIED) from None
    names = [(each.oid, each.value) for each in request.subject if isinstance(each.value, str)]
    return Wanted(
        name=next((value for oid, value in reversed(names) if oid == NameOID.COMMON_NAME), ""),
        groups=tuple(value for oid, value in names if oid == NameOID.ORGANIZATION_NAME),
        key=cast("PublicKey", key),
    )


def sign_request(directory: Path, content: bytes, seconds: int | None) -> bytes:
    """A client's certificate (PEM) for a request, by the authority of a server's directory.

    It says who asks and nothing else of what the request holds, lasts for so many seconds and
    CLIENT_DAYS at most.  Raises PkiError for files that cannot be used, and ValueError for a
    request that cannot be met.
    """
    wanted = read_request(content)
    if not wanted.name:
        raise ValueError("the request names no user: its subject has no common name (CN)")
    lifetime = timedelta(days=CLIENT_DAYS)
    if seconds is not None:
        lifetime = min(lifetime, timedelta(seconds=seconds))
    with told(directory):
        authority = clients_authority(directory)
        subject = subject_of(wanted.name, wanted.groups)
        return pem(issue_client(authority, subject, wanted.key, lifetime))


def certificate_fault(content: bytes) -> str:
    """Why something is not a certificate with those that follow it (PEM); empty where it is."""
    count = 0
    for label, block in _blocks(content):
        if label != _CERTIFICATE:
            return f'only CERTIFICATE PEM blocks are allowed, found "{label}"'
        if b":" in block:
            return "no PEM block headers are permitted"
        try:
            x509.load_pem_x509_certificate(block)
        except ValueError as error:
            return f"x509: {error}"
        count += 1
    return "" if count else "must contain at least one CERTIFICATE PEM block"


def certificate_end(content: bytes) -> datetime | None:
    """When a certificate's time is up; None of what is none."""
    try:
        return x509.load_pem_x509_certificate(content).not_valid_after_utc.astimezone(UTC)
    except ValueError:
        return None


def _blocks(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The blocks of PEM content, each with what it is labelled; text between them counts not."""
    at = 0
    while (begins := content.find(_BEGIN, at)) >= 0:
        named = content.find(_DASHES, begins + len(_BEGIN))
        label = content[begins + len(_BEGIN) : named]
        if named < 0 or b"\n" in label:
            at = begins + len(_BEGIN)
            continue
        end = _END + label + _DASHES
        ends = content.find(end, named)
        if ends < 0:
            return
        at = ends + len(end)
        yield label.decode("ascii", "replace"), content[begins:at] + b"\n"
