"""Links, addresses, routes and neighbours of a namespace, in rtnetlink(7)'s messages.

Everything acts on the namespace of the calling thread: call it through ``Namespace.run`` or
``call``.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_interface,
    ip_network,
)
from pathlib import Path
from sys import byteorder
from typing import Final

from corral.node.network.messages import (
    CREATE,
    EXCLUSIVE,
    REPLACE,
    ROUTE,
    Conversation,
    attribute,
    attributes,
    hardware,
    nested,
    number,
    text,
)

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network

SYSCTL: Final = Path("/proc/sys/net")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_WHOLE: Final[dict[int, Network]] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}
_PRESENT: Final = frozenset({errno.EEXIST})
_ABSENT: Final = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL})
_ADD: Final = CREATE | EXCLUSIVE
_PUT: Final = CREATE | REPLACE

# Messages and their attributes, by linux/if_link.h, if_addr.h, rtnetlink.h and neighbour.h.
_NEW_LINK, _DELETE_LINK, _GET_LINK = 16, 17, 18
_LINK_BODY: Final = struct.Struct("=BxHiII")  # family, type, index, flags, which are meant
_MAC, _NAME, _MTU, _MASTER, _INFO, _ALIAS, _NAMESPACE = 1, 3, 4, 10, 18, 20, 28
_KIND, _DATA, _PEER, _FORWARD_DELAY = 1, 2, 1, 1
_UP: Final = 1  # IFF_UP

_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS = 20, 21, 22
_ADDRESS_BODY: Final = struct.Struct("=BBBBi")  # family, prefix, flags, scope, link
_PREFIXED, _LOCAL, _ADDRESS_FLAGS = 1, 2, 8
_NO_DUPLICATE_CHECK: Final = 0x02  # IFA_F_NODAD

_NEW_ROUTE, _DELETE_ROUTE, _GET_ROUTE = 24, 25, 26
_ROUTE_BODY: Final = struct.Struct("=BBBBBBBBI")
"""Family, prefix, that of the source, service, table, maker, scope, type, flags."""
_DESTINATION, _LINK, _VIA, _METRIC, _SOURCE = 1, 4, 5, 6, 7
_MAIN_TABLE, _ADMINISTRATOR = 254, 4
_EVERYWHERE, _ON_LINK = 0, 253
_UNICAST, _UNREACHABLE = 1, 7

_NEW_NEIGHBOUR: Final = 28
_NEIGHBOUR_BODY: Final = struct.Struct("=BxxxiHBB")  # family, link, state, flags, type
_NEIGHBOUR, _NEIGHBOUR_MAC = 1, 2
_PERMANENT: Final = 0x80  # NUD_PERMANENT
_PROXY: Final = 0x08  # NTF_PROXY


class NetworkError(Exception):
    """What the network cannot do, and what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def told(self) -> str:
        """Both in one line."""
        return f"{self.message}. {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface.  ``master`` is the index of the bridge that it is a port of, or 0."""

    index: int
    name: str
    mac: str
    mtu: int
    is_up: bool
    master: int
    alias: str = ""


