"""Networks of pods: created, adopted after a restart, repaired, closed.

``pod_layout`` plans what is configured here; each step accepts what exists already.  A pod's
namespace lives as long as the QEMU in it runs or this process holds its descriptor; the kernel then
removes its links, rules and routes.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Protocol, TypeVar, TypeVarTuple

import structlog

from corral.aio import Background, own_thread
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.node.network import dhcp, netlink
from corral.node.network.attachment import PodReference
from corral.node.network.guest_link import (
    PodNetwork,
    configure_link,
    ensure_bridge,
    open_guest_end,
    repair_guest_end,
    set_sysctls,
)
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import Address, NetworkError
from corral.node.network.pod_layout import (
    Layout,
    PodNetworkSettings,
    families,
    link_name,
    plan,
)

_RTMGRP_LINK = 1
_RECEIVE_BYTES = 1 << 16
_DEBOUNCE_SECONDS = 0.5
"""Many links are added and removed together: one check handles all."""
_CONCURRENCY = 2
"""Namespaces that are configured concurrently: the kernel changes one link at a time anyway."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger()


class OtherHosts(Protocol):
    """The ways to other hosts, which follow an address when its machine moves."""

    def lead(self, addresses: Iterable[Address], node: str, pod: Key) -> None:
        """Lead the addresses of a machine that leaves to another node, while its new pod lives."""

    def forget(self, addresses: Iterable[Address]) -> None:
        """Undo ``lead``."""

    def arrived(self, addresses: Iterable[Address]) -> None:
        """Lead packets of other hosts to a machine that has come from there."""

    async def give_back(self, addresses: Iterable[Address]) -> None:
        """Lead addresses to where the API shows them: the machine that has them here ends."""

    def links_changed(self) -> None:
        """Sync with the links of pods, which have changed."""


class LinkedPodNetwork(PodNetwork):
    """The network of a pod whose interface is a link to the machine namespace."""

    def __init__(self, namespace: Namespace, layout: Layout) -> None:
        super().__init__(namespace, layout)
        self.layout = layout


