"""Address and age of a kubelet, its key, and which others it reaches, from Nodes."""

import base64
from binascii import Error
from collections.abc import Mapping
from typing import Final

from lightkube.models.core_v1 import Node

WIREGUARD_KEY: Final = "corral.dev/wireguard-public-key"
"""Annotation of a Node: the public key of its host's WireGuard device, in base64."""
WIREGUARD_PORT: Final = "corral.dev/wireguard-port"
"""Annotation of a Node: the UDP port of that device."""
_WIREGUARD_KEY_BYTES: Final = 32
_MAX_PORT, _PORT_DIGITS = 65535, 5


def wireguard_key(annotations: Mapping[str, str] | None) -> bytes | None:
    """Return the public key in the annotations of a Node; None without one that can be read."""
    try:
        key = base64.b64decode((annotations or {}).get(WIREGUARD_KEY) or "", validate=True)
    except (Error, ValueError):
        return None
    return key if len(key) == _WIREGUARD_KEY_BYTES else None


def wireguard_port(annotations: Mapping[str, str] | None) -> int | None:
    """Return the port in the annotations of a Node; None without one that can be read."""
    text = (annotations or {}).get(WIREGUARD_PORT) or ""
    port = int(text) if len(text) <= _PORT_DIGITS and text.isascii() and text.isdigit() else 0
    return port if 0 < port <= _MAX_PORT else None


def internal_ips(node: Node) -> list[str]:
    """Return the addresses of type InternalIP: any text, for a node writes them itself."""
    addresses = (node.status and node.status.addresses) or ()
    return [each.address for each in addresses if each.type == "InternalIP"]


def kubelet_port(node: Node) -> int:
    """Return the port of the node's own API; 0 where it has none.

    Only nodes of other hosts have one: those of the API server's own process are reached within it.
    """
    endpoints = node.status and node.status.daemonEndpoints
    kubelet = endpoints and endpoints.kubeletEndpoint
    return (kubelet and kubelet.Port) or 0


def by_age(node: Node) -> tuple[str, str]:
    """Return a key that sorts the oldest Node first: where two claim the same, it keeps that."""
    metadata = node.metadata
    created = metadata.creationTimestamp if metadata is not None else None
    name = (metadata and metadata.name) or ""
    return (created.isoformat() if created else "", name)
