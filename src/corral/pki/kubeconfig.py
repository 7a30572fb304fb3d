"""Kubeconfigs, and the client credentials in them."""

import base64
import json
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from corral import hosts
from corral.pki.certificates import issue_client, key_pem, new_key, pem, pki_errors, subject_of
from corral.pki.server_identity import Identity, clients_authority


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user's credentials: a token, or a certificate with its key (PEM)."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)

    def fields(self) -> dict[str, str]:
        """Return the fields of a kubeconfig's user."""
        if self.token:
            return {"token": self.token}
        return {
            "client-certificate-data": base64.b64encode(self.certificate).decode(),
            "client-key-data": base64.b64encode(self.key).decode(),
        }


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


def kubeconfig(identity: Identity, address: str) -> bytes:
    """Return the administrator's kubeconfig for a server at ``host:port``.

    For a wildcard address the kubeconfig has one reachable address.
    """
    listening, _, port = address.rpartition(":")
    host = hosts.reachable(listening.strip("[]"))
    return kubeconfig_of(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        authority=identity.authority.read_bytes(),
        user="corral-admin",
        credentials=Credentials(token=identity.token),
        context="corral",
    )


def cluster_info(server: str, authority: str) -> bytes:
    """Return the kubeconfig without a user that kube-public/cluster-info holds, as kubeadm's."""
    certified = base64.b64encode(authority.encode()).decode()
    cluster = {"server": server, "certificate-authority-data": certified}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": cluster}],
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def kubeconfig_of(
    *,
    server: str,
    authority: bytes,
    user: str,
    credentials: Credentials,
    context: str,
    namespace: str = "default",
) -> bytes:
    """Return a kubeconfig; ``authority`` is the server's CA (PEM)."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    context_fields = {"cluster": "corral", "user": user, "namespace": namespace}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "corral", "cluster": cluster}],
        "users": [{"name": user, "user": credentials.fields()}],
        "contexts": [{"name": context, "context": context_fields}],
        "current-context": context,
    }
    # JSON is valid YAML.
    return json.dumps(document, indent=2).encode() + b"\n"


def load_credentials(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Let TLS connections show a certificate from now on.

    ssl reads it from files only; this one is 0600 and gone at once.
    """
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(credentials.certificate + credentials.key)
        file.flush()
        context.load_cert_chain(file.name)
