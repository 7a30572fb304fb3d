"""Networks of pods: created, adopted after a restart, repaired, closed.

``pod_layout`` plans what is configured here; each step accepts what exists already.  A pod's
namespace lives as long as the QEMU in it runs or this process holds its descriptor; the kernel then
removes its links, rules and routes.
"""

import asyncio
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import TypeVar, TypeVarTuple

import structlog

from corral.aio import Background, own_thread
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.network import dhcp, netlink, nft
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import SYSCTL, Address, NetworkError
from corral.node.network.pod_layout import (
    Layout,
    LinkConfig,
    PodNetworkSettings,
    families,
    link_name,
    plan,
)

TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000  # linux/if_tun.h
_RTMGRP_LINK = 1
_RECEIVE_BYTES = 1 << 16
_DEBOUNCE_SECONDS = 0.5
"""Many links are added and removed together: one check handles all."""
_CONCURRENCY = 2
"""Namespaces that are configured concurrently: the kernel changes one link at a time anyway."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger()


class PodNetwork:
    """The network of one pod, while its VMI runs.

    ``taps``: descriptors of the guest's tap devices, by the name of the interface; QEMU inherits
    them.  After a restart of the manager only QEMU has them.
    """

    def __init__(self, namespace: Namespace, layout: Layout) -> None:
        self.layout = layout
        self.taps: dict[str, int] = {}
        self.responder = dhcp.Responder(layout.nic.dhcp_link) if layout.nic is not None else None
        self._namespace = namespace
        self._is_responding = False

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in a thread in the pod's namespace."""
        return await self._namespace.call(function, *arguments)

    def duplicate_namespace(self) -> Namespace:
        """Return its namespace with a descriptor of its own, which outlives ``close``."""
        return Namespace(os.dup(self._namespace.descriptor))

    def start_responder(self) -> None:
        """Start to answer the guest's DHCP requests and router solicitations."""
        if self.responder is not None and not self._is_responding:
            self._is_responding = True
            self.responder.start()

    def close(self) -> None:
        """Close the descriptors; the namespace goes once QEMU has ended as well."""
        if self.responder is not None:
            self.responder.close()
        for descriptor in self.taps.values():
            os.close(descriptor)
        self.taps.clear()
        self._namespace.close()


class PodNetworks:
    """The pod networks in the machine namespace."""

    def __init__(self, machine: Namespace, settings: PodNetworkSettings) -> None:
        self._machine = machine
        self._settings = settings
        self._pods: dict[str, PodNetwork] = {}
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        """Return the IP versions that the pod of a VMI needs addresses of."""
        return families(vmi)

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
        network = self._pods[owner]
        before = network.layout
        network.layout = before.whole()
        for other in self._pods.values():
            if other is not network and other.layout.addresses == before.addresses:
                other.layout = other.layout.held()
        await self._machine.call(_configure_machine_end, network.layout)

    def detach(self, owner: str) -> None:
        """Close the network of a machine."""
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
        self, function: Callable[[*Ts], PodNetwork], *arguments: *Ts
    ) -> PodNetwork:
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


def _close_abandoned(future: "asyncio.Future[PodNetwork]") -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _parsed(addresses: Iterable[str]) -> tuple[Address, ...]:
    return tuple(ip_address(address) for address in addresses)


# -- Functions for threads, which move from one namespace to the next and then end.


def _create(machine: Namespace, layout: Layout) -> PodNetwork:
    """Create a namespace, and configure all of it."""
    machine.enter()
    _remove(layout.machine_end.name)  # of a former namespace that the kernel has not yet removed
    network = PodNetwork(Namespace.unshare_thread(), layout)
    try:
        _configure_pod(network, machine.descriptor)
        machine.enter()
        _configure_machine_end(layout)
    except BaseException:
        network.close()
        raise
    return network


def _adopt(machine: Namespace, layout: Layout, pid: int) -> PodNetwork:
    """Adopt the namespace of a process, and configure what is missing of it."""
    namespace = Namespace.of_process(pid)
    network = PodNetwork(namespace, layout)
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


def _link_names() -> set[str]:
    return {name for _index, name in socket.if_nameindex()}


def _link_notifications() -> socket.socket:
    """Return a socket with notifications about links that are added, changed or removed."""
    notifications = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    notifications.bind((0, _RTMGRP_LINK))
    return notifications


def _configure_machine_end(layout: Layout) -> None:
    _set_sysctls(layout.machine_sysctls)
    with netlink.opened() as links:
        links.change(layout.machine_end.name)
        _configure_link(links, layout.machine_end)


def _configure_pod(network: PodNetwork, machine: int) -> None:
    layout, nic = network.layout, network.layout.nic
    with netlink.opened() as links:
        _ensure_links(links, layout, machine)
        if nic is not None:
            network.taps[nic.name] = open_tap(nic.tap)
            links.change(nic.tap, master=nic.bridge.name, mtu=layout.mtu)
            nft.apply(layout.rules)
    if network.responder is not None:
        network.responder.open()


def _repair_pod(layout: Layout, machine: int) -> None:
    """Repair all but the taps, which only QEMU has."""
    with netlink.opened() as links:
        _ensure_links(links, layout, machine)
        nft.apply(layout.replacement_rules)
        if layout.nic is not None and not links.index(layout.nic.tap):
            log.warning(
                "the tap of a network interface was removed: restart the VM to get a new one"
            )


def _ensure_links(links: netlink.Netlink, layout: Layout, machine: int) -> None:
    _set_sysctls(layout.pod_sysctls)
    end = layout.pod_end
    if not links.index(end.name):
        links.add_veth(
            end.name,
            peer=layout.machine_end.name,
            peer_namespace=machine,
            mtu=layout.mtu,
            mac=end.mac,
            peer_mac=layout.machine_end.mac,
        )
    nic = layout.nic
    if nic is not None:
        links.add_bridge(nic.bridge.name, mac=nic.bridge.mac, mtu=layout.mtu)
        _configure_link(links, nic.bridge)
    joins = nic is not None and nic.joins_pod_link
    links.change(end.name, master=nic.bridge.name if nic is not None and joins else None)
    _configure_link(links, end)


def _configure_link(links: netlink.Netlink, config: LinkConfig) -> None:
    for address in config.addresses:
        links.add_address(config.name, address)
    for neighbour, mac in config.neighbours:
        links.add_neighbour(config.name, neighbour, mac)
    for destination, router in config.routes:
        links.add_route(destination, link=config.name, via=router)


def _set_sysctls(settings: Iterable[tuple[str, int]]) -> None:
    """Set sysctls, as far as this kernel has them."""
    for name, value in settings:
        if (SYSCTL / name).exists():
            netlink.set_sysctl(name, value)


def open_tap(name: str) -> int:
    """Create a tap device in the calling thread's namespace; return its descriptor."""
    try:
        descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NetworkError(f"{TUN} cannot be opened: {error.strerror}") from error
    try:
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except OSError as error:
        os.close(descriptor)
        raise NetworkError(f"the device {name} cannot be created: {error.strerror}") from error
    return descriptor
