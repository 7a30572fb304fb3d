"""Client certificates with generated keys."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from corral.pki.certificates import issue_client, key_pem, new_key, pem, pki_errors, subject_of
from corral.pki.kubeconfig import Credentials
from corral.pki.server_identity import clients_authority


def credentials(
    directory: Path, user: str, groups: Sequence[str], lifetime: timedelta
) -> Credentials:
    """Issue a user's certificate and key, which the server of this directory accepts at once.

    It expires no later than its CA.  Raises PkiError for unusable files, and ValueError for a name
    that is invalid in a certificate.
    """
    with pki_errors(directory):
        authority = clients_authority(directory)
        subject = subject_of(user, groups)
        key = new_key()
        certificate = issue_client(authority, subject, key.public_key(), lifetime)
        return Credentials(certificate=pem(certificate), key=key_pem(key))
