"""Networks of pods that the host's CNI plugins make, with a guest behind each.

::

    host                    pod namespace, one for each VMI
    what the plugin ╌╌╌╌╌ eth0                     masquerade: routed and translated
    connects it to                 k6t-eth0 ── tap0 ── guest
    what the plugin ╌╌╌╌╌ eth0 ╌╌ k6t-eth0 ── tap0 ── guest        bridge

The plugins give ``eth0``, its addresses and routes; the rest is as in ``pod_layout``.  With
``bridge`` the guest takes the addresses over, as in KubeVirt.
"""

import asyncio
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final

import msgspec

from corral.aio import Background, finished, own_thread
from corral.api.kinds.vmi.addresses import POD_INTERFACE, mac_of
from corral.api.kinds.vmi.networks import Interface
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.failures import describe
from corral.node.health import Health
from corral.node.network import dhcp, netlink
from corral.node.network.attachment import PodReference
from corral.node.network.cni import chain
from corral.node.network.cni.attachments import Attachment, Attachments
from corral.node.network.cni.configuration import NetworkConfiguration, load
from corral.node.network.cni.result import PodAddresses, addresses_of
from corral.node.network.guest_link import (
    PodNetwork,
    ensure_bridge,
    open_guest_end,
    repair_guest_end,
)
from corral.node.network.namespaces import Namespace, is_bound, unbind
from corral.node.network.netlink import Netlink, NetworkError
from corral.node.network.pod_layout import (
    GuestLayout,
    PodNetworkSettings,
    families,
    interface_of,
    plan_guest,
)
from corral.node.network.resolver import NO_RESOLVER, Resolver
from corral.reconcile.controller import Controller, Result
from corral.reconcile.workqueue import WorkQueue

DIRECTORY: Final = "cni"
"""The directory of attachments, in that of the network."""
RETRY_SECONDS: Final = 10.0
"""Time between two attempts to release an attachment."""
_CONCURRENCY: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CniSettings:
    """Settings of the backend.

    configurations: the directory of network configurations; plugins: directories of plugins.
    dns: the cluster's name servers, if known; domain: the cluster domain; host: the host's DNS
    configuration.
    """

    configurations: Path
    plugins: Sequence[Path]
    dns: tuple[IPv4Address | IPv6Address, ...] = ()
    domain: str = "cluster.local"
    host: Resolver = NO_RESOLVER


