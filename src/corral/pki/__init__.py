"""Certificates, tokens, their keys, and kubeconfigs.  The only door to cryptography."""

from pathlib import Path

from corral import files
from corral.pki.certificates import PkiError
from corral.pki.identity import Identity, ensure, renew
from corral.pki.kubeconfig import kubeconfig

__all__ = ["Identity", "PkiError", "ensure", "kubeconfig", "renew", "write_private"]


def write_private(path: Path, content: bytes) -> None:
    """Replace a file whole or not at all; nobody but its owner may ever read it."""
    files.replace(path, content, durable=True)
