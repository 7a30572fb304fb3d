"""Certificates, signing keys, tokens and kubeconfigs.  The only user of ``cryptography``."""

from pathlib import Path

from corral import files
from corral.pki.certificate_requests import (
    CertificateRequest,
    certificate_end,
    certificate_fault,
    certificate_hosts,
    certificate_times,
    new_request,
    pinned_authorities,
    public_key_hash,
    read_request,
    sign_request,
    sign_serving_request,
)
from corral.pki.certificates import SKEW, PkiError, self_signed
from corral.pki.kubeconfig import (
    Credentials,
    cluster_info,
    credentials,
    kubeconfig,
    kubeconfig_of,
    load_credentials,
)
from corral.pki.server_identity import CLIENT_DAYS, Identity, ensure, front_proxy_authority, renew
from corral.pki.serving import AUTHORITY, CERTIFICATE, KEY, renewed
from corral.pki.signing import SigningKey
from corral.pki.wireguard import wireguard_key, wireguard_public_key

__all__ = [
    "AUTHORITY",
    "CERTIFICATE",
    "CLIENT_DAYS",
    "KEY",
    "SKEW",
    "CertificateRequest",
    "Credentials",
    "Identity",
    "PkiError",
    "SigningKey",
    "certificate_end",
    "certificate_fault",
    "certificate_hosts",
    "certificate_times",
    "cluster_info",
    "credentials",
    "ensure",
    "front_proxy_authority",
    "kubeconfig",
    "kubeconfig_of",
    "load_credentials",
    "new_request",
    "pinned_authorities",
    "public_key_hash",
    "read_request",
    "renew",
    "renewed",
    "self_signed",
    "sign_request",
    "sign_serving_request",
    "wireguard_key",
    "wireguard_public_key",
    "write_private",
]


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably, with mode 0600."""
    files.replace(path, content, durable=True)
