"""What a guest is told about its network; pure values that the answers are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import (
        IPv4Address,
        IPv4Interface,
        IPv4Network,
        IPv6Address,
        IPv6Interface,
    )

LONG_SECONDS = 86_313_600
"""KubeVirt's lease, 999 days: an address stays the guest's as long as the guest lives."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route beside the default one; without a `gateway` the destination is on the link."""

    destination: IPv4Network
    gateway: IPv4Address | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """An IPv4 address and what DHCP (RFC 2131) tells beside it.

    address: the guest's address and its prefix, such as 10.0.2.2/24.
    server: the address that answers come from; where there is a gateway, that one.
    gateway: the default route; it may lie outside of the prefix (option 121 then says how).
    dns: name servers.
    search: domains in which short names are looked up; the first is the guest's own domain.
    mtu: largest packet of the link, in bytes.
    hostname: the guest's name; not told if empty.
    routes: beside the default route.
    seconds: how long the address may be used.
    boot_file_name, tftp_server_name, ntp_servers, private_options: KubeVirt's `dhcpOptions`;
    private options are numbers from 224 to 254 and their values.
    """

    address: IPv4Interface
    server: IPv4Address
    gateway: IPv4Address | None = None
    dns: tuple[IPv4Address, ...] = ()
    search: tuple[str, ...] = ()
    mtu: int = 1500
    hostname: str = ""
    routes: tuple[Route, ...] = ()
    seconds: int = LONG_SECONDS
    boot_file_name: str = ""
    tftp_server_name: str = ""
    ntp_servers: tuple[IPv4Address, ...] = ()
    private_options: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Lease6:
    """An IPv6 address, what DHCPv6 (RFC 8415) tells beside it, and what its router advertises.

    The router's address is the link-local one of the device that the guest is plugged to.

    address: the guest's address and its prefix, such as fd10:0:2::2/120; it is lent for ever.
    dns, search, mtu: as in `Lease`.
    """

    address: IPv6Interface
    dns: tuple[IPv6Address, ...] = ()
    search: tuple[str, ...] = ()
    mtu: int = 1500


@dataclass(frozen=True, slots=True)
class Link:
    """The link between a guest's card and its router, and what the guest is told there.

    device: the bridge that the guest's tap is plugged to, in the pod's namespace.
    guest: hardware address of the guest's card; nobody else gets an IPv4 address.
    router: hardware address that the guest's router has; the bridge's own, as a rule.
    lease: without it DHCP is not answered.
    lease6: without it neither DHCPv6 nor router solicitations are answered.
    """

    device: str
    guest: str
    router: str
    lease: Lease | None = None
    lease6: Lease6 | None = None