class CniNetworks:
    """The networks of pods on a host, by the owner: the ``id`` of a machine's record.

    directory: of the network.  ``on_change`` is called when ``problems()`` changes.
    """

    def __init__(self, directory: Path, settings: CniSettings) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._settings = settings
        self._attachments = Attachments(directory / DIRECTORY)
        self._namespaces: dict[str, Namespace] = {}
        """Namespaces of pods whose machine is about to start."""
        self._pods: dict[str, PodNetwork] = {}
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)
        self._unreleased: dict[str, str] = {}
        """Messages of the attachments that could not be released, by container."""
        self._health = Health("CNI", self._notify_change)
        self._queue = WorkQueue[str]()
        self._releases = Controller(
            "cni", self._release, queue=self._queue, sources=(), workers=_CONCURRENCY
        )

    async def prepare(self, living: Collection[str]) -> None:
        """Release what earlier machines have left; ``living``: the IDs of those that may run.

        Raises NetworkError.
        """
        if os.geteuid() != 0:
            raise NetworkError(
                "CNI plugins need root", "Run corral as root, or with another --network-backend."
            )
        for each in self._attachments.all():
            if each.uid not in living or self._attachments.live(each.uid) is not each:
                self._queue.add(each.container)

    async def run(self) -> None:
        """Send router advertisements, and release attachments, until cancelled."""
        try:
            async with Background() as tasks:
                tasks.start(dhcp.advertise(self._responders), name="router advertisements")
                await tasks.start(self._releases.run(), name="cni")
        finally:
            self.close()

    def facts(self) -> Mapping[str, str]:
        """Return the network and its problems, for ``corral status``."""
        try:
            found = load(self._settings.configurations)
        except NetworkError as error:
            wrong = [error.full_message, *self.problems()]
            return {"network": "CNI", "reason": "; ".join(wrong)}
        plugins = ", ".join(each["type"] for each in found.plugins)
        return {
            "network": f"CNI {found.name} ({found.file}: {plugins}); "
            "between hosts, and encrypted or not, as these have it",
            "reason": "; ".join(self.problems()),
        }

    def problems(self) -> Sequence[str]:
        """Return what is wrong, a line each."""
        return [self._health.problem] if self._health.problem else []

    def families(self, vmi: VirtualMachineInstance) -> Sequence[int]:
        """Return the IP versions that a VMI can use; the plugins choose."""
        return families(vmi)

    async def allocate(
        self, owner: str, pod: PodReference, vmi: VirtualMachineInstance, ranges: Sequence[str]
    ) -> tuple[str, ...]:
        """Attach the pod of a VMI that is about to start; return its addresses.

        Raises NetworkError.
        """
        async with self._semaphore:
            if owner not in self._namespaces and owner not in self._pods:
                await self._discard(owner)
                await self._add(await self._new(owner, pod, vmi, ranges))
        attachment = self._attachments.live(owner)
        assert attachment is not None, "it has been added"
        return tuple(map(str, _addresses(attachment).addresses))

    async def attach(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Iterable[str],  # noqa: ARG002  those of ``allocate``
        *,
        held: bool,
    ) -> PodNetwork:
        """Put a guest behind the interface of a pod.  Raises NetworkError."""
        if held:
            raise NetworkError("machines do not migrate on the network of CNI")
        if owner not in self._pods:
            attachment = self._live(owner)
            self._pods[owner] = await self._in_thread(
                _configure, self._namespaces[owner], self._layout_of(attachment, vmi)
            )
            del self._namespaces[owner]
        self._pods[owner].start_responder()
        return self._pods[owner]

    async def adopt(
        self,
        owner: str,
        vmi: VirtualMachineInstance,
        addresses: Iterable[str],  # noqa: ARG002  the attachment has them
        pid: int,
        *,
        held: bool,  # noqa: ARG002  none is: ``attach``
    ) -> PodNetwork:
        """Adopt and check the network of a VMI whose QEMU runs already.  Raises NetworkError."""
        attachment = self._live(owner)
        if owner not in self._pods:
            layout = self._layout_of(attachment, vmi)
            self._pods[owner] = await self._in_thread(_adopt, attachment.path, pid, layout)
        self._pods[owner].start_responder()
        # With ``bridge`` the guest has the addresses, which plugins look for at the pod.
        if attachment.configuration.has_check and _bridged_interface(vmi) is None:
            await chain.check(attachment)
        return self._pods[owner]

    async def take_over(self, owner: str) -> None:
        """Do nothing: no network is held."""

    async def give_back(self, owner: str, addresses: Iterable[str]) -> None:
        """Do nothing: no network is held."""

    def let_go(self, owner: str, addresses: Iterable[str], node: str, pod: Key) -> None:
        """Do nothing: machines do not migrate."""

    def detach(self, owner: str) -> None:
        """Close the network of a machine that has ended, and release it."""
        self._close(owner)
        for each in self._attachments.of(owner):
            self._queue.add(each.container)

    def close(self) -> None:
        """Close all networks; those in which QEMU runs stay."""
        for uid in (*self._namespaces, *self._pods):
            self._close(uid)

    def _close(self, uid: str) -> None:
        for each in (self._pods.pop(uid, None), self._namespaces.pop(uid, None)):
            if each is not None:
                each.close()

    def _live(self, uid: str) -> Attachment:
        attachment = self._attachments.live(uid)
        if attachment is None:
            raise NetworkError(
                "the machine was started with another --network-backend than cni",
                "Restart the VMI to have it on the network of CNI.",
            )
        return attachment

    async def _new(
        self, owner: str, pod: PodReference, vmi: VirtualMachineInstance, ranges: Sequence[str]
    ) -> Attachment:
        configuration = await asyncio.to_thread(load, self._settings.configurations)
        return Attachment(
            container=uuid.uuid4().hex,
            uid=owner,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            configuration=configuration,
            capabilities=_capabilities(configuration, vmi, ranges),
            directories=[str(each) for each in self._settings.plugins],
        )

    async def _add(self, attachment: Attachment) -> None:
        """Have the plugins add an attachment, which is on disk before there is anything of it."""
        container = attachment.container
        try:
            await self._write(attachment)
            with await _namespace(attachment.path) as namespace:
                result = await chain.add(attachment)
                addresses_of(result)
                await self._write(msgspec.structs.replace(attachment, result=result))
                self._namespaces[attachment.uid] = Namespace(os.dup(namespace.descriptor))
        except OSError as error:
            self._queue.add(container)
            raise NetworkError(f"the pod's network cannot be created: {error}") from error
        except BaseException:
            self._queue.add(container)
            raise

    def _notify_change(self) -> None:
        self.on_change()

    async def _write(self, attachment: Attachment) -> None:
        await finished(asyncio.to_thread(self._attachments.write, attachment))

    async def _discard(self, uid: str) -> None:
        """Release attachments of earlier attempts; the new one waits for none of them."""
        for each in self._attachments.of(uid):
            await self._write(msgspec.structs.replace(each, released=True))
            self._queue.add(each.container)

    async def _release(self, container: str) -> Result | None:
        """Have the plugins delete an attachment; retry until they have."""
        attachment = self._attachments.get(container)
        if attachment is None:
            return None
        try:
            await release(self._attachments, attachment)
        except NetworkError as error:
            self._unreleased[container] = f"{_name(attachment)}: {error.full_message}"
            self._report()
            return Result(requeue_after=RETRY_SECONDS)
        self._unreleased.pop(container, None)
        self._report()
        return None

    def _report(self) -> None:
        reasons = list(self._unreleased.values())
        more = f" and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        self._health.report(f"not released: {reasons[0]}{more}" if reasons else "")

    def _layout_of(
        self, attachment: Attachment, vmi: VirtualMachineInstance
    ) -> Callable[[Netlink], GuestLayout]:
        return partial(_layout, self._settings, vmi, _addresses(attachment))

    async def _in_thread(
        self, function: Callable[..., PodNetwork], *arguments: object
    ) -> PodNetwork:
        try:
            work = own_thread(function, *arguments)
            return await finished(work, discard=PodNetwork.close)
        except OSError as error:
            raise NetworkError(f"the pod's network cannot be created: {error}") from error

    def _responders(self) -> Sequence[dhcp.Responder]:
        return [each.responder for each in self._pods.values() if each.responder is not None]


