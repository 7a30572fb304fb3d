"""Where the connections to a port of a Service may go now."""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from lightkube.models.core_v1 import ServicePort
from lightkube.models.discovery_v1 import Endpoint, EndpointSlice

PROTOCOLS: Mapping[str, str] = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
"""The words of the API, and those of the packet filter."""

_IPV4_IN_IPV6 = IPv6Network("::ffff:0:0/96")


class Backend(NamedTuple):
    """An address and a port that answer.  Both were checked: they may stand in a rule."""

    address: str
    port: int


class Choice(NamedTuple):
    """Who may get connections: of all, and of those on this machine's nodes."""

    all: tuple[Backend, ...]
    local: tuple[Backend, ...]


def address(text: str | None) -> IPv4Address | IPv6Address | None:
    """An address as what it says, or None.  What is behind a ``%`` is no part of it."""
    try:
        parsed = ip_address(text or "")
    except ValueError:
        return None
    # Without its scope, which may be any text.
    return IPv6Address(int(parsed)) if isinstance(parsed, IPv6Address) else parsed


def choice(
    port: ServicePort, slices: Iterable[EndpointSlice], version: int, nodes: Collection[str]
) -> Choice:
    """The ready endpoints of a port; where none is ready, those that serve until they are gone.

    Local ones are chosen among themselves (KEP-1669).
    """
    found = [
        (backend, told)
        for each in slices
        if each.addressType == f"IPv{version}"
        for number in _numbers(port, each)
        for told in each.endpoints or ()
        if (backend := _backend(told, number, version)) is not None
    ]
    local = [(backend, told) for backend, told in found if told.nodeName in nodes]
    return Choice(_usable(found), _usable(local))


def _numbers(port: ServicePort, told: EndpointSlice) -> list[int]:
    protocol = port.protocol or "TCP"
    return [
        each.port
        for each in told.ports or ()
        if (each.name or "") == (port.name or "")
        and (each.protocol or "TCP") == protocol
        and each.port
        and 0 < each.port < 1 << 16
    ]


def _backend(told: Endpoint, port: int, version: int) -> Backend | None:
    parsed = address(told.addresses[0] if told.addresses else None)
    if parsed is None or parsed.version != version:
        return None
    # Nobody may reach this machine's own doors by naming them as an endpoint, in whatever clothes.
    if parsed in _IPV4_IN_IPV6 or parsed.is_loopback or parsed.is_link_local:
        return None
    if parsed.is_multicast or parsed.is_unspecified:
        return None
    return Backend(str(parsed), port)


def _usable(found: list[tuple[Backend, Endpoint]]) -> tuple[Backend, ...]:
    ready = {backend for backend, told in found if _is_ready(told)}
    return tuple(sorted(ready or {backend for backend, told in found if _serves_on(told)}))


def _is_ready(told: Endpoint) -> bool:
    """What is not said means yes (discovery/v1 EndpointConditions)."""
    return told.conditions is None or told.conditions.ready is not False


def _serves_on(told: Endpoint) -> bool:
    conditions = told.conditions
    return conditions is not None and bool(conditions.serving and conditions.terminating)