class PodNetworks:
    """The pod networks in the machine namespace."""

    def __init__(self, machine: Namespace, settings: PodNetworkSettings) -> None:
        self._machine = machine
        self._settings = settings
        self._pods: dict[str, LinkedPodNetwork] = {}
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)
        self.routing = asyncio.Lock()
        """Held while routes to an address change from one link to another."""
        self.other_hosts: OtherHosts | None = None

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        """Return the IP versions that the pod of a VMI needs addresses of."""
        return families(vmi)

    async def allocate(
        self,
        owner: str,
        pod: PodReference,
        vmi: VirtualMachineInstance,
        ranges: Sequence[str],
    ) -> None:
        """Return None: addresses are of the node's ranges."""

    async def run(self) -> None:
        """Send router advertisements, and restore links that are removed, until cancelled."""
        try:
            async with Background() as tasks:
                tasks.start(dhcp.advertise(self._responders), name="router advertisements")
                await tasks.start(self._watch_links(), name="links of pods")
        finally:
            self.close()

    async def attach(
        self, owner: str, vmi: VirtualMachineInstance, addresses: Iterable[str], *, held: bool
    ) -> PodNetwork:
        """Create the network of a VMI that is about to start.  Raises NetworkError.

        held: nothing leads to it until ``take_over``.
        """
        if owner not in self._pods:
            layout = self._plan(owner, vmi, addresses, held=held)
            if self.other_hosts is not None and not held:
                self.other_hosts.forget(layout.addresses)
            self._pods[owner] = await self._in_thread(_create, self._machine, layout)
        self._pods[owner].start_responder()
        return self._pods[owner]

    def _plan(
        self, owner: str, vmi: VirtualMachineInstance, addresses: Iterable[str], *, held: bool
    ) -> Layout:
        layout = plan(vmi, _parsed(addresses), self._settings, link=link_name(owner))
        return layout.held() if held else layout

    async def adopt(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Iterable[str],
        pid: int,
        *,
        held: bool,
    ) -> PodNetwork:
        """Adopt and repair the network of a VMI whose QEMU runs already.  Raises NetworkError."""
        if owner not in self._pods:
            layout = self._plan(owner, vmi, addresses, held=held)
            self._pods[owner] = await self._in_thread(_adopt, self._machine, layout, pid)
        self._pods[owner].start_responder()
        return self._pods[owner]

    async def take_over(self, owner: str) -> None:
        """Lead the addresses of a network that was held to it.  Raises NetworkError.

        Routes and neighbours replace those of the machine that had the addresses, if it is here.
        """
        if (network := self._pods.get(owner)) is None:
            raise NetworkError("the pod's network could not be adopted")
        async with self.routing:
            if network.layout.later is None:
                return
            await self._machine.call(_configure_machine_end, network.layout.whole())
            network.layout = network.layout.whole()
        for other in self._pods.values():
            if other is not network and other.layout.addresses == network.layout.addresses:
                other.layout = other.layout.held()
        if self.other_hosts is not None:
            self.other_hosts.arrived(network.layout.addresses)

    def let_go(self, owner: str, addresses: Iterable[str], node: str, pod: Key) -> None:
        """Lead the addresses of a machine that migrates to its new node and pod."""
        if (network := self._pods.get(owner)) is not None:
            network.layout = network.layout.held()
        if self.other_hosts is not None:
            self.other_hosts.lead(_parsed(addresses), node, pod)

    async def give_back(self, owner: str, addresses: Iterable[str]) -> None:
        """Undo ``take_over``, also an earlier manager's.  Raises NetworkError.

        A namespace that ends loses its rules some 30 ms before its links: what is led there
        meanwhile reaches the namespace's own address, which resets the guest's connections.
        """
        desired = _parsed(addresses)
        for other, network in self._pods.items():
            if other != owner and network.layout.addresses == desired:
                await self.take_over(other)
                return
        if (own := self._pods.get(owner)) is not None:
            own.layout = own.layout.held()
        led = await self._machine.call(_led_by, link_name(owner), desired)
        if led and self.other_hosts is not None:
            await self.other_hosts.give_back(led)

    def detach(self, owner: str) -> None:
        """Close the network of a machine.

        Addresses that lead to another host do so until the API shows them there.
        """
        if (network := self._pods.pop(owner, None)) is not None:
            network.close()

    def close(self) -> None:
        """Close all networks; those in which QEMU runs stay."""
        for uid in list(self._pods):
            self.detach(uid)

    async def _watch_links(self) -> None:
        """Restore links that somebody has removed; a link that goes with its pod needs nothing."""
        loop = asyncio.get_running_loop()
        with await self._machine.call(_link_notifications) as notifications:
            while True:
                with suppress(OSError):  # ENOBUFS: notifications were dropped
                    await loop.sock_recv(notifications, _RECEIVE_BYTES)
                await asyncio.sleep(_DEBOUNCE_SECONDS)
                with suppress(OSError):
                    while notifications.recv(_RECEIVE_BYTES):
                        pass
                try:
                    await self._repair()
                except (
                    OSError
                ) as error:  # for instance no free descriptor; the next notification retries
                    log.warning("links of pods cannot be repaired", error=str(error))
                if self.other_hosts is not None:
                    self.other_hosts.links_changed()

    async def _repair(self) -> None:
        present = await self._machine.call(_link_names)
        for uid, network in list(self._pods.items()):
            if network.layout.machine_end.name in present or self._pods.get(uid) is not network:
                continue
            log.warning("the link of a pod was removed and is created again", uid=uid)
            try:
                await own_thread(
                    _repair_copy, self._machine, network.duplicate_namespace(), network.layout
                )
            except (NetworkError, OSError) as error:
                log.warning("the link of a pod cannot be created", uid=uid, error=describe(error))

    def _responders(self) -> Sequence[dhcp.Responder]:
        return [
            address.responder for address in self._pods.values() if address.responder is not None
        ]

    async def _in_thread(
        self, function: Callable[[*Ts], LinkedPodNetwork], *arguments: *Ts
    ) -> LinkedPodNetwork:
        """Run a function in a thread.  If the caller is cancelled, the result is closed."""
        async with self._semaphore:
            future = own_thread(function, *arguments)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                future.add_done_callback(_close_abandoned)
                raise
            except OSError as error:
                raise NetworkError(f"the pod's network cannot be created: {error}") from error


