"""EndpointSlice: a part of those who answer for a service, as proxies and DNS read them."""

from lightkube.models.discovery_v1 import EndpointSlice

from corral.api.kind import Column, Kind, Version
from corral.api.kinds.columns import age, few, field
from corral.api.object import Document

UNSET = "<unset>"


def _ports(document: Document) -> str:
    ports = document.get("ports") or ()
    return few([str(one["port"]) if "port" in one else one.get("name") or "*" for one in ports])


def _addresses(document: Document) -> str:
    endpoints = document.get("endpoints") or ()
    return few([address for one in endpoints for address in one.get("addresses") or ()])


def default(document: Document) -> None:
    """Every port has a name, be it the empty one, and a protocol."""
    for port in document.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


ENDPOINT_SLICE = Kind(
    group="discovery.k8s.io",
    name="EndpointSlice",
    plural="endpointslices",
    singular="endpointslice",
    versions=(Version(name="v1"),),
    view=EndpointSlice,
    status=False,
    native=True,
    columns=(
        field("AddressType", "addressType", description="IPv4, IPv6 or FQDN"),
        Column(
            name="Ports",
            cell=lambda document: _ports(document) or UNSET,
            description="ports that every endpoint of it answers on",
        ),
        Column(
            name="Endpoints",
            cell=lambda document: _addresses(document) or UNSET,
            description="addresses, whether ready or not",
        ),
        age(),
    ),
    default=default,
)
