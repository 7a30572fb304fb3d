"""The network of a data directory's machines: one namespace, which outlives the manager.

Every pod is routed in it, so that whatever goes between pods, Services and the world passes its
packet filter.  Nothing of the host is changed, but for a link and its routes where root runs this.
"""

import asyncio
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
from corral.node.host.process import Process, runs
from corral.node.network import antispoof, host_link, namespace_holder, netlink, nft
from corral.node.network.egress import Outward
from corral.node.network.helper_processes import Helper, endless
from corral.node.network.host_link import HostLink
from corral.node.network.ingress import Inbound
from corral.node.network.namespace_nft_rules import TABLE, rules
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Address, Network, NetworkError
from corral.node.network.netlink_watch import follow, leave, notices
from corral.node.network.repair import Healing

USER: Final = "QEMU's user network: machines have no addresses of their own"
TUN: Final = Path("/dev/net/tun")
CONNECT_SECONDS: Final = 10.0
_GUARD: Final = f"inet {antispoof.TABLE}"
Connection = socket.socket  # in MachineNetwork ``socket`` is a method
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}

_SYSCTLS: Final = {
    4: (
        ("ipv4/ip_forward", 1),  # first: it sets others back
        *(
            (f"ipv4/conf/{which}/{name}", 0)
            for which in ("all", "default")
            for name in ("rp_filter", "accept_redirects", "send_redirects")
        ),
    ),
    6: (
        ("ipv6/conf/all/forwarding", 1),
        *(
            (f"ipv6/conf/{which}/{name}", 0)
            for which in ("all", "default")
            for name in ("disable_ipv6", "accept_ra", "accept_redirects")
        ),
    ),
}


def families() -> tuple[int, ...]:
    """The IP versions that machines have: 4, and 6 where the host has it."""
    switch = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    with suppress(OSError):
        return (4, 6) if switch.read_text(encoding="ascii").strip() == "0" else (4,)
    return (4,)


