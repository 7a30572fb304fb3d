"""Links, addresses, routes and neighbours of a namespace.  The only door to pyroute2.

Everything acts on the namespace of the calling thread: call it through ``Namespace.run`` or
``call``.  pyroute2 is imported when it is first used, since it costs a fifth of a second.
"""

import errno
import os
import socket
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
)
from pathlib import Path
from typing import Any, Final

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network

SYSCTL: Final = Path("/proc/sys/net")
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_PERMANENT: Final = 0x80  # NUD_PERMANENT
_PROXY: Final = 0x08  # NTF_PROXY
_NO_DUPLICATE_CHECK: Final = 0x02  # IFA_F_NODAD
_ABSENT: Final = frozenset({errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL})


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

    def __init__(self, requests: Any) -> None:
        self._requests = requests

    def links(self) -> dict[str, Link]:
        """All links by name."""
        with _told("the links cannot be listed"):
            found = [_link(each) for each in self._requests.get_links()]
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
        other = {"ifname": peer, "net_ns_fd": peer_namespace, "mtu": mtu, **_mac(peer_mac)}
        with _told(f"the link {name} cannot be made"):
            self._requests.link("add", ifname=name, kind="veth", mtu=mtu, peer=other, **_mac(mac))

    def add_bridge(self, name: str, *, mac: str, mtu: int = 1500) -> None:
        """A bridge, up.

        It has an address of its own: else it would take its lowest port's, and change it as ports
        come and go.
        """
        with _told(f"the bridge {name} cannot be made"), _kept():
            self._requests.link(
                "add",
                ifname=name,
                kind="bridge",
                address=mac,
                mtu=mtu,
                br_forward_delay=0,
                state="up",
            )

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
        changes: dict[str, Any] = {"state": "up" if up else "down", **_mac(mac)}
        if master is not None:
            changes["master"] = self._must(master)
        if mtu is not None:
            changes["mtu"] = mtu
        if rename is not None:
            changes["ifname"] = rename
        if alias is not None:
            changes["ifalias"] = alias
        with _told(f"the link {name} cannot be set"):
            self._requests.link("set", index=self._must(name), **changes)

    def delete(self, name: str) -> None:
        """Remove a link, and its peer with it."""
        index = self.index(name)
        if index:
            with _told(f"the link {name} cannot be removed"), _gone():
                self._requests.link("del", index=index)

    def addresses(self, name: str) -> set[Interface]:
        """The addresses of a link; link-local ones of IPv6 are the kernel's, and not told."""
        index = self.index(name)
        with _told(f"the addresses of {name} cannot be listed"):
            found = list(self._requests.get_addr(index=index)) if index else []
        scoped = (
            IPv4Interface((each.get("address"), each["prefixlen"]))
            if each["family"] == socket.AF_INET
            else IPv6Interface((each.get("address"), each["prefixlen"]))
            for each in found
        )
        return {each for each in scoped if each.version == 4 or not each.is_link_local}

    def add_address(self, name: str, address: Interface) -> None:
        """Give a link an address, usable at once."""
        flags = {"flags": _NO_DUPLICATE_CHECK} if address.version == 6 else {}
        with _told(f"{name} cannot have the address {address}"), _kept():
            self._requests.addr(
                "add",
                index=self._must(name),
                family=_FAMILIES[address.version],
                address=str(address.ip),
                prefixlen=address.network.prefixlen,
                **flags,
            )

    def delete_address(self, name: str, address: Interface) -> None:
        """Take an address from a link."""
        with _told(f"{name} cannot lose the address {address}"), _gone():
            self._requests.addr(
                "del",
                index=self._must(name),
                family=_FAMILIES[address.version],
                address=str(address.ip),
                prefixlen=address.network.prefixlen,
            )

    def routes(self, version: int) -> list[tuple[Network, str]]:
        """Where the main table leads: (destination, name of the link or empty); version 4 or 6."""
        whole = IPv4Network("0.0.0.0/0") if version == 4 else IPv6Network("::/0")
        with _told("the routes cannot be listed"):
            found = list(self._requests.get_routes(family=_FAMILIES[version], table=254))
        return [
            (
                type(whole)((each.get("dst"), each["dst_len"])) if each.get("dst") else whole,
                _name(each.get("oif")),
            )
            for each in found
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
        verb = "replace" if replace else "add"
        with _told(f"the route to {destination} cannot be made"), _kept():
            self._requests.route(verb, **self._route(destination, link, via, source, metric))

    def delete_route(
        self, destination: Network, *, link: str | None = None, metric: int | None = None
    ) -> None:
        """Remove a route."""
        with _told(f"the route to {destination} cannot be removed"), _gone():
            self._requests.route("del", **self._route(destination, link, None, None, metric))

    def add_neighbour(self, name: str, address: Address, mac: str) -> None:
        """Fix which MAC an address has on a link, so that nobody else can claim it."""
        with _told(f"{address} cannot be fixed on {name}"):
            self._requests.neigh(
                "replace",
                ifindex=self._must(name),
                family=_FAMILIES[address.version],
                dst=str(address),
                lladdr=mac,
                state=_PERMANENT,
            )

    def add_proxy(self, name: str, address: Address) -> None:
        """Answer for an address on a link (proxy ARP, proxy NDP)."""
        with _told(f"{name} cannot answer for {address}"):
            self._requests.neigh(
                "replace",
                ifindex=self._must(name),
                family=_FAMILIES[address.version],
                dst=str(address),
                flags=_PROXY,
            )

    def _must(self, name: str) -> int:
        index = self.index(name)
        if not index:
            raise NetworkError(f"there is no link {name}")
        return index

    def _route(
        self,
        destination: Network,
        link: str | None,
        via: Address | None,
        source: Address | None,
        metric: int | None,
    ) -> dict[str, Any]:
        route: dict[str, Any] = {
            "dst": str(destination),
            "family": _FAMILIES[destination.version],
        }
        if link is None and via is None:
            route["type"] = "unreachable"
        if link is not None:
            route["oif"] = self._must(link)
            if via is None:
                route["scope"] = "link"
        if via is not None:
            route["gateway"] = str(via)
        if source is not None:
            route["prefsrc"] = str(source)
        if metric is not None:
            route["priority"] = metric
        return route


@contextmanager
def opened() -> Iterator[Netlink]:
    """A conversation about the namespace of the calling thread.  Raises NetworkError."""
    from pyroute2 import IPRoute  # noqa: PLC0415  slow to import

    with _told("the kernel cannot be asked about its network"):
        requests = IPRoute()
    try:
        yield Netlink(requests)
    finally:
        requests.close()


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


def _link(message: Any) -> Link:
    return Link(
        message["index"],
        message.get("ifname"),
        message.get("address") or "",
        message.get("mtu") or 0,
        message["state"] == "up",
        message.get("master") or 0,
        message.get("ifalias") or "",
    )


def _name(index: int | None) -> str:
    try:
        return socket.if_indextoname(index) if index else ""
    except OSError:
        return ""


def _mac(mac: str | None) -> dict[str, str]:
    return {"address": mac} if mac is not None else {}


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what failed, in the kernel's words."""
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415  slow to import

    try:
        yield
    except NetlinkError as error:
        raise NetworkError(f"{what}: {os.strerror(error.code)}") from error
    except OSError as error:
        raise NetworkError(f"{what}: {error.strerror or error}") from error


@contextmanager
def _kept() -> Iterator[None]:
    """What is there already is as good as made."""
    with _unless({errno.EEXIST}):
        yield


@contextmanager
def _gone() -> Iterator[None]:
    """What is gone already is as good as removed."""
    with _unless(_ABSENT):
        yield


@contextmanager
def _unless(codes: frozenset[int] | set[int]) -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415  slow to import

    try:
        yield
    except NetlinkError as error:
        if error.code not in codes:
            raise