class Netlink:
    """One conversation with the kernel about the calling thread's namespace.

    Links are named by their names.  What adds is content with what is there already, and what
    removes with what is gone.  All raise NetworkError.
    """

    def __init__(self, kernel: Conversation) -> None:
        self._kernel = kernel

    def links(self) -> dict[str, Link]:
        """All links by name."""
        with _told("the links cannot be listed"):
            bodies = list(self._kernel.ask(_GET_LINK, _LINK_BODY.pack(0, 0, 0, 0, 0)))
        found = [_link(each) for each in bodies]
        return {each.name: each for each in found}

    def index(self, name: str) -> int:
        """The index of a link, or 0 where there is none of that name."""
        try:
            return socket.if_nametoindex(name)
        except OSError:
            return 0

    def add_veth(
        self,
        name: str,
        *,
        peer: str,
        peer_namespace: int,
        mtu: int = 1500,
        mac: str | None = None,
        peer_mac: str | None = None,
    ) -> None:
        """A pair of links, both down; the peer is born in the namespace of a descriptor."""
        body = _link_body(name=name, mtu=mtu, mac=mac)
        other = _link_body(name=peer, mtu=mtu, mac=peer_mac)
        other += attribute(_NAMESPACE, number(peer_namespace))
        body += _kind("veth", attribute(_PEER, other))
        with _told(f"the link {name} cannot be made"):
            self._kernel.order(_NEW_LINK, body, _ADD)

    def add_bridge(self, name: str, *, mac: str, mtu: int = 1500) -> None:
        """A bridge, up.

        It has an address of its own: else it would take its lowest port's, and change it as ports
        come and go.
        """
        body = _link_body(name=name, mtu=mtu, mac=mac, up=True)
        body += _kind("bridge", attribute(_FORWARD_DELAY, number(0)))
        with _told(f"the bridge {name} cannot be made"), _unless(_PRESENT):
            self._kernel.order(_NEW_LINK, body, _ADD)

    def change(
        self,
        name: str,
        *,
        up: bool = True,
        master: str | None = None,
        mac: str | None = None,
        mtu: int | None = None,
        rename: str | None = None,
        alias: str | None = None,
    ) -> None:
        """Change a link, and bring it up; ``master`` is the bridge that it becomes a port of."""
        body = _link_body(self._must(name), name=rename, mtu=mtu, mac=mac, up=up)
        if master is not None:
            body += attribute(_MASTER, number(self._must(master)))
        if alias is not None:
            body += attribute(_ALIAS, alias.encode())
        with _told(f"the link {name} cannot be set"):
            self._kernel.order(_NEW_LINK, body)

    def delete(self, name: str) -> None:
        """Remove a link, and its peer with it."""
        index = self.index(name)
        if index:
            with _told(f"the link {name} cannot be removed"), _unless(_ABSENT):
                self._kernel.order(_DELETE_LINK, _link_body(index))

    def addresses(self, name: str) -> set[Interface]:
        """The addresses of a link; link-local ones of IPv6 are the kernel's, and not told."""
        with _told(f"the addresses of {name} cannot be listed"):
            bodies = list(self._kernel.ask(_GET_ADDRESS, _ADDRESS_BODY.pack(0, 0, 0, 0, 0)))
        index = self.index(name)
        found = (_address(each) for each in bodies if _ADDRESS_BODY.unpack_from(each)[-1] == index)
        return {each for each in found if each.version == 4 or not each.is_link_local}

    def add_address(self, name: str, address: Interface) -> None:
        """Give a link an address, usable at once."""
        body = _address_body(self._must(name), address)
        if address.version == 6:
            body += attribute(_ADDRESS_FLAGS, number(_NO_DUPLICATE_CHECK))
        with _told(f"{name} cannot have the address {address}"), _unless(_PRESENT):
            self._kernel.order(_NEW_ADDRESS, body, _ADD)

    def delete_address(self, name: str, address: Interface) -> None:
        """Take an address from a link."""
        body = _address_body(self._must(name), address)
        with _told(f"{name} cannot lose the address {address}"), _unless(_ABSENT):
            self._kernel.order(_DELETE_ADDRESS, body)

    def routes(self, version: int) -> list[tuple[Network, str]]:
        """Where the main table leads: (destination, name of the link or empty); version 4 or 6."""
        wanted = _ROUTE_BODY.pack(_FAMILIES[version], 0, 0, 0, 0, 0, 0, 0, 0)
        with _told("the routes cannot be listed"):
            bodies = list(self._kernel.ask(_GET_ROUTE, wanted))
        return [
            _route(each, version)
            for each in bodies
            if _ROUTE_BODY.unpack_from(each)[4] == _MAIN_TABLE
        ]

    def add_route(
        self,
        destination: Network,
        *,
        link: str | None = None,
        via: Address | None = None,
        source: Address | None = None,
        metric: int | None = None,
        replace: bool = True,
    ) -> None:
        """Lead to a destination; without link and via it answers unreachable.

        ``replace``: in place of what leads there already, which stays otherwise.
        """
        body = self._route_body(destination, link, via, source, metric)
        with _told(f"the route to {destination} cannot be made"), _unless(_PRESENT):
            self._kernel.order(_NEW_ROUTE, body, _PUT if replace else _ADD)

    def delete_route(
        self, destination: Network, *, link: str | None = None, metric: int | None = None
    ) -> None:
        """Remove a route."""
        body = self._route_body(destination, link, None, None, metric)
        with _told(f"the route to {destination} cannot be removed"), _unless(_ABSENT):
            self._kernel.order(_DELETE_ROUTE, body)

    def add_neighbour(self, name: str, address: Address, mac: str) -> None:
        """Fix which MAC an address has on a link, so that nobody else can claim it."""
        family, index = _FAMILIES[address.version], self._must(name)
        body = _NEIGHBOUR_BODY.pack(family, index, _PERMANENT, 0, 0)
        body += attribute(_NEIGHBOUR, address.packed) + attribute(_NEIGHBOUR_MAC, hardware(mac))
        with _told(f"{address} cannot be fixed on {name}"):
            self._kernel.order(_NEW_NEIGHBOUR, body, _PUT)

    def add_proxy(self, name: str, address: Address) -> None:
        """Answer for an address on a link (proxy ARP, proxy NDP)."""
        family, index = _FAMILIES[address.version], self._must(name)
        body = _NEIGHBOUR_BODY.pack(family, index, _PERMANENT, _PROXY, 0)
        body += attribute(_NEIGHBOUR, address.packed)
        with _told(f"{name} cannot answer for {address}"):
            self._kernel.order(_NEW_NEIGHBOUR, body, _PUT)

    def _must(self, name: str) -> int:
        index = self.index(name)
        if not index:
            raise NetworkError(f"there is no link {name}")
        return index

    def _route_body(
        self,
        destination: Network,
        link: str | None,
        via: Address | None,
        source: Address | None,
        metric: int | None,
    ) -> bytes:
        nowhere = link is None and via is None
        body = _ROUTE_BODY.pack(
            _FAMILIES[destination.version],
            destination.prefixlen,
            0,
            0,
            _MAIN_TABLE,
            _ADMINISTRATOR,
            _EVERYWHERE if nowhere or via is not None else _ON_LINK,
            _UNREACHABLE if nowhere else _UNICAST,
            0,
        )
        body += attribute(_DESTINATION, destination.network_address.packed)
        if link is not None:
            body += attribute(_LINK, number(self._must(link)))
        if via is not None:
            body += attribute(_VIA, via.packed)
        if source is not None:
            body += attribute(_SOURCE, source.packed)
        if metric is not None:
            body += attribute(_METRIC, number(metric))
        return body


