"""Certificate signing requests (PKCS #10): parsed as untrusted input, and signed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from corral.pki.certificates import PublicKey, issue_client, pem, pki_errors, subject_of
from corral.pki.server_identity import CLIENT_DAYS, clients_authority

_REQUEST: Final = "CERTIFICATE REQUEST"
_CERTIFICATE: Final = "CERTIFICATE"
_BEGIN, _END, _DASHES = b"-----BEGIN ", b"-----END ", b"-----"
_UNVERIFIED: Final = "x509: cannot verify signature: algorithm unimplemented"
_SIGNATURE_ERRORS: Final[dict[type, str]] = {
    ec.EllipticCurvePublicKey: "x509: ECDSA verification failure",
    ed25519.Ed25519PublicKey: "x509: Ed25519 verification failure",
    rsa.RSAPublicKey: "crypto/rsa: verification error",
}
"""Supported types of keys, and Go's errors for their invalid signatures."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """The subject and key of a request, as Kubernetes reads them: user is the CN, groups the Os."""

    name: str
    groups: tuple[str, ...]
    key: PublicKey


def read_request(content: bytes) -> CertificateRequest:
    """Parse a request (PEM) and verify its signature.  Raises ValueError."""
    label, block = next(_blocks(content), ("", b""))
    if label != _REQUEST:
        raise ValueError(f"PEM block type must be {_REQUEST}")
    try:
        request = x509.load_pem_x509_csr(block)
        key = request.public_key()
        failure = next(
            (text for type_, text in _SIGNATURE_ERRORS.items() if isinstance(key, type_)), ""
        )
        if not failure:
            raise ValueError(_UNVERIFIED)
        if not request.is_signature_valid:
            raise ValueError(failure)
    except UnsupportedAlgorithm:
        raise ValueError(_UNVERIFIED) from None
    names = [(each.oid, each.value) for each in request.subject if isinstance(each.value, str)]
    return CertificateRequest(
        name=next((value for oid, value in reversed(names) if oid == NameOID.COMMON_NAME), ""),
        groups=tuple(value for oid, value in names if oid == NameOID.ORGANIZATION_NAME),
        key=cast("PublicKey", key),
    )


def sign_request(directory: Path, content: bytes, seconds: int | None) -> bytes:
    """Return a client certificate (PEM) for a request, signed by a server directory's client CA.

    The certificate has the request's subject and none of its extensions; it is valid for that many
    seconds, at most CLIENT_DAYS.  Raises PkiError for unusable files, ValueError for the request.
    """
    request = read_request(content)
    if not request.name:
        raise ValueError("the request names no user: its subject has no common name (CN)")
    lifetime = timedelta(days=CLIENT_DAYS)
    if seconds is not None:
        lifetime = min(lifetime, timedelta(seconds=seconds))
    with pki_errors(directory):
        authority = clients_authority(directory)
        subject = subject_of(request.name, request.groups)
        return pem(issue_client(authority, subject, request.key, lifetime))


def certificate_fault(content: bytes) -> str:
    """Return the error of a certificate chain (PEM); empty if it is valid PEM."""
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
    """Return a certificate's notAfter; None if it cannot be parsed."""
    try:
        return x509.load_pem_x509_certificate(content).not_valid_after_utc.astimezone(UTC)
    except ValueError:
        return None


def _blocks(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield label and content of each PEM block; ignores text between blocks (RFC 7468)."""
    position = 0
    while (start := content.find(_BEGIN, position)) >= 0:
        label_end = content.find(_DASHES, start + len(_BEGIN))
        label = content[start + len(_BEGIN) : label_end]
        if label_end < 0 or b"\n" in label:
            position = start + len(_BEGIN)
            continue
        footer = _END + label + _DASHES
        footer_start = content.find(footer, label_end)
        if footer_start < 0:
            return
        position = footer_start + len(footer)
        yield label.decode("ascii", "replace"), content[start:position] + b"\n"
