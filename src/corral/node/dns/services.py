"""Services and their endpoints, as far as DNS needs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from lightkube.models.core_v1 import Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.node.dns.records import Name, is_name, parse_name

PROTOCOLS = {"TCP": "_tcp", "UDP": "_udp", "SCTP": "_sctp"}
"""Labels of the protocols in SRV names."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port, as SRV names have it: ``_http._tcp``."""

    name: str
    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address behind a Service."""

    address: str
    hostname: str
    is_ready: bool
    has_hostname: bool
    """True if the pod has a hostname: only then its address has a PTR record."""
    ports: Sequence[Port]


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """A Service, as far as DNS needs it."""

    addresses: Sequence[str]
    """Cluster IPs; none if it is headless."""
    headless: bool
    external_name: Name
    """The target of an ExternalName Service; empty for others."""
    publish_not_ready: bool
    """True if endpoints that are not ready are included (publishNotReadyAddresses)."""
    ports: Sequence[Port]


def service_entry(service: Service) -> ServiceEntry:
    """Return the entry of a Service."""
    spec = service.spec
    if spec is None:
        return ServiceEntry((), headless=False, external_name=(), publish_not_ready=False, ports=())
    external_name = parse_name(spec.externalName or "") if spec.type == "ExternalName" else ()
    addresses = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])
    return ServiceEntry(
        addresses=tuple(address for each in addresses if (address := canonical(each))),
        headless="None" in addresses,
        external_name=external_name if is_name(external_name) else (),
        publish_not_ready=bool(spec.publishNotReadyAddresses),
        ports=tuple(
            Port(each.name or "", PROTOCOLS.get(each.protocol or "TCP", ""), each.port)
            for each in spec.ports or ()
        ),
    )


def endpoints_of(slice_: EndpointSlice) -> Iterator[Endpoint]:
    """Return the addresses of an EndpointSlice.  Unset readiness means ready (discovery/v1)."""
    ports = tuple(
        Port(each.name or "", PROTOCOLS.get(each.protocol or "TCP", ""), each.port)
        for each in slice_.ports or ()
        if each.port is not None
    )
    for endpoint in slice_.endpoints or ():
        conditions = endpoint.conditions
        is_ready = conditions is None or conditions.ready is not False
        hostname = (endpoint.hostname or "").lower()
        has_hostname = bool(hostname) and is_name((hostname,))
        for text in endpoint.addresses[:1]:
            if address := canonical(text):
                yield Endpoint(
                    address=address,
                    hostname=hostname if has_hostname else dashed_address(address),
                    is_ready=is_ready,
                    has_hostname=has_hostname,
                    ports=ports,
                )


def canonical(text: str) -> str:
    """Return the canonical form of an address; empty if it is invalid."""
    try:
        return str(ip_address(text))
    except ValueError:
        return ""


def dashed_address(address: str) -> str:
    """Return an address as a DNS label."""
    return address.replace(".", "-").replace(":", "-")
