"""The files by which clients find the server and are known to it."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from corral import hosts
from corral.pki.server_identity import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """By what a user is known: a token, or a certificate with its key (PEM)."""

    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)

    def fields(self) -> dict[str, str]:
        """As a kubeconfig has them."""
        if self.token:
            return {"token": self.token}
        return {
            "client-certificate-data": base64.b64encode(self.certificate).decode(),
            "client-key-data": base64.b64encode(self.key).decode(),
        }


def kubeconfig(identity: Identity, address: str) -> bytes:
    """The file by which kubectl finds the server at ``host:port`` and is its administrator.

    Of a server that listens everywhere it names one address where it is found.
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
    """The file by which a user finds a server; ``authority`` is PEM."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    chosen = {"cluster": "corral", "user": user, "namespace": namespace}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "corral", "cluster": cluster}],
        "users": [{"name": user, "user": credentials.fields()}],
        "contexts": [{"name": context, "context": chosen}],
        "current-context": context,
    }
    # JSON is YAML, and needs no YAML writer here
    return json.dumps(document, indent=2).encode() + b"\n"
