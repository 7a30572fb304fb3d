"""What names need to know of Services and of the endpoints behind them.  Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from lightkube.models.core_v1 import Service
from lightkube.models.discovery_v1 import EndpointSlice

from corral.node.dns.records import Name, is_name, name_of

PROTOCOLS = {"TCP": "_tcp", "UDP": "_udp", "SCTP": "_sctp"}
"""How SRV names spell a port's protocol."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port, as SRV names it: ``_http._tcp``."""

    name: str
    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class Member:
    """One address behind a Service."""

    address: str
    hostname: str
    is_ready: bool
    is_named: bool
    """Whether the pod asked for its hostname: only then its address has a name (PTR)."""
    ports: Sequence[Port]


@dataclass(frozen=True, slots=True)
class Entry:
    """A Service."""

    addresses: Sequence[str]
    """Cluster IPs; none where it is headless."""
    headless: bool
    external: Name
    """Where an ExternalName points; empty for all others."""
    all_members: bool
    """Whether members count that are not ready (publishNotReadyAddresses)."""
    ports: Sequence[Port]


def entry_of(service: Service) -> Entry:
    """What names need to know of a Service."""
    spec = service.spec
    if spec is None:
        return Entry((), headless=False, external=(), all_members=False, ports=())
    external = name_of(spec.externalName or "") if spec.type == "ExternalName" else ()
    addresses = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])
    return Entry(
        addresses=tuple(address for one in addresses if (address := canonical(one))),
        headless="None" in addresses,
        external=external if is_name(external) else (),
        all_members=bool(spec.publishNotReadyAddresses),
        ports=tuple(
            Port(one.name or "", PROTOCOLS.get(one.protocol or "TCP", ""), one.port)
            for one in spec.ports or ()
        ),
    )


def members_of(endpoints: EndpointSlice) -> Iterator[Member]:
    """The addresses of a slice.  Readiness that nobody told counts as ready (discovery/v1)."""
    ports = tuple(
        Port(one.name or "", PROTOCOLS.get(one.protocol or "TCP", ""), one.port)
        for one in endpoints.ports or ()
        if one.port is not None
    )
    for endpoint in endpoints.endpoints or ():
        conditions = endpoint.conditions
        is_ready = conditions is None or conditions.ready is not False
        hostname = (endpoint.hostname or "").lower()
        is_named = bool(hostname) and is_name((hostname,))
        for text in endpoint.addresses[:1]:
            if address := canonical(text):
                yield Member(
                    address=address,
                    hostname=hostname if is_named else dashed(address),
                    is_ready=is_ready,
                    is_named=is_named,
                    ports=ports,
                )


def canonical(text: str) -> str:
    """The one spelling of an address; empty where it is none."""
    try:
        return str(ip_address(text))
    except ValueError:
        return ""


def dashed(address: str) -> str:
    """An address as a label of a name."""
    return address.replace(".", "-").replace(":", "-")
