"""A pod's network as it is: made, found again by a process that is in it, mended, let go.

What is to be there the plan says; here it is put into the kernel, each step content with what is
there already.  A pod's namespace lives as long as the QEMU in it or this process holds it, and the
kernel takes everything of it away with it: links, rules, routes to it.
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

from corral.aio import Background, apart
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.failures import describe
from corral.node.network import dhcp, netlink, nft
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import SYSCTL, Address, NetworkError
from corral.node.network.pod_layout import Fittings, Layout, Site, families, plan

TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_TAP, _NO_PACKET_INFORMATION, _OFFLOADS = 0x0002, 0x1000, 0x4000  # linux/if_tun.h
_LINK_NEWS = 1  # RTMGRP_LINK
_NEWS_BYTES = 1 << 16
_SETTLE_SECONDS = 0.5
"""Many links come and go together."""
_AT_ONCE = 2
"""Namespaces that are worked on at a time: the kernel changes one link at a time anyway."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger()


class PodNetwork:
    """The network of one pod, while its instance runs.

    ``taps``: descriptors of the host's ends of the guest's cards, by the name of the interface; to
    be inherited by QEMU.  After a restart QEMU alone has them.
    """

    def __init__(self, namespace: Namespace, layout: Layout) -> None:
        self.layout = layout
        self.taps: dict[str, int] = {}
        self.responder = dhcp.Responder(layout.card.told) if layout.card is not None else None
        self._namespace = namespace
        self._answers = False

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function in a thread in the pod's namespace."""
        return await self._namespace.call(function, *arguments)

    def copy(self) -> Namespace:
        """Its namespace, for somebody who may need it for longer than it is kept here."""
        return Namespace(os.dup(self._namespace.descriptor))

    def answer(self) -> None:
        """Answer the guest from now on."""
        if self.responder is not None and not self._answers:
            self._answers = True
            self.responder.start()

    def close(self) -> None:
        """Let go of it: it goes when QEMU has gone as well."""
        if self.responder is not None:
            self.responder.close()
        for descriptor in self.taps.values():
            os.close(descriptor)
        self.taps.clear()
        self._namespace.close()


class PodNetworks:
    """The networks of all pods in the namespace of one machine."""

    def __init__(self, machine: Namespace, site: Site) -> None:
        self._machine = machine
        self._site = site
        self._pods: dict[str, PodNetwork] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        """The versions of IP that an instance's pod needs addresses of."""
        return families(vmi)

    async def run(self) -> None:
        """Tell guests of their routers now and then, and mend links that go, until cancelled."""
        try:
            async with Background() as tasks:
                tasks.start(dhcp.advertise(self._responders), name="router advertisements")
                await tasks.start(self._watch_links(), name="links of pods")
        finally:
            self.close()

    async def attach(
        self, uid: str, vmi: VirtualMachineInstance, addresses: Iterable[str]
    ) -> PodNetwork:
        """The network of an instance that is to be started.  Raises NetworkError."""
        if uid not in self._pods:
            layout = plan(vmi, _parsed(addresses), self._site)
            self._pods[uid] = await self._worked(_made, self._machine, layout)
        self._pods[uid].answer()
        return self._pods[uid]

    async def adopt(
        self, uid: str, vmi: VirtualMachineInstance, addresses: Iterable[str], pid: int
    ) -> PodNetwork:
        """The network of an instance whose QEMU runs already, mended.  Raises NetworkError."""
        if uid not in self._pods:
            layout = plan(vmi, _parsed(addresses), self._site)
            self._pods[uid] = await self._worked(_found, self._machine, layout, pid)
        self._pods[uid].answer()
        return self._pods[uid]

    def detach(self, uid: str) -> None:
        """Let go of an instance's network."""
        if (network := self._pods.pop(uid, None)) is not None:
            network.close()

    def close(self) -> None:
        """Let go of all; those in which a QEMU runs stay."""
        for uid in list(self._pods):
            self.detach(uid)

    async def _watch_links(self) -> None:
        """A link goes with its pod; one that somebody has removed is made again."""
        loop = asyncio.get_running_loop()
        with await self._machine.call(_hear_links) as heard:
            while True:
                with suppress(OSError):  # more has happened than the socket could hold
                    await loop.sock_recv(heard, _NEWS_BYTES)
                await asyncio.sleep(_SETTLE_SECONDS)
                with suppress(OSError):
                    while heard.recv(_NEWS_BYTES):
                        pass
                try:
                    await self._mend()
                except OSError as error:  # no descriptor is left, say; the next news tells again
                    log.warning("links of pods cannot be looked after", error=str(error))

    async def _mend(self) -> None:
        there = await self._machine.call(_links)
        for uid, network in list(self._pods.items()):
            if network.layout.machine_end.name in there or self._pods.get(uid) is not network:
                continue
            log.warning("a pod has lost its link and gets another", uid=uid)
            try:
                await apart(_mend_copy, self._machine, network.copy(), network.layout)
            except (NetworkError, OSError) as error:
                log.warning("a pod is without its link", uid=uid, error=describe(error))

    def _responders(self) -> Sequence[dhcp.Responder]:
        return [one.responder for one in self._pods.values() if one.responder is not None]

    async def _worked(self, work: Callable[[*Ts], PodNetwork], *arguments: *Ts) -> PodNetwork:
        """Have something done in a thread.  Where nobody waits for it any more, it is undone."""
        async with self._turns:
            future = apart(work, *arguments)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                future.add_done_callback(_undone)
                raise
            except OSError as error:
                raise NetworkError(f"the pod's network cannot be made: {error}") from error


