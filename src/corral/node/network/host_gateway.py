"""The backend ``host-gw``: hosts of one link lead packets between machines by plain routes.

As flannel's host-gw: each host routes the pod ranges of the others by their addresses, without
encapsulation.  The machine namespace has a link of its own for these packets, so that they pass its
packet filter under the same name as those of VXLAN.  On the host a routing rule leads what comes
from pods through a table of its own; the host's main table, by which the host itself reaches
machines, stays as it is.

For the backend ``none`` the table leads to this host's machines only: what is for others follows
the routes of the administrator.

Both lead IPv4 only: a host that forwards IPv6 stops accepting router advertisements, by which it
may have its own address.
"""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import msgspec

from corral import files
from corral.node.host.proc import boot_id
from corral.node.network import netlink
from corral.node.network.namespace_nft_rules import OVERLAY_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import (
    Address,
    Link,
    Netlink,
    Network,
    NetworkError,
    get_sysctl,
    set_sysctl,
)
from corral.node.network.peers import Peer, mac_of, tunnel_address
from corral.node.network.pod_routes import (
    arrived,
    guarded,
    is_within,
    local_addresses,
    sync_addresses,
    sync_routes,
)

TABLE: Final = 244
"""The routing table of pods on the host, shared by its corrals; ranges keep them apart."""
RULE_PRIORITY: Final = 5244
"""After that of local addresses, before those of the main table."""
PREFIX: Final = "corralgw"
_INNER_ALIAS: Final = "corral host-gw"
"""Alias of the link's end in the machine namespace; a VXLAN device has none."""
_OUTER_ALIAS: Final = "corral host-gw of "
"""Begins the alias of its end on the host, before the data directory."""
_NEXT_HOP: Final = IPv4Address("169.254.1.1")
"""Next hop in the machine namespace: a fixed neighbour, for which the host needs no address."""
_FORWARDING: Final = "forwarding.json"


class _Forwarding(msgspec.Struct):
    """The record of links of the host that did not forward before."""

    boot: str
    links: set[str]