async def release(attachments: Attachments, attachment: Attachment) -> None:
    """Have the plugins delete an attachment, and remove its namespace.  Raises NetworkError."""
    await chain.delete(attachment)
    try:
        unbind(attachment.path)
        attachments.delete(attachment.container)
    except OSError as error:
        raise NetworkError(f"a namespace cannot be removed: {describe(error)}") from error


def was_used(directory: Path) -> bool:
    """Report whether a data directory's network has ever had attachments."""
    return (directory / DIRECTORY).exists()


def require_unused(directory: Path, living: Collection[str]) -> None:
    """Raise NetworkError if machines of a data directory run on the network of CNI."""
    for each in Attachments(directory / DIRECTORY).all():
        if each.uid in living:
            raise NetworkError(
                f"machines run on the network of CNI, as that of {_name(each)}",
                "End them first (corral down), or go on with --network-backend cni.",
            )


async def remove(directory: Path) -> None:
    """Release the attachments of a data directory's network, whose machines have ended.

    Raises NetworkError, once all others are released.
    """
    attachments = Attachments(directory / DIRECTORY)
    problems = []
    for each in attachments.all():
        try:
            await release(attachments, each)
        except NetworkError as error:
            file = attachments.file(each.container)
            problems.append(f"{_name(each)} ({file}): {error.full_message}")
    if problems:
        raise NetworkError(
            f"the CNI plugins have not released what these pods had: {'; '.join(problems)}",
            "Try again once that is repaired; without its file an attachment is given up.",
        )


def _name(attachment: Attachment) -> str:
    return f"pod {attachment.namespace}/{attachment.pod}"


def _addresses(attachment: Attachment) -> PodAddresses:
    assert attachment.result is not None, "it has been added"
    return addresses_of(attachment.result)


def _bridged_interface(vmi: VirtualMachineInstance) -> Interface | None:
    """Return the interface whose guest has the pod's addresses; None where the pod keeps them."""
    interface = interface_of(vmi)
    return interface if interface is not None and interface.masquerade is None else None


