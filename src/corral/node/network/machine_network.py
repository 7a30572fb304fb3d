"""The network of all machines of a data directory: one namespace, which outlives the manager.

It routes between all pods, so its nftables rules see all packets between pods, Services and the
outside.  On the host nothing is changed, except for a link and its routes if corral runs as root.
"""

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, ip_interface
from pathlib import Path
from socket import SOCK_STREAM
from typing import Final

from corral.aio import Background
from corral.failures import describe
from corral.node.health import Health
from corral.node.host.proc import runs
from corral.node.host.process import Process
from corral.node.network import (
    antispoof,
    host_gateway,
    host_link,
    namespace_holder,
    netlink,
    nft,
    wireguard_userspace,
)
from corral.node.network.connections import Connection, Connections
from corral.node.network.egress import Egress
from corral.node.network.helper_processes import Helper, unkillable
from corral.node.network.host_link import HostLink
from corral.node.network.ingress import PortForwarder
from corral.node.network.namespace_nft_rules import TABLE, rules
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Address, Network, NetworkError
from corral.node.network.netlink_watch import open_notification_sockets, unwatch, watch
from corral.node.network.repair import NetworkRepair

USER_NETWORK: Final = "QEMU's user network: machines have no addresses of their own"
TUN: Final = Path("/dev/net/tun")
_GUARD: Final = f"inet {antispoof.TABLE}"
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}

_SYSCTLS: Final = {
    4: (
        ("ipv4/ip_forward", 1),  # first: it resets others
        *(
            (f"ipv4/conf/{scope}/{name}", 0)
            for scope in ("all", "default")
            for name in ("rp_filter", "accept_redirects", "send_redirects")
        ),
    ),
    6: (
        ("ipv6/conf/all/forwarding", 1),
        *(
            (f"ipv6/conf/{scope}/{name}", 0)
            for scope in ("all", "default")
            for name in ("disable_ipv6", "accept_ra", "accept_redirects")
        ),
    ),
}

LIBERAL: Final = "netfilter/nf_conntrack_tcp_be_liberal"
"""Accepts TCP packets outside of the window that was seen here.

A machine that comes back to this host has gone on with its connections elsewhere.  A namespace that
is not root's may not have this sysctl; nor are there other hosts then.
"""


def families() -> tuple[int, ...]:
    """Return the IP versions of machines: 4, and 6 if the host has it."""
    switch = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    with suppress(OSError):
        return (4, 6) if switch.read_text(encoding="ascii").strip() == "0" else (4,)
    return (4,)