class HostGateway:
    """The link of a machine namespace to the host's routes, and those routes.

    ``routes_peers``: whether this host leads to other hosts, or its administrator does.
    """

    def __init__(
        self,
        directory: Path,
        machines: Namespace,
        *,
        address: Address,
        pod_cidrs: Sequence[Network],
        routes_peers: bool,
    ) -> None:
        self._directory = directory
        self._name = link_name(directory)
        self._machines = machines
        self._host = Namespace.current()
        self._address = address
        self._pod_cidrs: Sequence[Network] = [each for each in pod_cidrs if each.version == 4]
        self._routes_peers = routes_peers

    async def apply(
        self,
        own: Peer,
        peers: Mapping[Address, Peer],
        gone: Collection[Peer] = (),
        left: Collection[Network] = (),
    ) -> None:
        """Sync the link and the routes with the peers.  Raises NetworkError."""
        del gone  # routes are compared with those that are there
        if self._routes_peers and self._address.version != 4:
            raise NetworkError(
                f"host-gw leads IPv4, and this host's address is {self._address}",
                "Choose --network-backend vxlan in corral up.",
            )
        own, known = own.of({4}), [each.of({4}) for each in peers.values()]
        if not self._routes_peers:
            known = [replace(each, moved=()) for each in known]
        await self._host.call(self._require_own_ranges)
        await self._host.call(self._ensure_pair)
        local = await self._machines.call(_local_addresses, left)
        here = arrived(own, local)
        known = [replace(each, moved=tuple({*each.moved} - local)) for each in known]
        # The host first: it must not lead back what the machine namespace leads to it.
        failure = await self._host.call(self._apply_on_host, own, known, here)
        await self._machines.call(self._apply_inside, own, known, left)
        if failure is not None:  # one host elsewhere must not cost the others their routes
            raise failure

    def _require_own_ranges(self) -> None:
        """On the host: raise NetworkError if another corral leads to the same pods.

        Each would delete the routes of the other as stale ones.
        """
        with netlink.opened() as link:
            present = link.links()
            for route, device in link.routes(4, table=TABLE):
                other = present.get(device)
                if other is None or not device.startswith(PREFIX) or device == self._name:
                    continue
                if any(route.overlaps(each) for each in self._pod_cidrs):
                    directory = other.alias.removeprefix(_OUTER_ALIAS)
                    raise NetworkError(
                        f"another corral of this host ({directory or device}) leads to {route}",
                        "End one of the two (corral down), and start it with other ranges: "
                        "--pod-cidr.",
                    )

    def _ensure_pair(self) -> None:
        """On the host: create the veth pair unless both ends are there."""
        with netlink.opened() as link:
            lower = link_with(link, self._address)
            if link.index(self._name) and self._machines.run(inner_alias) == _INNER_ALIAS:
                return
            link.delete(self._name)
            self._machines.run(_remove_inner)  # maybe the device of another backend
            link.add_veth(
                self._name,
                peer=OVERLAY_LINK,
                peer_namespace=self._machines.descriptor,
                mtu=lower.mtu,
                mac=self._outer_mac,
                peer_mac=mac_of(self._address),
            )

    @property
    def _outer_mac(self) -> str:
        return mac_of(self._address, "host")

    def _apply_inside(
        self,
        own: Peer,
        peers: Sequence[Peer],
        left: Collection[Network],
    ) -> None:
        """In the machine namespace: lead the ranges of peers to the host."""
        with netlink.opened() as link:
            link.change(OVERLAY_LINK, alias=_INNER_ALIAS)
            sync_addresses(link, own.ranges)
            link.add_neighbour(OVERLAY_LINK, _NEXT_HOP, self._outer_mac)
            led = [each for peer in peers for each in (*peer.ranges, *peer.moved)]
            routes: dict[Network, Address] = dict.fromkeys(led, _NEXT_HOP)
            sync_routes(link, routes, guards=guarded(own), left=left, versions={4})

    def _apply_on_host(
        self, own: Peer, peers: Sequence[Peer], here: Collection[Network]
    ) -> NetworkError | None:
        """On the host: lead packets of pods to this host's machines and to the peers.

        Return the failure for peers that no route can lead to.
        """
        with netlink.opened() as link:
            lower = link_with(link, self._address)
            link.change(
                self._name, alias=f"{_OUTER_ALIAS}{self._directory.parent.absolute()}"[:255]
            )
            _let_forward(self._directory, lower.name)
            set_sysctl(_forwarding(self._name), 1)
            for each in self._pod_cidrs:
                link.add_rule(each, table=TABLE, priority=RULE_PRIORITY)
            routes: dict[Network, tuple[str, Address]] = {}
            for each in own.ranges:
                via = tunnel_address(each)
                link.add_neighbour(self._name, via, mac_of(self._address))
                routes[each] = (self._name, via)
            near, far = self._by_distance(link, lower, peers)
            routes |= {each: (lower.name, peer.address) for peer in near for each in peer.ranges}
            # After the ranges: an address that has moved is its machine's, whoever claims it.
            routes |= {each: (lower.name, peer.address) for peer in near for each in peer.moved}
            if (inner := own.gateway(4)) is not None:
                routes |= dict.fromkeys(here, (self._name, inner))
            self._replace_routes(link, routes)
        if not far:
            return None
        return NetworkError(
            f"{', '.join(far)} is not on the link {lower.name}, so host-gw cannot lead there",
            "Choose --network-backend vxlan in corral up, or none with routes of your own.",
        )

    def _by_distance(
        self, link: Netlink, lower: Link, peers: Sequence[Peer]
    ) -> tuple[Sequence[Peer], Sequence[str]]:
        """Return the peers to route to, and the addresses of those behind a router.

        A router does not know the pod ranges.
        """
        if not self._routes_peers:
            return (), ()
        networks = [each.network for each in link.addresses(lower.name)]
        near: list[Peer] = []
        far: list[str] = []
        for each in peers:
            if any(each.address in network for network in networks):
                near.append(each)
            else:
                far.append(str(each.address))
        return near, sorted(far)

    def _replace_routes(self, link: Netlink, routes: Mapping[Network, tuple[str, Address]]) -> None:
        """Have these routes in the table, each by a link and a next hop, and no others of pods."""
        for stale, device in link.routes(4, table=TABLE):
            if stale not in routes and any(is_within(stale, each) for each in self._pod_cidrs):
                link.delete_route(stale, link=device, table=TABLE)
        for each, (name, via) in routes.items():
            on_link = name == self._name
            link.add_route(each, link=name, via=via, on_link=on_link, table=TABLE)


