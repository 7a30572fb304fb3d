"""Kubelets of joined nodes, at the address and port in their Node object, over TLS."""

import ssl
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp

from corral.api.kind import at
from corral.api.kinds.core.kinds import NODE
from corral.api.object import Document, Key
from corral.server.request.call import storage
from corral.store import Store

if TYPE_CHECKING:
    from corral.client.reverse_proxy import ReverseProxy

KUBELET_PORT: Final = 10250


class RemoteNodes:
    """The kubelets of a cluster; ``tls`` trusts their CA and has the server's client certificate.

    Call it with a node's name for the ASGI app of its kubelet.
    """

    def __init__(self, store: Store, tls: ssl.SSLContext) -> None:
        self._store = store
        self._tls = tls
        self._proxies: dict[tuple[str, int], ReverseProxy] = {}

    def __call__(self, name: str) -> ASGIApp | None:
        """Return the kubelet of a node; None if it is missing or has no address."""
        record = self._store.latest(storage(NODE), Key("", name))
        endpoint = endpoint_of(record.document()) if record is not None else None
        if endpoint is None:
            return None
        if endpoint not in self._proxies:
            # Its HTTP client takes a tenth of a start, and most managers have no other hosts.
            from corral.client.reverse_proxy import ReverseProxy  # noqa: PLC0415

            what = f'the kubelet of node "{name}"'
            self._proxies[endpoint] = ReverseProxy(*endpoint, self._tls, what=what)
        return self._proxies[endpoint]

    async def aclose(self) -> None:
        """End all connections."""
        for proxy in self._proxies.values():
            await proxy.aclose()


def endpoint_of(node: Document) -> tuple[str, int] | None:
    """Return the address and port of a Node's kubelet; None where it has no InternalIP."""
    port = at(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port") or KUBELET_PORT
    for address in at(node, "status", "addresses") or ():
        if address.get("type") == "InternalIP" and address.get("address"):
            return address["address"], port
    return None
