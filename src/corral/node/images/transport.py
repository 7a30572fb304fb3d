"""HTTP transport to registries: connects to allowed addresses only, checked after name resolution.

Proxies of the administrator's environment are used, and then resolve names; requests for denied
literal addresses are not sent to them.
"""

import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from corral.aio import own_thread
from corral.node.host.destinations import Destinations

_FALLBACK_SECONDS = 3.0
"""Connect timeout if there is another address, since IPv6 may be unroutable."""


class _Backend(httpcore2.AsyncNetworkBackend):
    """Opens connections to allowed addresses."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's own
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raises Refused, and httpcore2's ConnectError and ConnectTimeout."""
        *others, last = await self._addresses(host, port)
        short = _FALLBACK_SECONDS if timeout is None else min(timeout, _FALLBACK_SECONDS)
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await self._plain.connect_tcp(
                    address, port, short, local_address, socket_options
                )
        return await self._plain.connect_tcp(last, port, timeout, local_address, socket_options)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve a name in a thread of its own: a slow name server must not block the pool."""
        try:
            return await own_thread(self._destinations.addresses, host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(str(error)) from error


class _Direct(httpx2.AsyncHTTPTransport):
    def __init__(self, tls: ssl.SSLContext, destinations: Destinations) -> None:
        super().__init__(verify=tls)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls, network_backend=_Backend(destinations)
        )


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests directly or through a proxy.  Raises Refused, too."""

    def __init__(self, tls: ssl.SSLContext, destinations: Destinations, *, proxies: bool) -> None:
        """proxies: whether to use those of the environment."""
        self._tls = tls
        self._destinations = destinations
        self._proxies = getproxies() if proxies else {}
        self._direct = _Direct(tls, destinations)
        self._by_proxy: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = self._proxy(request.url)
        if not proxy:
            return await self._direct.handle_async_request(request)
        self._destinations.require_allowed(request.url.host)
        if proxy not in self._by_proxy:
            self._by_proxy[proxy] = httpx2.AsyncHTTPTransport(verify=self._tls, proxy=proxy)
        return await self._by_proxy[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for each in (self._direct, *self._by_proxy.values()):
            await each.aclose()

    def _proxy(self, url: httpx2.URL) -> str:
        """Return the proxy of a URL; empty for none."""
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all") or ""
        if not proxy or proxy_bypass(url.host, self._proxies):
            return ""
        return proxy if "://" in proxy else f"http://{proxy}"
