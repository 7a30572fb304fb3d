"""Certificates, tokens, their keys, and kubeconfigs.  The only door to cryptography."""

from pathlib import Path

from corral import files
from corral.pki.certificate_requests import (
    certificate_end,
    certificate_fault,
    read_request,
    sign_request,
)
from corral.pki.certificates import SKEW, PkiError
from corral.pki.clients import LONGEST_NAME, credentials
from corral.pki.kubeconfig import Credentials, kubeconfig, kubeconfig_of
from corral.pki.server_identity import CLIENT_DAYS, Identity, ensure, front_proxy_authority, renew
from corral.pki.signing import SigningKey

__all__ = [
    "CLIENT_DAYS",
    "LONGEST_NAME",
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
    """Replace a file whole or not at all; nobody but its owner may ever read it."""
    files.replace(path, content, durable=True)
