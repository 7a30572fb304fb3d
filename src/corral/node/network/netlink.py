"""Links, addresses, routes and neighbours of a network namespace, by rtnetlink(7).

All functions act on the namespace of the calling thread: call them through ``Namespace.run`` or
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

from corral.node.network.netlink_messages import (
    NETLINK_ROUTE,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NetlinkSocket,
    attribute,
    attributes,
    cstring,
    mac_bytes,
    nested,
    u32,
)

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network

SYSCTL: Final = Path("/proc/sys/net")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_ALL_ADDRESSES: Final[dict[int, Network]] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}
_EXISTS_ERRORS: Final = frozenset({errno.EEXIST})
_MISSING_ERRORS: Final = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL})
_CREATE_NEW: Final = NLM_F_CREATE | NLM_F_EXCL
_CREATE_OR_REPLACE: Final = NLM_F_CREATE | NLM_F_REPLACE

# Messages and their attributes, by linux/if_link.h, if_addr.h, rtnetlink.h and neighbour.h.
_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK = 16, 17, 18
_IFINFOMSG: Final = struct.Struct("=BxHiII")  # family, type, index, flags, change mask
(
    _IFLA_ADDRESS,
    _IFLA_IFNAME,
    _IFLA_MTU,
    _IFLA_MASTER,
    _IFLA_LINKINFO,
    _IFLA_IFALIAS,
    _IFLA_NET_NS_FD,
) = 1, 3, 4, 10, 18, 20, 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER, _IFLA_BR_FORWARD_DELAY = 1, 2, 1, 1
_IFF_UP: Final = 1

_RTM_NEWADDR, _RTM_DELADDR, _RTM_GETADDR = 20, 21, 22
_IFADDRMSG: Final = struct.Struct("=BBBBi")  # family, prefix, flags, scope, link
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_IFA_F_NODAD: Final = 0x02

_RTM_NEWROUTE, _RTM_DELROUTE, _RTM_GETROUTE = 24, 25, 26
_RTMSG: Final = struct.Struct("=BBBBBBBBI")
"""Family, destination and source prefix lengths, TOS, table, protocol, scope, type, flags."""
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_PREFSRC = 1, 4, 5, 6, 7
_RT_TABLE_MAIN, _RTPROT_STATIC = 254, 4
_RTM_NEWRULE, _RTM_DELRULE, _RTM_GETRULE = 32, 33, 34
_FR_ACT_TO_TBL: Final = 1
_FRA_SRC, _FRA_PRIORITY = 2, 6
_RT_SCOPE_UNIVERSE, _RT_SCOPE_LINK, _RT_SCOPE_NOWHERE = 0, 253, 255
_RTN_UNICAST, _RTN_UNREACHABLE = 1, 7

_RTNH_F_ONLINK: Final = 4

(
    _IFLA_VXLAN_ID,
    _IFLA_VXLAN_LOCAL,
    _IFLA_VXLAN_LEARNING,
    _IFLA_VXLAN_PORT,
    _IFLA_VXLAN_LOCAL6,
) = 1, 4, 7, 15, 17
_RTM_NEWNEIGH, _RTM_DELNEIGH = 28, 29
_NDMSG: Final = struct.Struct("=BxxxiHBB")  # family, link, state, flags, type
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_NOARP, _NUD_PERMANENT = 0x40, 0x80
_NTF_SELF, _NTF_PROXY = 0x02, 0x08


class NetworkError(Exception):
    """A failed change or query of the network: ``message`` and a ``hint`` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def full_message(self) -> str:
        """The message and the hint in one line."""
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
    """Operations on the links, addresses, routes and neighbours of the calling thread's namespace.

    Links are identified by name.  Adding what exists and removing what does not exist succeed.  All
    methods raise NetworkError.
    """

    def __init__(self, netlink: NetlinkSocket) -> None:
        self._socket = netlink

    def links(self) -> dict[str, Link]:
        """Return all links by name."""
        with _failure("the links cannot be listed"):
            bodies = list(self._socket.dump(_RTM_GETLINK, _IFINFOMSG.pack(0, 0, 0, 0, 0)))
        found = [_link(each) for each in bodies]
        return {each.name: each for each in found}

    def index(self, name: str) -> int:
        """Return the index of a link, or 0 if there is none of that name."""
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
        """Create a veth pair, both ends down; the peer in the namespace of a descriptor."""
        body = _link_body(name=name, mtu=mtu, mac=mac)
        other = _link_body(name=peer, mtu=mtu, mac=peer_mac)
        other += attribute(_IFLA_NET_NS_FD, u32(peer_namespace))
        body += _link_info("veth", attribute(_VETH_INFO_PEER, other))
        with _failure(f"the link {name} cannot be created"):
            self._socket.request(_RTM_NEWLINK, body, _CREATE_NEW)

    def add_bridge(self, name: str, *, mac: str, mtu: int = 1500) -> None:
        """Create a bridge, up.

        It gets a MAC address of its own: otherwise it takes the lowest one of its ports, and
        changes it as ports come and go.
        """
        body = _link_body(name=name, mtu=mtu, mac=mac, up=True)
        body += _link_info("bridge", attribute(_IFLA_BR_FORWARD_DELAY, u32(0)))
        with _failure(f"the bridge {name} cannot be created"), _ignoring(_EXISTS_ERRORS):
            self._socket.request(_RTM_NEWLINK, body, _CREATE_NEW)

    def add_vxlan(
        self,
        name: str,
        *,
        vni: int,
        local: Address,
        port: int,
        mac: str,
        mtu: int,
        namespace: int,
    ) -> None:
        """Create a VXLAN device in the namespace of a descriptor; its outer packets leave here.

        It learns nothing: peers are those of ``add_forwarding``.
        """
        body = _link_body(name=name, mtu=mtu, mac=mac)
        body += attribute(_IFLA_NET_NS_FD, u32(namespace))
        body += _link_info(
            "vxlan",
            attribute(_IFLA_VXLAN_ID, u32(vni)),
            attribute(
                _IFLA_VXLAN_LOCAL if local.version == 4 else _IFLA_VXLAN_LOCAL6, local.packed
            ),
            attribute(_IFLA_VXLAN_PORT, struct.pack("!H", port)),
            attribute(_IFLA_VXLAN_LEARNING, b"\0"),
        )
        with _failure(f"the device {name} cannot be created"):
            self._socket.request(_RTM_NEWLINK, body, _CREATE_NEW)

    def add_wireguard(self, name: str, *, mtu: int, namespace: int) -> None:
        """Create a WireGuard device in the namespace of a descriptor; outer packets leave here."""
        body = _link_body(name=name, mtu=mtu) + attribute(_IFLA_NET_NS_FD, u32(namespace))
        body += _link_info("wireguard")
        with _failure(f"the device {name} cannot be created"):
            self._socket.request(_RTM_NEWLINK, body, _CREATE_NEW)

    def move(self, name: str, namespace: int, *, rename: str, mtu: int) -> None:
        """Move a link to the namespace of a descriptor, under another name, down."""
        body = _link_body(self._require_index(name), name=rename, mtu=mtu)
        body += attribute(_IFLA_NET_NS_FD, u32(namespace))
        with _failure(f"the link {name} cannot be moved"):
            self._socket.request(_RTM_NEWLINK, body)

    def add_forwarding(self, name: str, mac: str, peer: Address) -> None:
        """Send what a VXLAN device has for a MAC address to a host."""
        with _failure(f"{name} cannot forward to {peer}"):
            body = self._forwarding(name, mac, peer)
            self._socket.request(_RTM_NEWNEIGH, body, _CREATE_OR_REPLACE)

    def delete_forwarding(self, name: str, mac: str, peer: Address) -> None:
        """Undo ``add_forwarding``."""
        with _failure(f"{name} cannot stop forwarding to {peer}"), _ignoring(_MISSING_ERRORS):
            self._socket.request(_RTM_DELNEIGH, self._forwarding(name, mac, peer))

    def _forwarding(self, name: str, mac: str, peer: Address) -> bytes:
        state = _NUD_PERMANENT | _NUD_NOARP
        body = _NDMSG.pack(socket.AF_BRIDGE, self._require_index(name), state, _NTF_SELF, 0)
        return body + attribute(_NDA_LLADDR, mac_bytes(mac)) + attribute(_NDA_DST, peer.packed)

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
        body = _link_body(self._require_index(name), name=rename, mtu=mtu, mac=mac, up=up)
        if master is not None:
            body += attribute(_IFLA_MASTER, u32(self._require_index(master)))
        if alias is not None:
            body += attribute(_IFLA_IFALIAS, alias.encode())
        with _failure(f"the link {name} cannot be set"):
            self._socket.request(_RTM_NEWLINK, body)

    def delete(self, name: str) -> None:
        """Remove a link, and with it its peer."""
        index = self.index(name)
        if index:
            with (
                _failure(f"the link {name} cannot be removed"),
                _ignoring(_MISSING_ERRORS),
            ):
                self._socket.request(_RTM_DELLINK, _link_body(index))

    def addresses(self, name: str) -> set[Interface]:
        """Return the addresses of a link, without the link-local IPv6 ones that the kernel adds."""
        with _failure(f"the addresses of {name} cannot be listed"):
            bodies = list(self._socket.dump(_RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0)))
        index = self.index(name)
        found = (_address(each) for each in bodies if _IFADDRMSG.unpack_from(each)[-1] == index)
        return {each for each in found if each.version == 4 or not each.is_link_local}

    def add_address(self, name: str, address: Interface) -> None:
        """Add an address to a link, usable at once: without duplicate address detection."""
        body = _address_body(self._require_index(name), address)
        if address.version == 6:
            body += attribute(_IFA_FLAGS, u32(_IFA_F_NODAD))
        with (
            _failure(f"{name} cannot have the address {address}"),
            _ignoring(_EXISTS_ERRORS),
        ):
            self._socket.request(_RTM_NEWADDR, body, _CREATE_NEW)

    def delete_address(self, name: str, address: Interface) -> None:
        """Remove an address from a link."""
        body = _address_body(self._require_index(name), address)
        with (
            _failure(f"{name} cannot lose the address {address}"),
            _ignoring(_MISSING_ERRORS),
        ):
            self._socket.request(_RTM_DELADDR, body)

    def routes(self, version: int, *, table: int = _RT_TABLE_MAIN) -> list[tuple[Network, str]]:
        """Return a table, by default the main one: (destination, link name or empty)."""
        request = _RTMSG.pack(_FAMILIES[version], 0, 0, 0, 0, 0, 0, 0, 0)
        with _failure("the routes cannot be listed"):
            bodies = list(self._socket.dump(_RTM_GETROUTE, request))
        return [_route(each, version) for each in bodies if _RTMSG.unpack_from(each)[4] == table]

    def add_route(
        self,
        destination: Network,
        *,
        link: str | None = None,
        via: Address | None = None,
        source: Address | None = None,
        metric: int | None = None,
        replace: bool = True,
        on_link: bool = False,
        table: int = _RT_TABLE_MAIN,
    ) -> None:
        """Add a route; without ``link`` and ``via`` an unreachable one.

        ``replace``: replace an existing route to the destination, instead of keeping it;
        ``on_link``: ``via`` is a neighbour although no address of the link says so.
        """
        body = self._route_body(
            destination, link, via, source, metric, on_link=on_link, table=table
        )
        with (
            _failure(f"the route to {destination} cannot be created"),
            _ignoring(_EXISTS_ERRORS),
        ):
            self._socket.request(
                _RTM_NEWROUTE, body, _CREATE_OR_REPLACE if replace else _CREATE_NEW
            )

    def delete_route(
        self,
        destination: Network,
        *,
        link: str | None = None,
        metric: int | None = None,
        table: int = _RT_TABLE_MAIN,
    ) -> None:
        """Remove a route; without ``link`` an unreachable one."""
        scope = _RT_SCOPE_NOWHERE if link is not None else None  # any: of those by a gateway, too
        body = self._route_body(destination, link, None, None, metric, table=table, scope=scope)
        with (
            _failure(f"the route to {destination} cannot be removed"),
            _ignoring(_MISSING_ERRORS),
        ):
            self._socket.request(_RTM_DELROUTE, body)

    def rules(self, version: int, table: int) -> list[Network]:
        """Return the sources of the routing rules that lead to a table."""
        request = _RTMSG.pack(_FAMILIES[version], 0, 0, 0, 0, 0, 0, 0, 0)
        with _failure("the routing rules cannot be listed"):
            bodies = list(self._socket.dump(_RTM_GETRULE, request))
        return [_rule_source(each) for each in bodies if _RTMSG.unpack_from(each)[4] == table]

    def add_rule(self, source: Network, *, table: int, priority: int) -> None:
        """Lead packets from a range through a routing table."""
        body = _rule_body(source, table) + attribute(_FRA_PRIORITY, u32(priority))
        with (
            _failure(f"the routing rule for {source} cannot be created"),
            _ignoring(_EXISTS_ERRORS),
        ):
            self._socket.request(_RTM_NEWRULE, body, _CREATE_NEW)

    def delete_rule(self, source: Network, *, table: int) -> None:
        """Undo ``add_rule``."""
        with (
            _failure(f"the routing rule for {source} cannot be removed"),
            _ignoring(_MISSING_ERRORS),
        ):
            self._socket.request(_RTM_DELRULE, _rule_body(source, table))

    def add_neighbour(self, name: str, address: Address, mac: str) -> None:
        """Add a permanent neighbour entry, so that no other host can claim the address."""
        family, index = _FAMILIES[address.version], self._require_index(name)
        body = _NDMSG.pack(family, index, _NUD_PERMANENT, 0, 0)
        body += attribute(_NDA_DST, address.packed) + attribute(_NDA_LLADDR, mac_bytes(mac))
        with _failure(f"{address} cannot be fixed on {name}"):
            self._socket.request(_RTM_NEWNEIGH, body, _CREATE_OR_REPLACE)

    def add_proxy(self, name: str, address: Address) -> None:
        """Answer for an address on a link (proxy ARP, proxy NDP)."""
        family, index = _FAMILIES[address.version], self._require_index(name)
        body = _NDMSG.pack(family, index, _NUD_PERMANENT, _NTF_PROXY, 0)
        body += attribute(_NDA_DST, address.packed)
        with _failure(f"{name} cannot answer for {address}"):
            self._socket.request(_RTM_NEWNEIGH, body, _CREATE_OR_REPLACE)

    def _require_index(self, name: str) -> int:
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
        *,
        on_link: bool = False,
        table: int = _RT_TABLE_MAIN,
        scope: int | None = None,
    ) -> bytes:
        nowhere = link is None and via is None
        if scope is None:
            scope = _RT_SCOPE_UNIVERSE if nowhere or via is not None else _RT_SCOPE_LINK
        body = _RTMSG.pack(
            _FAMILIES[destination.version],
            destination.prefixlen,
            0,
            0,
            table,
            _RTPROT_STATIC,
            scope,
            _RTN_UNREACHABLE if nowhere else _RTN_UNICAST,
            _RTNH_F_ONLINK if on_link else 0,
        )
        body += attribute(_RTA_DST, destination.network_address.packed)
        if link is not None:
            body += attribute(_RTA_OIF, u32(self._require_index(link)))
        if via is not None:
            body += attribute(_RTA_GATEWAY, via.packed)
        if source is not None:
            body += attribute(_RTA_PREFSRC, source.packed)
        if metric is not None:
            body += attribute(_RTA_PRIORITY, u32(metric))
        return body


