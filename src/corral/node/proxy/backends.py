"""The backends of a Service port, from its EndpointSlices."""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from lightkube.models.core_v1 import ServicePort
from lightkube.models.discovery_v1 import Endpoint, EndpointSlice

PROTOCOLS: Mapping[str, str] = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
"""The protocols as the API and as nftables write them."""

_IPV4_IN_IPV6 = IPv6Network("::ffff:0:0/96")


class Backend(NamedTuple):
    """The address and port of an endpoint, both validated: they may be part of a rule."""

    address: str
    port: int


class Backends(NamedTuple):
    """The backends of the cluster, and those on this host's nodes."""

    all: tuple[Backend, ...]
    local: tuple[Backend, ...]


def address(text: str | None) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; None if it is invalid.  A zone after ``%`` is dropped."""
    try:
        parsed = ip_address(text or "")
    except ValueError:
        return None
    # Without its zone, which may be any text.
    return IPv6Address(int(parsed)) if isinstance(parsed, IPv6Address) else parsed


def select_backends(
    port: ServicePort, slices: Iterable[EndpointSlice], version: int, nodes: Collection[str]
) -> Backends:
    """Return the ready endpoints of a port; if none is ready, the serving terminating ones.

    The local ones are chosen separately (KEP-1669).
    """
    candidates = [
        (backend, endpoint)
        for each in slices
        if each.addressType == f"IPv{version}"
        for number in _port_numbers(port, each)
        for endpoint in each.endpoints or ()
        if (backend := _backend(endpoint, number, version)) is not None
    ]
    local = [(backend, endpoint) for backend, endpoint in candidates if endpoint.nodeName in nodes]
    return Backends(_usable(candidates), _usable(local))


def _port_numbers(port: ServicePort, slice_: EndpointSlice) -> list[int]:
    protocol = port.protocol or "TCP"
    return [
        each.port
        for each in slice_.ports or ()
        if (each.name or "") == (port.name or "")
        and (each.protocol or "TCP") == protocol
        and each.port
        and 0 < each.port < 1 << 16
    ]


def _backend(endpoint: Endpoint, port: int, version: int) -> Backend | None:
    parsed = address(endpoint.addresses[0] if endpoint.addresses else None)
    if parsed is None or parsed.version != version:
        return None
    # An endpoint must not give access to this host's own ports, in any form of its addresses.
    if parsed in _IPV4_IN_IPV6 or parsed.is_loopback or parsed.is_link_local:
        return None
    if parsed.is_multicast or parsed.is_unspecified:
        return None
    return Backend(str(parsed), port)


def _usable(candidates: list[tuple[Backend, Endpoint]]) -> tuple[Backend, ...]:
    ready = {backend for backend, endpoint in candidates if _is_ready(endpoint)}
    return tuple(
        sorted(
            ready
            or {backend for backend, endpoint in candidates if _is_serving_terminating(endpoint)}
        )
    )


def _is_ready(endpoint: Endpoint) -> bool:
    """Report whether an endpoint is ready; unset means yes (discovery/v1 EndpointConditions)."""
    return endpoint.conditions is None or endpoint.conditions.ready is not False


def _is_serving_terminating(endpoint: Endpoint) -> bool:
    conditions = endpoint.conditions
    return conditions is not None and bool(conditions.serving and conditions.terminating)