@contextmanager
def opened() -> Iterator[Netlink]:
    """A conversation about the namespace of the calling thread.  Raises NetworkError."""
    with _told("the kernel cannot be asked about its network"):
        kernel = Conversation(ROUTE)
    with kernel:
        yield Netlink(kernel)


def set_sysctl(name: str, value: int | str) -> None:
    """Set ``net/NAME`` of the calling thread's namespace, such as ``ipv4/ip_forward``.

    Raises NetworkError.
    """
    path = SYSCTL / name
    try:
        if path.read_text(encoding="ascii").strip() != str(value):
            path.write_text(str(value), encoding="ascii")
    except OSError as error:
        hint = "Run corral where /proc/sys can be written." if error.errno == errno.EROFS else ""
        raise NetworkError(f"net/{name} cannot be set: {error.strerror}", hint) from error


def _link_body(
    index: int = 0,
    *,
    name: str | None = None,
    mtu: int | None = None,
    mac: str | None = None,
    up: bool | None = None,
) -> bytes:
    body = _LINK_BODY.pack(0, 0, index, _UP if up else 0, 0 if up is None else _UP)
    if name is not None:
        body += attribute(_NAME, text(name))
    if mtu is not None:
        body += attribute(_MTU, number(mtu))
    if mac is not None:
        body += attribute(_MAC, hardware(mac))
    return body


def _kind(kind: str, *data: bytes) -> bytes:
    return nested(_INFO, attribute(_KIND, text(kind)), nested(_DATA, *data))


def _link(body: bytes) -> Link:
    _family, _type, index, flags, _mask = _LINK_BODY.unpack_from(body)
    told = dict(attributes(body[_LINK_BODY.size :]))
    return Link(
        index,
        told[_NAME].rstrip(b"\0").decode(),
        told.get(_MAC, b"").hex(":"),
        int.from_bytes(told.get(_MTU, b""), byteorder),
        bool(flags & _UP),
        int.from_bytes(told.get(_MASTER, b""), byteorder),
        told.get(_ALIAS, b"").rstrip(b"\0").decode(errors="replace"),
    )


def _address_body(index: int, address: Interface) -> bytes:
    body = _ADDRESS_BODY.pack(_FAMILIES[address.version], address.network.prefixlen, 0, 0, index)
    return body + attribute(_LOCAL, address.packed) + attribute(_PREFIXED, address.packed)


def _address(body: bytes) -> Interface:
    told = dict(attributes(body[_ADDRESS_BODY.size :]))
    return ip_interface((told.get(_LOCAL, told[_PREFIXED]), body[1]))


def _route(body: bytes, version: int) -> tuple[Network, str]:
    told = dict(attributes(body[_ROUTE_BODY.size :]))
    leads = ip_network((told[_DESTINATION], body[1])) if _DESTINATION in told else _WHOLE[version]
    return leads, _name(int.from_bytes(told.get(_LINK, b""), byteorder))


def _name(index: int) -> str:
    try:
        return socket.if_indextoname(index) if index else ""
    except OSError:
        return ""


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what failed, in the kernel's words."""
    try:
        yield
    except OSError as error:
        raise NetworkError(f"{what}: {error.strerror or error}") from error


@contextmanager
def _unless(codes: frozenset[int]) -> Iterator[None]:
    """What is there already is as good as made, and what is gone already as good as removed."""
    try:
        yield
    except OSError as error:
        if error.errno not in codes:
            raise
