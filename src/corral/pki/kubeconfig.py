"""Kubeconfigs."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from corral import hosts
from corral.pki.server_identity import Identity


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