class MachineNetwork:
    """The machine namespace, with what leads into it and out of it.

    ``pod_cidrs`` and ``service_cidrs`` hold a range for each IP version at most, that of IPv4
    first.  ``allowed`` is what guests may reach though it is a host's own (``destinations``).
    ``on_change`` is called when ``problems`` answers something new.
    """

    def __init__(
        self,
        directory: Path,
        *,
        pod_cidrs: Sequence[Network],
        service_cidrs: Sequence[Network],
        allowed: Sequence[Network] = (),
    ) -> None:
        self.families = tuple(
            each for each in families() if each in {cidr.version for cidr in pod_cidrs}
        )
        self.pod_cidrs = tuple(each for each in pod_cidrs if each.version in self.families)
        self.service_cidrs = tuple(each for each in service_cidrs if each.version in self.families)
        self.gateways: tuple[Address, ...] = tuple(each[1] for each in self.pod_cidrs)
        self._allowed = allowed
        self._directory = directory
        self.on_change: Callable[[], None] = lambda: None
        self._namespace: Namespace | None = None
        self._holder = Helper(
            "the holder of the namespace", directory / "holder", self._hold, changed=self._changed
        )
        self._outward: Outward | None = None
        self._inbound: Inbound | None = None
        self._host: HostLink | None = None
        self._rules = ""
        self._others: list[Callable[[], None]] = []
        self._mending = Health("the machine network", self._changed)
        self._healing = Healing(
            self._mending, put_back=self._put_back, look_at_host=self._look_at_host
        )
        self._refused: NetworkError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether ``prepare`` has come back well."""
        return self._outward is not None

    @property
    def namespace(self) -> Namespace:
        """The machine namespace; once ``prepare`` has come back."""
        assert self._namespace is not None, "the network has not been prepared"
        return self._namespace

    @property
    def inbound(self) -> Inbound:
        """The host's ports that lead in; once ``prepare`` has come back."""
        assert self._inbound is not None, "the network has not been prepared"
        return self._inbound

    @property
    def gateway(self) -> IPv4Address:
        """Where machines find the way out, DNS and the API."""
        first = self.gateways[0]
        assert isinstance(first, IPv4Address)
        return first

    def join(self, others: Iterable[Path] = ()) -> None:
        """Enter the namespace in which who is not root may have a network (``holder.join``).

        Where that is refused, ``prepare`` says so.
        """
        try:
            namespace_holder.join(self._directory / "holder", [*_helpers(self._directory), *others])
        except NetworkError as error:
            self._refused = error

    async def prepare(self) -> None:
        """Make the network, or find it again and put it right.  Raises NetworkError."""
        try:
            if self._refused is not None:
                raise self._refused
            _require()
            self._namespace = await self._find() or await self._make()
            await self.namespace.call(self._furnish)
        except NetworkError as error:
            self._refused = error
            raise
        place, inside, changed = self._directory, self._namespace, self._changed
        self._outward = Outward(place / "outward", inside, self.families, changed=changed)
        self._inbound = Inbound(place / "inbound", inside, changed=changed)
        if os.geteuid() == 0:
            self._host = HostLink(place, inside, [*self.pod_cidrs, *self.service_cidrs])
            await self._host.ensure()

    def refuse(self, error: NetworkError) -> None:
        """Let it be told that machines cannot use it, and why."""
        self._refused = error

    async def run(self) -> None:
        """Keep it right until cancelled: what ends is started again, what is removed is put back.

        All of it stays when this ends.
        """
        assert self._outward is not None
        told = await self._notices()
        try:
            for each in told:
                follow(each, self._healing.lost)
            async with Background() as tasks:
                tasks.start(self._holder.run(), name="network holder")
                tasks.start(self._outward.run(), name="outward")
                tasks.start(self.inbound.run(), name="inbound")
                obstructed = self._host is not None and bool(self._host.problems)
                healing = self._healing.run(obstructed=obstructed)
                await tasks.start(healing, name="network healing")
        finally:
            for each in told:
                leave(each)
            for helper in (self._holder, self._outward):
                helper.release()

    def when_lost(self, look_again: Callable[[], None]) -> None:
        """Call this when something was removed: who has a table of rules, it may be theirs."""
        self._others.append(look_again)

    async def _notices(self) -> Sequence[Connection]:
        try:
            return await self.namespace.call(notices)
        except NetworkError as error:
            self._mending.say(f"what is removed is not noticed: {error.told}")
            return ()

    async def _put_back(self) -> None:
        assert self._outward is not None
        await self.namespace.call(self._furnish)
        for look_again in (*self._others, self.inbound.look_again):
            look_again()
        await self._outward.look_again()

    async def _look_at_host(self) -> bool:
        """Make what is missing of the host's link; whether something stands in its way."""
        if self._host is None:
            return False
        before = self._host.problems
        await self._host.ensure()
        if self._host.problems != before:
            self._changed()
        return bool(self._host.problems)

    def close(self) -> None:
        """Let go of it; it stays as it is."""
        if self._host is not None:
            self._host.close()
        if self._namespace is not None:
            self._namespace.close()

    def facts(self) -> Mapping[str, str]:
        """For ``corral status``: what the network is, and what is wrong with it."""
        if self._refused is not None:
            return {"network": USER, "reason": "; ".join(self.problems())}
        pods, services = (
            ", ".join(map(str, each)) for each in (self.pod_cidrs, self.service_cidrs)
        )
        return {
            "network": f"machines {pods}; Services {services}",
            "reason": "; ".join(self.problems()),
        }

    def problems(self) -> Sequence[str]:
        """What is wrong, a line each."""
        if self._refused is not None:
            return [self._refused.told]
        found = [self._mending.problem, self._holder.problem]
        found += [self._outward.problem] if self._outward is not None else []
        found += self._inbound.problems() if self._inbound is not None else []
        found += self._host.problems if self._host is not None else []
        return [each for each in found if each]

    def _changed(self) -> None:
        self.on_change()

    async def socket(self, family: int, kind: int) -> Connection:
        """A non-blocking socket that lives in the machine namespace.  Raises OSError."""
        return await self.namespace.call(socket.socket, family, kind | socket.SOCK_NONBLOCK)

    async def bound(self, address: Address, port: int, kind: int = SOCK_STREAM) -> Connection:
        """The same, bound to one of the namespace's own addresses.  Raises OSError."""
        made = await self.socket(_FAMILIES[address.version], kind)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((str(address), port))
        except OSError:
            made.close()
            raise
        return made

    async def connect(self, address: str, port: int) -> Connection:
        """A TCP connection to a pod, or whatever the namespace reaches.

        Raises OSError; TimeoutError after a while without an answer.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        opened = await self.socket(family, socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(opened, (address, port))
        except BaseException:
            opened.close()
            raise
        return opened

    async def _find(self) -> Namespace | None:
        """The namespace that an earlier manager has left."""
        try:
            process = await self._holder.find()
            return None if process is None else Namespace.of_process(process.identity.pid)
        except OSError as error:
            raise NetworkError(
                f"the machine namespace cannot be entered: {describe(error)}"
            ) from error

    async def _make(self) -> Namespace:
        await remove(self._directory)  # what may still serve a namespace that nobody holds
        try:
            self._namespace = Namespace.create()
        except OSError as error:
            raise NetworkError(
                f"no network namespace can be made: {error.strerror}",
                "Run corral where network namespaces are allowed (CAP_SYS_ADMIN).",
            ) from error
        await self._holder.ensure()
        return self._namespace

    async def _hold(self, descriptors: Sequence[int], output: int) -> int:
        return await namespace_holder.start(self.namespace, descriptors, output)

    def _furnish(self) -> None:
        """Inside: addresses, routes and rules, whatever of them is there already."""
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
                # Our own packets need some route before the Service's endpoint is drawn.
                link.add_route(cidr, link="lo", source=gateway)
        if not self._rules or self._rules != _present_rules():
            nft.apply(rules(self.gateways, self._allowed) + antispoof.machine_rules())
            # Only the first time: later ones are mends, and what was mended may be damaged again.
            self._rules = self._rules or _present_rules()


def _present_rules() -> str:
    """The own table and the pods' guard as the kernel has them; empty where one is not there."""
    try:
        return "".join(nft.ask(f"list table {each}", members=False) for each in (TABLE, _GUARD))
    except NetworkError:
        return ""


def _require() -> None:
    """Raises NetworkError for what this host lacks."""
    if reason := nft.missing():
        raise NetworkError(reason, "Install it: apt-get install libnftables1")
    if not TUN.exists():
        raise NetworkError(f"{TUN} is missing", "Load it as root: modprobe tun")
    if not os.access(TUN, os.R_OK | os.W_OK):
        raise NetworkError(f"{TUN} cannot be opened", f"Allow it as root: chmod 0666 {TUN}")


async def remove(directory: Path) -> None:
    """End whatever runs for the network of a data directory.

    The kernel then removes the namespace, and with it all links, routes and rules, as soon as no
    machine is in one of its own that leads there.  Raises NetworkError for what does not go.
    """
    for each in _helpers(directory):
        running = await Process.adopt(each) if runs(each) else None
        if running is not None and not await running.end():
            raise endless(each.name, running)
    if os.geteuid() == 0 and directory.is_dir():  # noqa: ASYNC240
        await host_link.remove(directory)


def _helpers(directory: Path) -> Sequence[Path]:
    """The directories of what runs for a network."""
    return sorted(directory.glob("*/"))
