"""Where webhooks are: the sites that their configurations name, connected to once.

A Service is looked up at each question: what it names may change.  The name in its certificate is
``<service>.<namespace>.svc``.
"""

import base64
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from corral.api.addresses import parse_address
from corral.api.kind import at
from corral.api.kinds.networking.endpointslice import ENDPOINT_SLICE
from corral.api.kinds.networking.service import SERVICE
from corral.api.object import Document, Key
from corral.client.transport import WebServer
from corral.server.request.call import storage
from corral.store import Store

MOST_SITES: Final = 64
"""How many stay connected; whoever was asked longest ago is let go."""
_SERVICE_NAME = "kubernetes.io/service-name"
_LOOPBACK = "127.0.0.1"


class SiteError(Exception):
    """A webhook is nowhere to be found."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a webhook is asked.

    url: without the path.
    told: the same as users know it.
    name: in its certificate, where the URL does not tell.
    """

    url: str
    path: str
    told: str
    name: str = ""


class Sites:
    """The sites of webhooks.  ``store`` knows Services."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[tuple[str, str, str], WebServer] = {}

    def find(self, client: Document) -> Address:
        """Where the WebhookClientConfig of a webhook points.  Raises SiteError."""
        service = client.get("service")
        if service is None:
            parts = urlsplit(client["url"])
            whole = f"{parts.scheme}://{parts.netloc}"
            return Address(whole, parts.path or "/", whole)
        return self._of_service(service)

    def _of_service(self, wanted: Document) -> Address:
        namespace, name, port = wanted["namespace"], wanted["name"], wanted.get("port") or 443
        record = self._store.latest(storage(SERVICE), Key(namespace, name))
        if record is None:
            raise SiteError(f'service "{name}" not found')
        service = record.document()
        host, at_port = self._destination(service, port)
        called = f"{name}.{namespace}.svc"
        path = wanted.get("path") or "/"
        shown = f"[{host}]" if ":" in host else host
        return Address(f"https://{shown}:{at_port}", path, f"https://{called}:{port}", called)

    def _destination(self, service: Document, port: int) -> tuple[str, int]:
        """The host and port that answer for a Service's port.

        The server is on the host, outside of the network of the machines: it reaches a Service's
        endpoints by the port that the host has for it, where there is one.
        """
        if at(service, "spec", "type") == "ExternalName":
            return str(at(service, "spec", "externalName")), port
        name = service["metadata"]["name"]
        found = next(
            (each for each in at(service, "spec", "ports") or () if each["port"] == port), None
        )
        if found is None:
            raise SiteError(f'service "{name}" does not have port {port}')
        if found.get("nodePort"):
            return _LOOPBACK, found["nodePort"]
        for destination in self._endpoints(service, found.get("name") or ""):
            return destination
        raise SiteError(f'no endpoints available for service "{name}"')

    def _endpoints(self, service: Document, port: str) -> Iterator[tuple[str, int]]:
        metadata = service["metadata"]
        for record in self._store.objects(storage(ENDPOINT_SLICE), metadata["namespace"]):
            if record.labels.get(_SERVICE_NAME) != metadata["name"]:
                continue
            document = record.document()
            ports = [
                each for each in document.get("ports") or () if (each.get("name") or "") == port
            ]
            for endpoint in document.get("endpoints") or ():
                if at(endpoint, "conditions", "ready") is False or not ports:
                    continue
                for address in endpoint.get("addresses") or ():
                    if parse_address(address) is not None and ports[0].get("port"):
                        yield address, ports[0]["port"]

    async def site(self, address: Address, bundle: str) -> WebServer:
        """The open site at an address; ``bundle`` is its authorities' PEM in base64.

        Raises SiteError where those cannot be read.
        """
        key = (address.url, address.name, bundle)
        site = self._open.pop(key, None)
        if site is None:
            site = _opened(address, bundle)
        self._open[key] = site  # the newest is the last
        if len(self._open) > MOST_SITES:
            await self._open.pop(next(iter(self._open))).aclose()
        return site

    async def aclose(self) -> None:
        """End all connections."""
        while self._open:
            await self._open.popitem()[1].aclose()


def _opened(address: Address, bundle: str) -> WebServer:
    try:
        authorities = base64.b64decode(bundle).decode("ascii")
        return WebServer(
            address.url, description="the webhook", authorities=authorities, name=address.name
        )
    except (ValueError, ssl.SSLError) as error:
        raise SiteError(f"unable to load root certificates: {error}") from None
