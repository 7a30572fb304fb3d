"""Network configuration of a guest: the content of DHCP replies and router advertisements."""

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

LEASE_SECONDS = 86_313_600
"""KubeVirt's lease time, 999 days: the address is the guest's as long as the guest lives."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route beside the default one; without a ``gateway`` the destination is on the link."""

    destination: IPv4Network
    gateway: IPv4Address | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """An IPv4 address and the other configuration by DHCP (RFC 2131).

    address: the guest's address and its prefix, such as 10.0.2.2/24.
    server: the address that replies come from: the gateway, if there is one.
    gateway: the default route; it may lie outside of the prefix (option 121 then says how to reach
    it).
    dns: name servers.
    search: search domains; the first is the guest's own domain.
    mtu: largest packet of the link, in bytes.
    hostname: the guest's name; left out if empty.
    routes: beside the default route.
    seconds: the lease time.
    boot_file_name, tftp_server_name, ntp_servers, private_options: KubeVirt's ``dhcpOptions``;
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
    seconds: int = LEASE_SECONDS
    boot_file_name: str = ""
    tftp_server_name: str = ""
    ntp_servers: tuple[IPv4Address, ...] = ()
    private_options: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Lease6:
    """An IPv6 address, and the configuration by DHCPv6 (RFC 8415) and router advertisements.

    The router's address is the link-local one of the bridge.

    address: the guest's address and its prefix, such as fd10:0:2::2/120; its lifetime is infinite.
    dns, search, mtu: as in ``Lease``.
    """

    address: IPv6Interface
    dns: tuple[IPv6Address, ...] = ()
    search: tuple[str, ...] = ()
    mtu: int = 1500


@dataclass(frozen=True, slots=True)
class Link:
    """The link between a guest and its router.

    device: the bridge with the guest's tap, in the pod's namespace.
    guest: MAC address of the guest; nobody else gets an IPv4 address.
    router: MAC address of the guest's router, normally the bridge's own.
    lease: without it DHCP is not answered.
    lease6: without it neither DHCPv6 nor router solicitations are answered.
    """

    device: str
    guest: str
    router: str
    lease: Lease | None = None
    lease6: Lease6 | None = None
