"""Certificates for clients, and the kubeconfigs that hold them."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from corral.pki.certificates import issue_client, key_pem, new_key, pem, subject_of, told
from corral.pki.kubeconfig import Credentials
from corral.pki.server_identity import clients_authority

LONGEST_NAME = 64
"""Letters that a name may have in a certificate (X.509)."""


def credentials(
    directory: Path, user: str, groups: Sequence[str], lifetime: timedelta
) -> Credentials:
    """A new certificate of a user, and its key; it ends with the authority at the latest.

    The server that has this directory knows it at once.  Raises PkiError for files that cannot be
    used, and ValueError for a name that no certificate can hold.
    """
    with told(directory):
        authority = clients_authority(directory)
        subject = subject_of(user, groups)
        key = new_key()
        certificate = issue_client(authority, subject, key.public_key(), lifetime)
        return Credentials(certificate=pem(certificate), key=key_pem(key))