def _capabilities(
    configuration: NetworkConfiguration, vmi: VirtualMachineInstance, ranges: Sequence[str]
) -> Mapping[str, Any]:
    """Return what plugins may ask for beyond their configuration (runtimeConfig).

    As of a kubelet: the ranges of the node; and of KubeVirt: the MAC address of a guest that is on
    the network itself.
    """
    capabilities: dict[str, Any] = {}
    if (interface := _bridged_interface(vmi)) is not None:
        capabilities["mac"] = mac_of(vmi, interface)
    if ranges:
        capabilities["ipRanges"] = [[{"subnet": each}] for each in ranges]
    elif configuration.has_capability("ipRanges"):
        raise NetworkError(
            f"{configuration.file} asks for the ranges of the node (ipRanges), which has none yet",
            "On a cluster kube-controller-manager assigns them: --allocate-node-cidrs.",
        )
    return capabilities


async def _namespace(path: Path) -> Namespace:
    """Create a namespace, mounted on a file."""
    return await finished(own_thread(_create, path), discard=Namespace.close)


# -- Functions for threads, which end in another namespace than they began.


def _create(path: Path) -> Namespace:
    namespace = Namespace.unshare_thread()
    try:
        namespace.bind(path)
        with netlink.opened() as links:
            links.change("lo")
    except BaseException:
        namespace.close()
        raise
    return namespace


def _configure(namespace: Namespace, layout_of: Callable[[Netlink], GuestLayout]) -> PodNetwork:
    namespace.enter()
    with netlink.opened() as links:
        layout = layout_of(links)
        network = PodNetwork(Namespace(os.dup(namespace.descriptor)), layout)
        try:
            _ensure_links(links, layout)
            open_guest_end(links, network, layout)
        except BaseException:
            network.close()
            raise
    namespace.close()
    return network


def _adopt(path: Path, pid: int, layout_of: Callable[[Netlink], GuestLayout]) -> PodNetwork:
    namespace = Namespace.of_process(pid)
    try:
        if not is_bound(path):  # that of an earlier process was in its own mount namespace
            namespace.bind(path)
        namespace.enter()
        with netlink.opened() as links:
            layout = layout_of(links)
            _ensure_links(links, layout)
            repair_guest_end(links, layout)
            network = PodNetwork(namespace, layout)
            if network.responder is not None:
                network.responder.open()
    except BaseException:
        namespace.close()
        raise
    return network


def _layout(
    settings: CniSettings, vmi: VirtualMachineInstance, pod: PodAddresses, links: Netlink
) -> GuestLayout:
    """Return what stands behind the plugins' interface: packets are as large as it takes them."""
    link = links.links().get(POD_INTERFACE)
    if link is None:
        raise NetworkError(
            f"the CNI plugins' interface {POD_INTERFACE} is missing in the pod",
            "Delete the VMI's pod to get another one.",
        )
    _require_gateway(vmi, pod)
    return plan_guest(
        vmi,
        pod.addresses,
        PodNetworkSettings(
            gateways=tuple(pod.gateways),
            ranges=tuple(each.network for each in pod.interfaces),
            dns=settings.dns,
            domain=settings.domain,
            host=pod.resolver if pod.resolver.servers else settings.host,
            mtu=link.mtu,
        ),
    )


def _require_gateway(vmi: VirtualMachineInstance, pod: PodAddresses) -> None:
    """Raise NetworkError for a bridged guest that would not get a default route."""
    interface = _bridged_interface(vmi)
    if interface is not None and not any(each.version == 4 for each in pod.gateways):
        raise NetworkError(
            f"interface {interface.name} has the binding bridge, for which the CNI plugins name no "
            "IPv4 gateway",
            "Choose masquerade.",
        )


def _ensure_links(links: Netlink, layout: GuestLayout) -> None:
    ensure_bridge(links, layout)
    nic = layout.nic
    if nic is None or not nic.joins_pod_link:
        return
    for each in links.addresses(POD_INTERFACE):
        links.delete_address(POD_INTERFACE, each)
    # The guest may have the address of the interface, by the capability ``mac``: the bridge would
    # keep what is for it.
    links.change(POD_INTERFACE, mac=layout.pod_mac, master=nic.bridge.name)
