"""HTTP clients of webhooks, resolved from their client configurations and cached.

A Service is resolved for each call, because its endpoints may change.  The name in its certificate
is ``<service>.<namespace>.svc``.
"""

import base64
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from corral.api.addresses import parse_address
from corral.api.kind import at
from corral.api.kinds.networking.endpointslice import ENDPOINT_SLICE
from corral.api.kinds.networking.service import SERVICE
from corral.api.object import Document, Key
from corral.server.request.call import storage
from corral.store import Store

if TYPE_CHECKING:
    from corral.client.https import WebServer

MAX_CLIENTS: Final = 64
"""Cached clients; the least recently used one is closed."""
_SERVICE_NAME = "kubernetes.io/service-name"
_LOOPBACK = "127.0.0.1"


class WebhookAddressError(Exception):
    """A webhook's address that cannot be resolved."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a webhook.

    url: without the path.
    display_url: the URL in messages, with the Service's name.
    name: in its certificate, if the URL has an IP address.
    """

    url: str
    path: str
    display_url: str
    name: str = ""


class WebhookClients:
    """The cached clients of webhooks; ``store`` has the Services."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[tuple[str, str, str], WebServer] = {}

    def find(self, config: Document) -> Address:
        """Resolve a WebhookClientConfig.  Raises WebhookAddressError."""
        service = config.get("service")
        if service is None:
            parts = urlsplit(config["url"])
            url = f"{parts.scheme}://{parts.netloc}"
            return Address(url, parts.path or "/", url)
        return self._of_service(service)

    def _of_service(self, reference: Document) -> Address:
        namespace, name, port = (
            reference["namespace"],
            reference["name"],
            reference.get("port") or 443,
        )
        record = self._store.latest(storage(SERVICE), Key(namespace, name))
        if record is None:
            raise WebhookAddressError(f'service "{name}" not found')
        service = record.document()
        host, node_port = self._destination(service, port)
        host_name = f"{name}.{namespace}.svc"
        path = reference.get("path") or "/"
        bracketed = f"[{host}]" if ":" in host else host
        return Address(
            f"https://{bracketed}:{node_port}", path, f"https://{host_name}:{port}", host_name
        )

    def _destination(self, service: Document, port: int) -> tuple[str, int]:
        """Return a host and port that serve a Service's port.

        The API server runs on the host, outside of the pod network: it uses the node port if there
        is one.
        """
        if at(service, "spec", "type") == "ExternalName":
            return str(at(service, "spec", "externalName")), port
        name = service["metadata"]["name"]
        port_entry = next(
            (each for each in at(service, "spec", "ports") or () if each["port"] == port), None
        )
        if port_entry is None:
            raise WebhookAddressError(f'service "{name}" does not have port {port}')
        if port_entry.get("nodePort"):
            return _LOOPBACK, port_entry["nodePort"]
        for destination in self._endpoints(service, port_entry.get("name") or ""):
            return destination
        raise WebhookAddressError(f'no endpoints available for service "{name}"')

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

    async def client(self, address: Address, bundle: str) -> "WebServer":
        """Return the client of an address; ``bundle`` is the CA bundle, PEM in base64.

        Raises WebhookAddressError if the bundle is invalid.
        """
        key = (address.url, address.name, bundle)
        client = self._open.pop(key, None)
        if client is None:
            client = _open_client(address, bundle)
        self._open[key] = client  # moved to the end: most recently used
        if len(self._open) > MAX_CLIENTS:
            await self._open.pop(next(iter(self._open))).aclose()
        return client

    async def aclose(self) -> None:
        """Close all connections."""
        while self._open:
            await self._open.popitem()[1].aclose()


def _open_client(address: Address, bundle: str) -> "WebServer":
    from corral.client.https import WebServer  # noqa: PLC0415 - most managers call no webhook

    try:
        authorities = base64.b64decode(bundle).decode("ascii")
        return WebServer(
            address.url, description="the webhook", authorities=authorities, name=address.name
        )
    except (ValueError, ssl.SSLError) as error:
        raise WebhookAddressError(f"unable to load root certificates: {error}") from None
