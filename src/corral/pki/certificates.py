"""X.509 certificates and keys: issuing, and reading and writing their files."""

import ipaddress
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from corral import files

AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 365
SKEW: Final = timedelta(minutes=5)
"""Backdating of notBefore, for clients whose clocks are behind ours."""

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


class PkiError(Exception):
    """A file is unusable; the message names it and what to do."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def ends_within(self, time: timedelta) -> bool:
        return self.certificate.not_valid_after_utc - datetime.now(UTC) < time

    def serves(self, authority: "Pair", names: Sequence[x509.GeneralName]) -> bool:
        """Report whether a server certificate is issued by an authority and covers all names."""
        try:
            self.certificate.verify_directly_issued_by(authority.certificate)
            found = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        return set(names) <= set(found.value)


# ---------------------------------------------------------------------- issue


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def issue_authority(name: str) -> Pair:
    """Issue a self-signed CA (path length 0) with a unique name."""
    key = new_key()
    subject = subject_of(f"{name}-{secrets.token_hex(4)}")
    builder = (
        _builder(subject, key.public_key(), datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS))
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(builder.sign(key, hashes.SHA256()), key)


def issue_server(authority: Pair, names: Sequence[x509.GeneralName]) -> Pair:
    key = new_key()
    ends = datetime.now(UTC) + timedelta(days=SERVER_DAYS)
    builder = _issued(
        authority, subject_of("corral"), key.public_key(), ends, ExtendedKeyUsageOID.SERVER_AUTH
    ).add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def issue_client(
    authority: Pair, subject: x509.Name, key: PublicKey, lifetime: timedelta
) -> x509.Certificate:
    """Issue a client certificate, which expires no later than its CA."""
    ends = min(datetime.now(UTC) + lifetime, authority.certificate.not_valid_after_utc)
    builder = _issued(authority, subject, key, ends, ExtendedKeyUsageOID.CLIENT_AUTH)
    return builder.sign(authority.key, hashes.SHA256())


def issue_serving(
    authority: Pair, subject: x509.Name, key: PublicKey, hosts: Sequence[str], lifetime: timedelta
) -> x509.Certificate:
    """Return a certificate for a server that keeps its key; hosts are names or addresses."""
    ends = min(datetime.now(UTC) + lifetime, authority.certificate.not_valid_after_utc)
    names = x509.SubjectAlternativeName([general_name(each) for each in hosts])
    builder = _issued(authority, subject, key, ends, ExtendedKeyUsageOID.SERVER_AUTH)
    return builder.add_extension(names, critical=False).sign(authority.key, hashes.SHA256())


def self_signed(hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """Return a key and a server certificate of an authority that is not kept, both PEM."""
    pair = issue_server(issue_authority("corral-node"), [general_name(each) for each in hosts])
    return key_pem(pair.key), pem(pair.certificate)


def subject_of(name: str, groups: Sequence[str] = ()) -> x509.Name:
    """Return a subject as Kubernetes reads it: CN and Os.  Raises ValueError."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _issued(
    authority: Pair,
    subject: x509.Name,
    key: PublicKey,
    ends: datetime,
    purpose: x509.ObjectIdentifier,
) -> x509.CertificateBuilder:
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(subject, key, ends)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(issuer_id, critical=False)
    )


def _builder(subject: x509.Name, key: PublicKey, ends: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - SKEW)
        .not_valid_after(ends)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def general_name(host: str) -> x509.GeneralName:
    """Return a host as a subject alternative name.  Raises PkiError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass  # a DNS name
    try:
        return x509.DNSName(host if host.isascii() else host.encode("idna").decode("ascii"))
    except ValueError as error:
        raise PkiError(f"The host name {host!r} cannot stand in a certificate: {error}") from error


# ---------------------------------------------------------------------- files


@contextmanager
def pki_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError into a PkiError for a directory."""
    try:
        yield
    except OSError as error:
        raise PkiError(f"The certificates in {directory} cannot be used: {error}") from error


def read_pair(certificate: Path, key: Path) -> Pair | None:
    """Return a certificate and its key; None if either is missing.  Raises PkiError."""
    if not certificate.exists() or not key.exists():
        return None
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise PkiError(
            f"{certificate} and {key} cannot be read: {error}. "
            "Remove both to have them made anew; kubeconfigs may have to be copied again."
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise PkiError(f"{key} is not an elliptic curve key. Remove it and {certificate}.")
    if private.public_key() != loaded.public_key():
        raise PkiError(f"{key} does not belong to {certificate}. Remove both.")
    return Pair(loaded, private)


def write_pair(certificate: Path, key: Path, pair: Pair) -> None:
    """Write a pair, the certificate last: after a crash in between it reads as missing."""
    certificate.unlink(missing_ok=True)
    files.replace(key, key_pem(pair.key), durable=True)
    files.replace(certificate, pem(pair.certificate), durable=True)


def read_bundle(path: Path) -> list[x509.Certificate]:
    """Return the certificates of a file; none if it is missing.  Raises PkiError."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise PkiError(
            f"{path} cannot be read: {error}. Remove it to have it made anew."
        ) from error


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