def _close_abandoned(future: "asyncio.Future[LinkedPodNetwork]") -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _parsed(addresses: Iterable[str]) -> tuple[Address, ...]:
    return tuple(ip_address(address) for address in addresses)


# -- Functions for threads, which move from one namespace to the next and then end.


def _create(machine: Namespace, layout: Layout) -> LinkedPodNetwork:
    """Create a namespace, and configure all of it."""
    machine.enter()
    _remove(layout.machine_end.name)  # of a former namespace that the kernel has not yet removed
    network = LinkedPodNetwork(Namespace.unshare_thread(), layout)
    try:
        _configure_pod(network, machine.descriptor)
        machine.enter()
        _configure_machine_end(layout)
    except BaseException:
        network.close()
        raise
    return network


def _adopt(machine: Namespace, layout: Layout, pid: int) -> LinkedPodNetwork:
    """Adopt the namespace of a process, and configure what is missing of it."""
    namespace = Namespace.of_process(pid)
    network = LinkedPodNetwork(namespace, layout)
    try:
        _repair(machine, namespace, layout)
        if network.responder is not None:
            namespace.enter()
            network.responder.open()
    except BaseException:
        network.close()
        raise
    return network


def _repair(machine: Namespace, pod: Namespace, layout: Layout) -> None:
    machine.enter()
    has_link = layout.machine_end.name in _link_names()
    pod.enter()
    if not has_link:
        _remove(layout.pod_end.name)
    _repair_pod(layout, machine.descriptor)
    machine.enter()
    _configure_machine_end(layout)


def _repair_copy(machine: Namespace, pod: Namespace, layout: Layout) -> None:
    with pod:
        _repair(machine, pod, layout)


def _remove(link: str) -> None:
    with netlink.opened() as links:
        links.delete(link)


def _led_by(link: str, addresses: Iterable[Address]) -> list[Address]:
    """Return the addresses to which the route is by a link."""
    with netlink.opened() as links:
        routes = {route for version in (4, 6) for route in links.routes(version)}
    return [each for each in addresses if (ip_network(each), link) in routes]


def _link_names() -> set[str]:
    return {name for _index, name in socket.if_nameindex()}


def _link_notifications() -> socket.socket:
    """Return a socket with notifications about links that are added, changed or removed."""
    notifications = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    notifications.bind((0, _RTMGRP_LINK))
    return notifications


def _configure_machine_end(layout: Layout) -> None:
    set_sysctls(layout.machine_sysctls)
    with netlink.opened() as links:
        links.change(layout.machine_end.name)
        configure_link(links, layout.machine_end)


def _configure_pod(network: LinkedPodNetwork, machine: int) -> None:
    with netlink.opened() as links:
        _ensure_links(links, network.layout, machine)
        open_guest_end(links, network, network.layout)


def _repair_pod(layout: Layout, machine: int) -> None:
    """Repair all but the taps, which only QEMU has."""
    with netlink.opened() as links:
        _ensure_links(links, layout, machine)
        repair_guest_end(links, layout)


def _ensure_links(links: netlink.Netlink, layout: Layout, machine: int) -> None:
    ensure_bridge(links, layout)
    end, nic = layout.pod_end, layout.nic
    if not links.index(end.name):
        links.add_veth(
            end.name,
            peer=layout.machine_end.name,
            peer_namespace=machine,
            mtu=layout.mtu,
            mac=end.mac,
            peer_mac=layout.machine_end.mac,
        )
    joins = nic is not None and nic.joins_pod_link
    links.change(end.name, master=nic.bridge.name if nic is not None and joins else None)
    configure_link(links, end)
