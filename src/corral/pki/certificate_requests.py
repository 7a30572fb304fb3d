"""Certificate signing requests (PKCS #10): parsed as untrusted input, and signed."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from corral.pki.certificates import (
    PublicKey,
    general_name,
    issue_client,
    issue_serving,
    key_pem,
    new_key,
    pem,
    pki_errors,
    subject_of,
)
from corral.pki.server_identity import CLIENT_DAYS, authority_of, clients_authority

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


class KeyRequest(NamedTuple):
    """A private key and a certificate request for it, PEM."""

    key: bytes
    request: bytes


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """The subject and key of a request, as Kubernetes reads them: user is the CN, groups the Os."""

    name: str
    groups: tuple[str, ...]
    key: PublicKey
    hosts: tuple[str, ...] = ()
    """DNS names and IP addresses of the subjectAltName extension."""
    other_names: int = 0
    """Number of other names in that extension (e-mail addresses, URIs)."""


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
    hosts, others = _alternative_names(request)
    return CertificateRequest(
        name=next((value for oid, value in reversed(names) if oid == NameOID.COMMON_NAME), ""),
        groups=tuple(value for oid, value in names if oid == NameOID.ORGANIZATION_NAME),
        key=cast("PublicKey", key),
        hosts=hosts,
        other_names=others,
    )


def _alternative_names(request: x509.CertificateSigningRequest) -> tuple[tuple[str, ...], int]:
    """Return the hosts of a request's subjectAltName, and the number of its other names.

    Raises ValueError for an extension that cannot be read.
    """
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), 0
    dns = names.get_values_for_type(x509.DNSName)
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    return (*dns, *addresses), len(list(names)) - len(dns) - len(addresses)


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


def sign_serving_request(directory: Path, content: bytes, seconds: int | None) -> bytes:
    """Return a server certificate (PEM) for a request of a node, issued by the server's authority.

    It carries the subject and the hosts of the request, and lasts ``seconds``, at most CLIENT_DAYS.
    Raises PkiError for files that cannot be used, and ValueError for a request without a name or
    hosts.
    """
    request = read_request(content)
    if not request.name or not request.hosts:
        raise ValueError("the request names no host: it needs a common name and a subjectAltName")
    lifetime = timedelta(days=CLIENT_DAYS)
    if seconds is not None:
        lifetime = min(lifetime, timedelta(seconds=seconds))
    with pki_errors(directory):
        subject = subject_of(request.name, request.groups)
        authority = authority_of(directory)
        return pem(issue_serving(authority, subject, request.key, request.hosts, lifetime))


def new_request(user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> KeyRequest:
    """Create a key and a certificate request (PKCS #10) for it, both PEM.

    ``hosts`` become its subjectAltName.  Raises ValueError for a name that no certificate can hold.
    """
    key = new_key()
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject_of(user, groups))
    if hosts:
        names = x509.SubjectAlternativeName([general_name(each) for each in hosts])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(key, hashes.SHA256())
    return KeyRequest(key_pem(key), signed.public_bytes(serialization.Encoding.PEM))


def public_key_hash(certificate: str) -> str:
    """Return ``sha256:`` and the digest of a certificate's public key (SubjectPublicKeyInfo).

    kubeadm pins authorities by this hash (--discovery-token-ca-cert-hash).  Raises ValueError.
    """
    return _key_hash(x509.load_pem_x509_certificate(certificate.encode()))


def pinned_authorities(authorities: str, key_hash: str) -> str:
    """Return those certificates (PEM) whose public key has a hash; empty if none has.

    All others are left out: TLS would trust each certificate of a file.  Raises ValueError.
    """
    parsed = x509.load_pem_x509_certificates(authorities.encode())
    expected = key_hash.strip().lower()
    pinned = (each for each in parsed if secrets.compare_digest(_key_hash(each), expected))
    return pem(*pinned).decode("ascii")


def _key_hash(certificate: x509.Certificate) -> str:
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


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


def certificate_times(content: bytes) -> tuple[datetime, datetime] | None:
    """Return when a certificate (PEM) begins and ends to be valid; None for anything else."""
    try:
        parsed = x509.load_pem_x509_certificate(content)
    except ValueError:
        return None
    return parsed.not_valid_before_utc, parsed.not_valid_after_utc


def certificate_hosts(content: bytes) -> tuple[str, ...]:
    """Return the DNS names and addresses of a certificate (PEM); none for anything else."""
    try:
        parsed = x509.load_pem_x509_certificate(content)
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


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
