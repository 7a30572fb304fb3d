"""A serving certificate that several processes share, with the authority that issues it.

It is kept as the data of a Secret of type kubernetes.io/tls: ``tls.crt`` and ``tls.key``, the
authority in ``ca.crt`` and ``ca.key``.  ``ca.crt`` begins with the authority that issues, and
holds former ones while they are valid: clients trust all of them, so that processes may change
certificates one after the other.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from corral.pki.certificates import (
    SERVER_DAYS,
    Pair,
    general_name,
    issue_authority,
    issue_server,
    key_pem,
    pem,
)

AUTHORITY: Final = "ca.crt"
AUTHORITY_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
NAMES: Final = (AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY)


def renewed(data: Mapping[str, bytes], hosts: Sequence[str], name: str) -> Mapping[str, bytes]:
    """Return the same data, or new data where it is missing, damaged, or due to be renewed.

    A certificate is due when a third of its time is left, an authority when it ends before the next
    certificate would.  ``name`` begins the name of a new authority.
    """
    names = [general_name(each) for each in hosts]
    trusted = _trusted(data.get(AUTHORITY, b""))
    authority = _pair(trusted, data.get(AUTHORITY_KEY, b""))
    if authority is None or authority.ends_within(timedelta(days=SERVER_DAYS)):
        authority = issue_authority(name)
        trusted = [authority.certificate, *trusted]
    else:
        serving = _pair(_certificates(data.get(CERTIFICATE, b"")), data.get(KEY, b""))
        lifetime = timedelta(days=SERVER_DAYS)
        if serving and serving.serves(authority, names) and not serving.ends_within(lifetime / 3):
            return data
    serving = issue_server(authority, names)
    return {
        AUTHORITY: pem(*trusted),
        AUTHORITY_KEY: key_pem(authority.key),
        CERTIFICATE: pem(serving.certificate),
        KEY: key_pem(serving.key),
    }


def _trusted(content: bytes) -> list[x509.Certificate]:
    """Return the authorities that are still valid."""
    now = datetime.now(UTC)
    return [each for each in _certificates(content) if each.not_valid_after_utc > now]


def _certificates(content: bytes) -> list[x509.Certificate]:
    """Return the certificates of a bundle; none of one that cannot be read."""
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        return []


def _pair(certificates: Sequence[x509.Certificate], key: bytes) -> Pair | None:
    """Return the first certificate with its key; None where they are missing or do not match."""
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError):
        return None
    if not certificates or not isinstance(private, ec.EllipticCurvePrivateKey):
        return None
    if private.public_key() != certificates[0].public_key():
        return None
    return Pair(certificates[0], private)
