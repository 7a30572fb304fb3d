"""Certificates, signing keys, tokens and kubeconfigs.  The only user of ``cryptography``."""

from pathlib import Path

from corral import files
from corral.pki.certificate_requests import (
    certificate_end,
    certificate_fault,
    read_request,
    sign_request,
)
from corral.pki.certificates import SKEW, PkiError
from corral.pki.kubeconfig import Credentials, credentials, kubeconfig, kubeconfig_of
from corral.pki.server_identity import CLIENT_DAYS, Identity, ensure, front_proxy_authority, renew
from corral.pki.signing import SigningKey

__all__ = [
    "CLIENT_DAYS",
    "SKEW",
    "Credentials",
    "Identity",
    "PkiError",
    "SigningKey",
    "certificate_end",
    "certificate_fault",
    "credentials",
    "ensure",
    "front_proxy_authority",
    "kubeconfig",
    "kubeconfig_of",
    "read_request",
    "renew",
    "sign_request",
    "write_private",
]


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically and durably, with mode 0600."""
    files.replace(path, content, durable=True)