@contextmanager
def opened() -> Iterator[Netlink]:
    """Open a netlink socket in the namespace of the calling thread.  Raises NetworkError."""
    with _failure("no netlink socket can be opened"):
        netlink = NetlinkSocket(NETLINK_ROUTE)
    with netlink:
        yield Netlink(netlink)


def get_sysctl(name: str) -> str:
    """Return ``net/NAME`` of the calling thread's namespace.  Raises NetworkError."""
    try:
        return (SYSCTL / name).read_text(encoding="ascii").strip()
    except OSError as error:
        raise NetworkError(f"net/{name} cannot be read: {error.strerror}") from error


def set_sysctl(name: str, value: int | str) -> None:
    """Set ``net/NAME`` in the calling thread's namespace, such as ``ipv4/ip_forward``.

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
    body = _IFINFOMSG.pack(0, 0, index, _IFF_UP if up else 0, 0 if up is None else _IFF_UP)
    if name is not None:
        body += attribute(_IFLA_IFNAME, cstring(name))
    if mtu is not None:
        body += attribute(_IFLA_MTU, u32(mtu))
    if mac is not None:
        body += attribute(_IFLA_ADDRESS, mac_bytes(mac))
    return body


def _link_info(kind: str, *data: bytes) -> bytes:
    return nested(
        _IFLA_LINKINFO, attribute(_IFLA_INFO_KIND, cstring(kind)), nested(_IFLA_INFO_DATA, *data)
    )


def _link(body: bytes) -> Link:
    _family, _type, index, flags, _mask = _IFINFOMSG.unpack_from(body)
    values = dict(attributes(body[_IFINFOMSG.size :]))
    return Link(
        index,
        values[_IFLA_IFNAME].rstrip(b"\0").decode(),
        values.get(_IFLA_ADDRESS, b"").hex(":"),
        int.from_bytes(values.get(_IFLA_MTU, b""), byteorder),
        bool(flags & _IFF_UP),
        int.from_bytes(values.get(_IFLA_MASTER, b""), byteorder),
        values.get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace"),
    )


def _address_body(index: int, address: Interface) -> bytes:
    body = _IFADDRMSG.pack(_FAMILIES[address.version], address.network.prefixlen, 0, 0, index)
    return body + attribute(_IFA_LOCAL, address.packed) + attribute(_IFA_ADDRESS, address.packed)


def _address(body: bytes) -> Interface:
    values = dict(attributes(body[_IFADDRMSG.size :]))
    return ip_interface((values.get(_IFA_LOCAL, values[_IFA_ADDRESS]), body[1]))


def _route(body: bytes, version: int) -> tuple[Network, str]:
    values = dict(attributes(body[_RTMSG.size :]))
    destination = (
        ip_network((values[_RTA_DST], body[1])) if _RTA_DST in values else _ALL_ADDRESSES[version]
    )
    return destination, _name(int.from_bytes(values.get(_RTA_OIF, b""), byteorder))


def _rule_body(source: Network, table: int) -> bytes:
    family = _FAMILIES[source.version]
    body = _RTMSG.pack(family, 0, source.prefixlen, 0, table, 0, 0, _FR_ACT_TO_TBL, 0)
    return body + attribute(_FRA_SRC, source.network_address.packed)


def _rule_source(body: bytes) -> Network:
    family, _, length, *_ = _RTMSG.unpack_from(body)
    values = dict(attributes(body[_RTMSG.size :]))
    version = 4 if family == socket.AF_INET else 6
    return ip_network((values[_FRA_SRC], length)) if _FRA_SRC in values else _ALL_ADDRESSES[version]


def _name(index: int) -> str:
    try:
        return socket.if_indextoname(index) if index else ""
    except OSError:
        return ""


@contextmanager
def _failure(what: str) -> Iterator[None]:
    """Raise an OSError as NetworkError: the failed operation, then the kernel's reason."""
    try:
        yield
    except OSError as error:
        raise NetworkError(f"{what}: {error.strerror or error}") from error


@contextmanager
def _ignoring(codes: frozenset[int]) -> Iterator[None]:
    """Ignore an OSError with one of these codes."""
    try:
        yield
    except OSError as error:
        if error.errno not in codes:
            raise
