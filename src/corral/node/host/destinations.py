"""Where connections may lead that tenants make this host open: one list, judged as it is dialled.

A DataVolume's address, an image's registry, what either redirects to, and a probe's host are named
by tenants and connected to by this process, which stands in the host's network.  A tenant's own
guest reaches private networks and the world by itself; it does not reach the host's loopback, other
tenants' pods past their policies, or a cloud's metadata, and neither may a download.

Names are looked up once, and the connection goes to an address that was judged: a name that means
another address a moment later (DNS rebinding) changes nothing.  What is refused is refused before a
packet is sent, so nobody learns by it what listens there.
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
"""Where clouds keep what only a host may know, besides link-local addresses."""
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
            ip_network("::/96"),  # an IPv4 address in IPv6's clothes, no longer in use
            ip_network("2001::/32"),  # Teredo: leads to whom its server says
            ip_network("64:ff9b:1::/48"),  # RFC 8215: leads where only its network knows
        ),
    ),
)
_NAT64 = IPv6Network("64:ff9b::/96")
_IN_LAST_BITS: Final = (_NAT64, IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"))
"""Addresses of IPv6 that mean the IPv4 address in their last bits (RFC 6052, 4291, 7915)."""


class Refused(Exception):
    """No connection leads there; ``str()`` says to which host, and why."""


def meant(address: Address) -> Address:
    """The address that a connection ends at: the IPv4 one where IPv6 wraps it."""
    if isinstance(address, IPv4Address):
        return address
    if any(address in each for each in _IN_LAST_BITS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or address


def wrapped(network: IPv4Network) -> IPv6Network:
    """A range of IPv4 as a translator of IPv6 (NAT64) knows it."""
    start = int(_NAT64.network_address) + int(network.network_address)
    return IPv6Network((start, 96 + network.prefixlen))


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """Which addresses may be connected to for tenants.

    cluster: the ranges of pods and Services, and of links between them and the host: who comes
    from the host is asked for by no NetworkPolicy.
    allowed: what the administrator lets tenants reach all the same.
    """

    cluster: tuple[Network, ...] = ()
    allowed: tuple[Network, ...] = ()

    def fault(self, address: Address) -> str:
        """What an address is that may not be connected to; empty for one that may."""
        end = meant(address)
        if any(one in each for each in self.allowed for one in (address, end)):
            return ""
        special = (*_SPECIAL, ("of the cluster", self.cluster))
        for what, ranges in special:
            if any(one in each for each in ranges for one in (address, end)):
                return what
        return "the host's own" if _is_own(end) else ""

    def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host that may be connected to, looked up now.  Blocks.

        Raises Refused where none may be, and OSError where there is none.
        """
        return self._usable(host, _looked_up(host, port))

    def require_fit(self, host: str) -> None:
        """Raises Refused for an address that may not be connected to, and for this host's names.

        Other names are for whoever connects to look up.
        """
        bare = host.rstrip(".").lower()
        if bare == "localhost" or bare.endswith(".localhost"):
            host = "127.0.0.1"
        with suppress(socket.gaierror):
            self._usable(host, _looked_up(host, 0, socket.AI_NUMERICHOST))

    def _usable(self, host: str, found: Sequence[str]) -> Sequence[str]:
        faults = {each: self.fault(ip_address(each)) for each in found}
        usable = [each for each, fault in faults.items() if not fault]
        if not usable:
            raise Refused(
                f"{host} is not connected to: its address is {faults[found[0]]}, which only an "
                "administrator opens (corral up --allow-destination)"
            )
        return usable

    def connect(self, host: str, port: int, *, seconds: float) -> socket.socket:
        """A connection to a host, by TCP; ``seconds`` is for each address.  Blocks.

        Raises Refused and OSError.
        """
        failure: OSError | None = None
        for address in self.addresses(host, port):
            try:
                return socket.create_connection((address, port), timeout=seconds)
            except OSError as error:
                failure = error
        assert failure is not None, "a host without addresses is no host"
        raise failure


FOR_TENANTS: Final = Destinations()
ANYWHERE: Final = Destinations(allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
"""For what the administrator asks for."""


def for_guests(version: int, allowed: Iterable[Network]) -> Sequence[Network]:
    """The addresses of one IP version that the packet filter keeps guests from.

    Routers do not pass link-locals on (RFC 3927, 7): behind one is a cloud's metadata.  Those of
    IPv6 have no way out in the first place, and neighbours need them.
    """
    four = [_LINK_LOCAL_4, *(each for each in METADATA if isinstance(each, IPv4Network))]
    six = [each for each in METADATA if isinstance(each, IPv6Network)]
    barred: list[Network] = [*four] if version == 4 else [*six, *map(wrapped, four)]
    for each in allowed:
        barred = [part for one in barred for part in _without(one, each)]
    return sorted(barred, key=lambda each: int(each.network_address))


def _without(network: Network, other: Network) -> Iterable[Network]:
    """What is left of a range."""
    if isinstance(network, IPv4Network):
        return _left(network, other) if isinstance(other, IPv4Network) else (network,)
    return _left(network, wrapped(other) if isinstance(other, IPv4Network) else other)


def _left(network: N, other: N) -> Iterable[N]:
    if not network.overlaps(other):
        return (network,)
    return () if network.subnet_of(other) else network.address_exclude(other)


def _looked_up(host: str, port: int, flags: int = 0) -> Sequence[str]:
    """A host's addresses in all the ways of writing them.  Raises OSError (gaierror)."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [str(sockaddr[0]) for *_, sockaddr in found]


def _is_own(address: Address) -> bool:
    """Whether the kernel keeps what is sent there to itself: nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(address), 9))
        source = ip_address(str(probe.getsockname()[0]))
        return source == address or source.is_loopback
    return False
