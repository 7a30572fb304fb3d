"""The nodes of an API server elsewhere, reached by its own ``nodes/proxy``.

That server knows how it trusts its nodes, whose serving certificates are self-signed until an
administrator approves others; and where the network lets nobody else reach them, it does.
"""

from urllib.parse import quote, urlsplit

from starlette.types import ASGIApp

from corral.client.kubeconfig import Kubeconfig
from corral.client.reverse_proxy import ReverseProxy


class ProxiedNodes:
    """The nodes of the API server of a kubeconfig.  Call it with a name for the node's ASGI app.

    Its user needs ``create``, ``get`` and ``update`` of ``nodes/proxy``.
    """

    def __init__(self, config: Kubeconfig) -> None:
        self._config = config
        self._tls = config.tls()
        self._proxies: dict[str, ReverseProxy] = {}

    def __call__(self, name: str) -> ASGIApp:
        """Return a node's app; for a node that is not there the API server answers 404."""
        if name not in self._proxies:
            server = urlsplit(self._config.server)
            self._proxies[name] = ReverseProxy(
                server.hostname or "",
                server.port or 443,
                self._tls,
                what=f'node "{name}"',
                prefix=f"{server.path.rstrip('/')}/api/v1/nodes/{quote(name, safe='')}/proxy",
                headers=self._credentials,
            )
        return self._proxies[name]

    async def aclose(self) -> None:
        """End all connections."""
        for proxy in self._proxies.values():
            await proxy.aclose()

    def _credentials(self) -> dict[str, str]:
        """Return the headers of the kubeconfig's user; the User-Agent stays the client's."""
        headers = self._config.headers
        return {name: value for name, value in headers.items() if name != "user-agent"}