class MachineNetwork(Connections):
    """The machine namespace, with its links to the host and the outside.

    ``pod_cidrs`` and ``service_cidrs`` have at most one range for each IP version, IPv4 first.
    ``allowed`` are the ranges of the host that guests may reach (``destinations``).
    ``has_foreign_routes``: whether an administrator leads parts of ``pod_cidrs`` to other hosts.
    ``on_change`` is called when ``problems()`` changes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        pod_cidrs: Sequence[Network],
        service_cidrs: Sequence[Network],
        allowed: Sequence[Network] = (),
        has_foreign_routes: bool = False,
    ) -> None:
        self.families = tuple(
            each for each in families() if each in {cidr.version for cidr in pod_cidrs}
        )
        self.pod_cidrs = tuple(each for each in pod_cidrs if each.version in self.families)
        self.service_cidrs = tuple(each for each in service_cidrs if each.version in self.families)
        self.gateways: tuple[Address, ...] = tuple(each[1] for each in self.pod_cidrs)
        self._allowed = allowed
        self._has_foreign_routes = has_foreign_routes
        self._directory = directory
        self.on_change: Callable[[], None] = lambda: None
        self._namespace: Namespace | None = None
        self._holder = Helper(
            "the holder of the namespace",
            directory / "holder",
            self._start_holder,
            on_change=self._notify_change,
        )
        self._egress: Egress | None = None
        self._port_forwarder: PortForwarder | None = None
        self._host: HostLink | None = None
        self._rules = ""
        self._loss_callbacks: list[Callable[[], None]] = []
        self._repair_health = Health("the machine network", self._notify_change)
        self._repair = NetworkRepair(
            self._repair_health, restore=self._restore, check_host_link=self._check_host_link
        )
        self._unusable: NetworkError | None = None

    @property
    def is_ready(self) -> bool:
        """True if ``prepare`` has succeeded."""
        return self._egress is not None

    @property
    def namespace(self) -> Namespace:
        """The machine namespace; only after ``prepare``."""
        assert self._namespace is not None, "the network has not been prepared"
        return self._namespace

    @property
    def port_forwarder(self) -> PortForwarder:
        """Forwards ports of the host; only after ``prepare``."""
        assert self._port_forwarder is not None, "the network has not been prepared"
        return self._port_forwarder

    @property
    def gateway(self) -> IPv4Address:
        """The IPv4 address of the gateway, DNS and the API for machines."""
        first = self.gateways[0]
        assert isinstance(first, IPv4Address)
        return first

    def join(self, others: Iterable[Path] = ()) -> None:
        """Enter the user namespace of the network, without root (``namespace_holder.join``).

        If that fails, ``prepare`` raises the error.
        """
        try:
            namespace_holder.join(
                self._directory / "holder", [*_helper_directories(self._directory), *others]
            )
        except NetworkError as error:
            self._unusable = error

    async def prepare(self) -> None:
        """Create the network, or adopt and repair the existing one.  Raises NetworkError."""
        try:
            if self._unusable is not None:
                raise self._unusable
            _require_host_support()
            self._namespace = await self._find() or await self._create()
            await self.namespace.call(self._configure)
        except NetworkError as error:
            self._unusable = error
            raise
        directory, namespace, on_change = self._directory, self._namespace, self._notify_change
        self._egress = Egress(directory / "outward", namespace, self.families, on_change=on_change)
        self._port_forwarder = PortForwarder(directory / "inbound", namespace, on_change=on_change)
        if os.geteuid() == 0:
            self._host = HostLink(
                directory,
                namespace,
                [*self.pod_cidrs, *self.service_cidrs],
                foreign=self.pod_cidrs if self._has_foreign_routes else (),
            )
            await self._host.ensure()

    def mark_unusable(self, error: NetworkError) -> None:
        """Report that machines cannot use the network, and why."""
        self._unusable = error

    async def run(self) -> None:
        """Restart what ends and restore what is removed, until cancelled.

        The network stays when this ends.
        """
        assert self._egress is not None
        sockets = await self._open_notification_sockets()
        try:
            for each in sockets:
                watch(each, self._repair.notify_loss)
            async with Background() as tasks:
                tasks.start(self._holder.run(), name="network holder")
                tasks.start(self._egress.run(), name="outward")
                tasks.start(self.port_forwarder.run(), name="inbound")
                obstructed = self._host is not None and bool(self._host.problems)
                repair = self._repair.run(obstructed=obstructed)
                await tasks.start(repair, name="network healing")
        finally:
            for each in sockets:
                unwatch(each)
            for helper in (self._holder, self._egress):
                helper.release()

    def on_loss(self, callback: Callable[[], None]) -> None:
        """Register a callback for removals: the removed object may belong to its table of rules."""
        self._loss_callbacks.append(callback)

    async def _open_notification_sockets(self) -> Sequence[Connection]:
        try:
            return await self.namespace.call(open_notification_sockets)
        except NetworkError as error:
            self._repair_health.report(
                f"removed parts of the network are not noticed: {error.full_message}"
            )
            return ()

    async def _restore(self) -> None:
        assert self._egress is not None
        await self.namespace.call(self._configure)
        for callback in (*self._loss_callbacks, self.port_forwarder.resync):
            callback()
        await self._egress.resync()

    async def _check_host_link(self) -> bool:
        """Create what is missing of the host's link; return whether other routes obstruct it."""
        if self._host is None:
            return False
        before = self._host.problems
        await self._host.ensure()
        if self._host.problems != before:
            self._notify_change()
        return bool(self._host.problems)

    def close(self) -> None:
        """Close the descriptors; the network stays."""
        if self._host is not None:
            self._host.close()
        if self._namespace is not None:
            self._namespace.close()

    def facts(self) -> Mapping[str, str]:
        """Return the network and its problems, for ``corral status``."""
        if self._unusable is not None:
            return {"network": USER_NETWORK, "reason": "; ".join(self.problems())}
        pods, services = (
            ", ".join(map(str, each)) for each in (self.pod_cidrs, self.service_cidrs)
        )
        return {
            "network": f"machines {pods}; Services {services}",
            "reason": "; ".join(self.problems()),
        }

    def problems(self) -> Sequence[str]:
        """Return the problems, a line each."""
        if self._unusable is not None:
            return [self._unusable.full_message]
        problems = [self._repair_health.problem, self._holder.problem]
        problems += [self._egress.problem] if self._egress is not None else []
        problems += self._port_forwarder.problems() if self._port_forwarder is not None else []
        problems += self._host.problems if self._host is not None else []
        return [each for each in problems if each]

    def _notify_change(self) -> None:
        self.on_change()

    async def socket(self, family: int, kind: int) -> Connection:
        """Return a non-blocking socket in the machine namespace.  Raises OSError."""
        return await self.namespace.call(socket.socket, family, kind | socket.SOCK_NONBLOCK)

    async def bound(self, address: Address, port: int, kind: int = SOCK_STREAM) -> Connection:
        """Return a socket that is bound to one of the namespace's own addresses.

        Raises OSError.
        """
        created = await self.socket(_FAMILIES[address.version], kind)
        try:
            created.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            created.bind((str(address), port))
        except OSError:
            created.close()
            raise
        return created

    async def _find(self) -> Namespace | None:
        """Return the namespace that an earlier manager has created, if its holder runs."""
        try:
            process = await self._holder.find()
            return None if process is None else Namespace.of_process(process.identity.pid)
        except OSError as error:
            raise NetworkError(
                f"the machine namespace cannot be entered: {describe(error)}"
            ) from error

    async def _create(self) -> Namespace:
        await remove(self._directory)  # helpers of a namespace whose holder is gone
        try:
            self._namespace = Namespace.create()
        except OSError as error:
            raise NetworkError(
                f"no network namespace can be created: {error.strerror}",
                "Run corral where network namespaces are allowed (CAP_SYS_ADMIN).",
            ) from error
        await self._holder.ensure()
        return self._namespace

    async def _start_holder(self, descriptors: Sequence[int], output: int) -> int:
        return await namespace_holder.start(self.namespace, descriptors, output)

    def _configure(self) -> None:
        """Set the sysctls, addresses, routes and rules inside, as far as they are missing."""
        for version in self.families:
            for name, value in _SYSCTLS[version]:
                netlink.set_sysctl(name, value)
        with netlink.opened() as link:
            link.change("lo")
            for gateway in self.gateways:
                link.add_address("lo", ip_interface(gateway))
            for cidr in self.pod_cidrs:
                link.add_route(cidr)
            for cidr, gateway in zip(self.service_cidrs, self.gateways, strict=False):
                # A packet of ours needs a route before DNAT picks the Service's endpoint.
                link.add_route(cidr, link="lo", source=gateway)
        if not self._rules or self._rules != _observed_rules():
            table = rules(self.gateways, self._allowed, pod_cidrs=self.pod_cidrs)
            nft.apply(table + antispoof.machine_rules())
            if (netlink.SYSCTL / LIBERAL).exists():
                netlink.set_sysctl(LIBERAL, 1)
            # Only the first time: this is the reference, and a repaired table may be damaged again
            # before it is read.
            self._rules = self._rules or _observed_rules()