def _undone(future: "asyncio.Future[PodNetwork]") -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _parsed(addresses: Iterable[str]) -> tuple[Address, ...]:
    return tuple(ip_address(one) for one in addresses)


# -- in threads, each of which goes from one namespace to the next and ends


def _made(machine: Namespace, layout: Layout) -> PodNetwork:
    """A new namespace with all that belongs into it."""
    machine.enter()
    _remove(layout.machine_end.name)  # of one that is still on its way out
    network = PodNetwork(Namespace.begin(), layout)
    try:
        _fit_pod(network, machine.descriptor)
        machine.enter()
        _fit_machine(layout)
    except BaseException:
        network.close()
        raise
    return network


def _found(machine: Namespace, layout: Layout, pid: int) -> PodNetwork:
    """The namespace of a process, with whatever was missing of it."""
    namespace = Namespace.of_process(pid)
    network = PodNetwork(namespace, layout)
    try:
        _mend(machine, namespace, layout)
        if network.responder is not None:
            namespace.enter()
            network.responder.open()
    except BaseException:
        network.close()
        raise
    return network


def _mend(machine: Namespace, pod: Namespace, layout: Layout) -> None:
    machine.enter()
    has_link = layout.machine_end.name in _links()
    pod.enter()
    if not has_link:
        _remove(layout.pod_end.name)
    _mend_pod(layout, machine.descriptor)
    machine.enter()
    _fit_machine(layout)


def _mend_copy(machine: Namespace, pod: Namespace, layout: Layout) -> None:
    with pod:
        _mend(machine, pod, layout)


def _remove(link: str) -> None:
    with netlink.opened() as links:
        links.delete(link)


def _links() -> set[str]:
    return {name for _index, name in socket.if_nameindex()}


def _hear_links() -> socket.socket:
    """A socket that can be read when a link has come, changed or gone (rtnetlink(7))."""
    heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    heard.bind((0, _LINK_NEWS))
    return heard


def _fit_machine(layout: Layout) -> None:
    _set(layout.machine_settings)
    with netlink.opened() as links:
        links.change(layout.machine_end.name)
        _fit(links, layout.machine_end)


def _fit_pod(network: PodNetwork, machine: int) -> None:
    layout, card = network.layout, network.layout.card
    with netlink.opened() as links:
        _furnish(links, layout, machine)
        if card is not None:
            network.taps[card.name] = open_tap(card.tap)
            links.change(card.tap, master=card.bridge.name, mtu=layout.mtu)
            nft.apply(layout.rules)
    if network.responder is not None:
        network.responder.open()


def _mend_pod(layout: Layout, machine: int) -> None:
    """All but the taps, which QEMU has."""
    with netlink.opened() as links:
        _furnish(links, layout, machine)
        nft.apply(layout.renewed_rules)
        if layout.card is not None and not links.index(layout.card.tap):
            log.warning("a card has lost its tap: its machine must be started anew to have one")


def _furnish(links: netlink.Netlink, layout: Layout, machine: int) -> None:
    _set(layout.pod_settings)
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
    card = layout.card
    if card is not None:
        links.add_bridge(card.bridge.name, mac=card.bridge.mac, mtu=layout.mtu)
        _fit(links, card.bridge)
    joins = card is not None and card.joins_pod_link
    links.change(end.name, master=card.bridge.name if card is not None and joins else None)
    _fit(links, end)


def _fit(links: netlink.Netlink, fittings: Fittings) -> None:
    for address in fittings.addresses:
        links.add_address(fittings.name, address)
    for neighbour, mac in fittings.neighbours:
        links.add_neighbour(fittings.name, neighbour, mac)
    for destination, router in fittings.routes:
        links.add_route(destination, link=fittings.name, via=router)


def _set(settings: Iterable[tuple[str, int]]) -> None:
    """Settings that this kernel does not have need no change."""
    for name, value in settings:
        if (SYSCTL / name).exists():
            netlink.set_sysctl(name, value)


def open_tap(name: str) -> int:
    """A tap device of the calling thread's namespace; it is there while a descriptor of it is."""
    try:
        descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NetworkError(f"{TUN} cannot be opened: {error.strerror}") from error
    try:
        flags = _TAP | _NO_PACKET_INFORMATION | _OFFLOADS
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except OSError as error:
        os.close(descriptor)
        raise NetworkError(f"the device {name} cannot be made: {error.strerror}") from error
    return descriptor