def link_name(directory: Path) -> str:
    """Return the name of a data directory's link on the host."""
    digest = hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()
    return f"{PREFIX}{digest[:7]}"


def remove(directory: Path) -> None:
    """On the host: remove the link of a data directory, and with the last one all else."""
    with netlink.opened() as link:
        link.delete(link_name(directory))
        if not any(name.startswith(PREFIX) for name in link.links()):
            for rule in link.rules(4, TABLE):
                link.delete_rule(rule, table=TABLE)
            for each, device in link.routes(4, table=TABLE):
                link.delete_route(each, link=device, table=TABLE)
            _restore_forwarding(directory, link)
    (directory / _FORWARDING).unlink(missing_ok=True)


def _let_forward(directory: Path, name: str) -> None:
    """Let a link of the host forward, after a record of links that did not."""
    if get_sysctl(_forwarding(name)) != "0":
        return
    path, boot = directory / _FORWARDING, boot_id()
    record = files.read_json(path, _Forwarding)
    if record is None or record.boot != boot:
        record = _Forwarding(boot, set())
    record.links.add(name)
    files.replace(path, msgspec.json.encode(record))
    set_sysctl(_forwarding(name), 1)


def _restore_forwarding(directory: Path, link: Netlink) -> None:
    """Switch off what ``_let_forward`` has switched on.

    A host that forwards by ``ip_forward`` now has become a router for somebody else, for instance
    Docker, which needs the links.
    """
    record = files.read_json(directory / _FORWARDING, _Forwarding)
    if record is None or record.boot != boot_id() or get_sysctl("ipv4/ip_forward") != "0":
        return
    for name in record.links & link.links().keys():
        set_sysctl(_forwarding(name), 0)


def _forwarding(name: str) -> str:
    return f"ipv4/conf/{name}/forwarding"


def link_with(link: Netlink, address: Address) -> Link:
    """Return the link of this host that has an address.  Raises NetworkError."""
    for each in link.links().values():
        if address in {one.ip for one in link.addresses(each.name)}:
            return each
    raise NetworkError(
        f"no interface of this host has the address {address}",
        "Choose the address by which other hosts reach this one: corral up --bind, or corral join "
        "--address.",
    )


def _local_addresses(left: Collection[Network]) -> set[Network]:
    with netlink.opened() as link:
        return local_addresses(link, {4}, left)


def inner_alias() -> str:
    """In the machine namespace: return the alias of the link to other hosts; empty without one."""
    with netlink.opened() as link:
        found = link.links().get(OVERLAY_LINK)
        return found.alias if found is not None else ""


def remove_links(directory: Path, machines: Namespace) -> None:
    """On the host: remove the link to other hosts, whatever the backend, and its rules."""
    remove(directory)
    machines.run(_remove_inner)


def _remove_inner() -> None:
    """In the machine namespace: remove the link to other hosts, whatever the backend."""
    with netlink.opened() as link:
        link.delete(OVERLAY_LINK)