def _observed_rules() -> str:
    """Return our table and the pods' guard as the kernel has them; empty if one is missing."""
    try:
        return "".join(nft.query(f"list table {each}", members=False) for each in (TABLE, _GUARD))
    except NetworkError:
        return ""


def _require_host_support() -> None:
    """Raise NetworkError for what this host lacks."""
    if reason := nft.unavailable_reason():
        raise NetworkError(reason, "Install it: apt-get install libnftables1")
    if not TUN.exists():
        raise NetworkError(f"{TUN} is missing", "Load it as root: modprobe tun")
    if not os.access(TUN, os.R_OK | os.W_OK):
        raise NetworkError(f"{TUN} cannot be opened", f"Allow it as root: chmod 0666 {TUN}")


async def remove(directory: Path) -> None:
    """End the helper processes of a data directory's network.

    The kernel then removes the namespace with all its links, routes and rules as soon as no machine
    is in a pod namespace that links to it. Raises NetworkError for processes that do not end.
    """
    for each in _helper_directories(directory):
        running = await Process.adopt(each) if runs(each) else None
        if running is not None and not await running.end():
            raise unkillable(each.name, running)
    if os.geteuid() == 0 and directory.is_dir():  # noqa: ASYNC240
        await host_link.remove(directory)
        with Namespace.current() as host:
            await host.call(host_gateway.remove, directory)
        wireguard_userspace.remove(directory)


def _helper_directories(directory: Path) -> Sequence[Path]:
    """Return the directories of the network's helper processes."""
    return sorted(directory.glob("*/"))
