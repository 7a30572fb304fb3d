"""EndpointSlice: a part of the endpoints of a Service, for proxies and DNS."""

from collections.abc import Iterator
from itertools import chain

from lightkube.models.discovery_v1 import EndpointSlice

from corral.api.addresses import parse_address, special_faults
from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict
from corral.api.kinds.causes import (
    duplicate,
    each_invalid,
    invalid,
    required,
    too_many,
    unsupported,
)
from corral.api.kinds.columns import age, few, field
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.networking.service_validation import PROTOCOLS
from corral.api.names import label_faults, label_key_faults, subdomain_faults
from corral.api.object import Document

UNSET = "<unset>"
FAMILIES = {"IPv4": 4, "IPv6": 6}
ADDRESS_TYPES = (*FAMILIES, "FQDN")
MOST_ENDPOINTS = 1000
MOST_ADDRESSES = 100
"""The most addresses of an endpoint, and the most hints."""
MOST_PORTS = 20_000


def _ports(document: Document) -> str:
    ports = document.get("ports") or ()
    return few([str(one["port"]) if "port" in one else one.get("name") or "*" for one in ports])


def _addresses(document: Document) -> str:
    endpoints = document.get("endpoints") or ()
    return few([address for one in endpoints for address in one.get("addresses") or ()])


def default(document: Document) -> None:
    """Default name and protocol of ports."""
    for port in document.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a slice: addresses are of its type, which is immutable, and sizes are bounded."""
    kind = document["addressType"]
    causes = limited(
        chain(
            _check_type(kind, old),
            _check_endpoints(document.get("endpoints") or [], kind),
            _check_ports(document.get("ports") or []),
        )
    )
    return Verdict(causes)


def _check_type(kind: str, old: Document | None) -> Iterator[Cause]:
    if not kind:
        yield required("addressType")
    elif kind not in ADDRESS_TYPES:
        yield unsupported("addressType", kind, ADDRESS_TYPES)
    if old is not None and kind != old["addressType"]:
        yield invalid("addressType", kind, "field is immutable")


def _check_endpoints(endpoints: list[Document], kind: str) -> Iterator[Cause]:
    if len(endpoints) > MOST_ENDPOINTS:
        yield too_many("endpoints", len(endpoints), MOST_ENDPOINTS)
        return
    for index, endpoint in enumerate(endpoints):
        path, addresses = f"endpoints[{index}]", endpoint["addresses"]
        if not addresses:
            yield required(f"{path}.addresses", "must contain at least 1 address")
        elif len(addresses) > MOST_ADDRESSES:
            yield too_many(f"{path}.addresses", len(addresses), MOST_ADDRESSES)
        for place, address in enumerate(addresses):
            faults = _address_faults(address, kind)
            yield from each_invalid(f"{path}.addresses[{place}]", address, faults)
        if host := endpoint.get("hostname"):
            yield from each_invalid(f"{path}.hostname", host, label_faults(host))
        if node := endpoint.get("nodeName"):
            yield from each_invalid(f"{path}.nodeName", node, subdomain_faults(node))


def _address_faults(address: str, kind: str) -> list[str]:
    if kind == "FQDN":
        return subdomain_faults(address.removesuffix("."))
    if kind not in FAMILIES:
        return []
    parsed = parse_address(address)
    if parsed is None or parsed.version != FAMILIES[kind]:
        return [f"must be a valid {kind} address"]
    return special_faults(address)


def _check_ports(ports: list[Document]) -> Iterator[Cause]:
    if len(ports) > MOST_PORTS:
        yield too_many("ports", len(ports), MOST_PORTS)
        return
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name:
            yield from each_invalid(f"{path}.name", name, label_faults(name))
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        if port["protocol"] not in PROTOCOLS:
            yield unsupported(f"{path}.protocol", port["protocol"], PROTOCOLS)
        if application := port.get("appProtocol"):
            faults = label_key_faults(application)
            yield from each_invalid(f"{path}.appProtocol", application, faults)


ENDPOINT_SLICE = kubernetes_kind(
    group="discovery.k8s.io",
    plural="endpointslices",
    view=EndpointSlice,
    status=False,
    columns=(
        field("AddressType", "addressType", description="IPv4, IPv6 or FQDN"),
        Column(
            name="Ports",
            cell=lambda document: _ports(document) or UNSET,
            description="ports of its endpoints",
        ),
        Column(
            name="Endpoints",
            cell=lambda document: _addresses(document) or UNSET,
            description="addresses, whether ready or not",
        ),
        age(),
    ),
    default=default,
    validate=validate,
)
