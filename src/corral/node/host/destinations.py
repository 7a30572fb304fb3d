"""The destinations to which this host connects on behalf of tenants, checked at each connection.

A DataVolume's URL, an image's registry, their redirects, and a probe's host are named by tenants,
and this process connects to them from the host's network.  A tenant's own guest reaches private
networks and the internet itself; it does not reach the host's loopback, other tenants' pods despite
their policies, or a cloud's metadata service, and neither may a download.

Names are resolved once, and the connection uses a checked address: a name that resolves to another
address later (DNS rebinding) changes nothing.  A refusal happens before any packet is sent, so it
does not reveal what listens there.
"""

import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeVar

from corral.api.addresses import Address, Network

N = TypeVar("N", IPv4Network, IPv6Network)

METADATA: Final[tuple[Network, ...]] = tuple(
    map(
        ip_network,
        (
            "100.100.100.200/32",  # Alibaba
            "168.63.129.16/32",  # Azure's wire server
            "192.0.0.192/32",  # Oracle
            "fd00:42::42/128",  # Scaleway
            "fd00:c1::a9fe:a9fe/128",  # Oracle
            "fd00:ec2::23/128",  # Amazon: the identities of its pods
            "fd00:ec2::254/128",  # Amazon
            "fd20:ce::254/128",  # Google
        ),
    )
)
"""Metadata services of clouds, besides those at link-local addresses."""
_LINK_LOCAL_4: Final = IPv4Network("169.254.0.0/16")
_SPECIAL: Final[tuple[tuple[str, tuple[Network, ...]], ...]] = (
    ("loopback", (ip_network("127.0.0.0/8"), ip_network("::1/128"))),
    ("link-local", (_LINK_LOCAL_4, ip_network("fe80::/10"))),
    ("the metadata of a cloud", METADATA),
    ("unspecified", (ip_network("0.0.0.0/8"), ip_network("::/128"))),
    ("multicast", (ip_network("224.0.0.0/4"), ip_network("ff00::/8"))),
    (
        "reserved",
        (
            ip_network("240.0.0.0/4"),
            ip_network("::/96"),  # IPv4-compatible addresses, deprecated
            ip_network("2001::/32"),  # Teredo: the destination depends on its server
            ip_network("64:ff9b:1::/48"),  # RFC 8215: local NAT64 prefixes, of unknown destination
        ),
    ),
)
_NAT64 = IPv6Network("64:ff9b::/96")
_IN_LAST_BITS: Final = (_NAT64, IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"))
"""IPv6 prefixes with the IPv4 address in the last 32 bits (RFC 6052, 4291, 7915)."""


class Refused(Exception):
    """A refused destination; ``str()`` names the host and the reason."""


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if any(address in each for each in _IN_LAST_BITS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or address


def nat64_range(network: IPv4Network) -> IPv6Network:
    """Return the NAT64 range of an IPv4 range."""
    start = int(_NAT64.network_address) + int(network.network_address)
    return IPv6Network((start, 96 + network.prefixlen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """The addresses to which tenants may make this host connect.

    cluster: the ranges of pods and Services, and of links between them and the host:
    NetworkPolicies do not apply to connections from the host.
    allowed: exceptions by the administrator.
    """

    cluster: tuple[Network, ...] = ()
    allowed: tuple[Network, ...] = ()

    def refusal_reason(self, address: Address) -> str:
        """Return why an address is refused; empty if it is allowed."""
        unwrapped_address = unwrapped(address)
        if any(one in each for each in self.allowed for one in (address, unwrapped_address)):
            return ""
        forbidden = (*_SPECIAL, ("of the cluster", self.cluster))
        for reason, ranges in forbidden:
            if any(one in each for each in ranges for one in (address, unwrapped_address)):
                return reason
        return "the host's own" if _is_own_address(unwrapped_address) else ""

    def addresses(self, host: str, port: int) -> Sequence[str]:
        """Resolve a host, and return its allowed addresses.  Blocks.

        Raises Refused if none is allowed, and OSError if it does not resolve.
        """
        return self._allowed_addresses(host, _resolve(host, port))

    def require_allowed(self, host: str) -> None:
        """Raise Refused for a refused IP address, and for the names of this host.

        Other names are resolved and checked when the connection is opened.
        """
        bare = host.rstrip(".").lower()
        if bare == "localhost" or bare.endswith(".localhost"):
            host = "127.0.0.1"
        with suppress(socket.gaierror):
            self._allowed_addresses(host, _resolve(host, 0, socket.AI_NUMERICHOST))

    def _allowed_addresses(self, host: str, candidates: Sequence[str]) -> Sequence[str]:
        reasons = {each: self.refusal_reason(ip_address(each)) for each in candidates}
        allowed_addresses = [each for each, refusal_reason in reasons.items() if not refusal_reason]
        if not allowed_addresses:
            raise Refused(
                f"{host} is not connected to: its address is {reasons[candidates[0]]}, which only "
                "an administrator opens (corral up --allow-destination)"
            )
        return allowed_addresses

    def connect(self, host: str, port: int, *, seconds: float) -> socket.socket:
        """Open a TCP connection; ``seconds`` is the timeout for each address.  Blocks.

        Raises Refused and OSError.
        """
        last_error: OSError | None = None
        for address in self.addresses(host, port):
            try:
                return socket.create_connection((address, port), timeout=seconds)
            except OSError as error:
                last_error = error
        assert last_error is not None, "a host without addresses is no host"
        raise last_error


FOR_TENANTS: Final = Destinations()
ANYWHERE: Final = Destinations(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
"""For connections that the administrator requests."""


def forbidden_to_guests(version: int, allowed: Iterable[Network]) -> Sequence[Network]:
    """Return the addresses of one IP version that the packet filter keeps guests from.

    Routers do not forward IPv4 link-local addresses (RFC 3927, 7), but a cloud's metadata service
    has one.  Those of IPv6 are not forwarded in the first place, and neighbour discovery needs
    them.
    """
    ipv4 = [_LINK_LOCAL_4, *(each for each in METADATA if isinstance(each, IPv4Network))]
    ipv6 = [each for each in METADATA if isinstance(each, IPv6Network)]
    forbidden: list[Network] = [*ipv4] if version == 4 else [*ipv6, *map(nat64_range, ipv4)]
    for each in allowed:
        forbidden = [part for one in forbidden for part in _subtract(one, each)]
    return sorted(forbidden, key=lambda each: int(each.network_address))


def _subtract(network: Network, other: Network) -> Iterable[Network]:
    """Return the rest of a range."""
    if isinstance(network, IPv4Network):
        return (
            _subtract_same_version(network, other) if isinstance(other, IPv4Network) else (network,)
        )
    return _subtract_same_version(
        network, nat64_range(other) if isinstance(other, IPv4Network) else other
    )


def _subtract_same_version(network: N, other: N) -> Iterable[N]:
    if not network.overlaps(other):
        return (network,)
    return () if network.subnet_of(other) else network.address_exclude(other)


def _resolve(host: str, port: int, flags: int = 0) -> Sequence[str]:
    """Return the addresses of a host, in any notation.  Raises OSError (gaierror)."""
    candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [str(sockaddr[0]) for *_, sockaddr in candidates]


def _is_own_address(address: Address) -> bool:
    """Report whether the kernel routes an address to the host itself; no packet is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(address), 9))
        source = ip_address(str(probe.getsockname()[0]))
        return source == address or source.is_loopback
    return False
