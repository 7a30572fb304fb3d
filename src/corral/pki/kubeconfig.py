"""The files by which clients find the server and are known to it."""

import base64
import json

from corral import hosts
from corral.pki.identity import Identity


def kubeconfig(identity: Identity, address: str) -> bytes:
    """The file by which kubectl finds the server at ``host:port`` and is its administrator.

    Of a server that listens everywhere it names one address where it is found.
    """
    listening, _, port = address.rpartition(":")
    host = hosts.reachable(listening.strip("[]"))
    authority = base64.b64encode(identity.authority.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "corral",
                "cluster": {
                    "server": f"https://{f'[{host}]' if ':' in host else host}:{port}",
                    "certificate-authority-data": authority,
                },
            }
        ],
        "users": [{"name": "corral-admin", "user": {"token": identity.token}}],
        "contexts": [
            {
                "name": "corral",
                "context": {"cluster": "corral", "user": "corral-admin", "namespace": "default"},
            }
        ],
        "current-context": "corral",
    }
    # JSON is YAML, and needs no YAML writer here
    return json.dumps(document, indent=2).encode() + b"\n"
