"""The kubelet of machines: runs the pods bound to this node, and reports their status.

A controller whose keys are this node's pods.  An event of a machine (start, crash, power off)
enqueues its pod, as a change in the API does; ``pod_sync`` then passes the requests of the API on
to the machine, and writes changed status.  Machines live in tasks of their own (``machines``) and
never wait for the API.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from lightkube.models.core_v1 import Node, Pod

from corral.aio import Background
from corral.api.kinds.core.machine_nodes import LIVE_MIGRATION, LIVE_MIGRATION_LABEL
from corral.api.kinds.core.node_taints import ready_status
from corral.api.kinds.core.pod_addresses import pod_addresses
from corral.api.kinds.storage.common import SHARED_LABEL, STORAGE_LABEL
from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.volume_binding import is_finished
from corral.node.agent.checkpoints import CheckpointSync, NodeCheckpoints
from corral.node.agent.hang_detector import HangDetector
from corral.node.agent.host_parts import HostParts
from corral.node.agent.machines import Machines
from corral.node.agent.pod_sync import PodSync
from corral.node.agent.self_fencing import SelfFencing
from corral.node.fencing.lease import NodeLease
from corral.node.guest.guest_tasks import GuestTasks
from corral.node.hypervisor import Hypervisor, NoMachineError
from corral.node.kubelet.server import Kubelet
from corral.node.kubelet.vmi_endpoints import VmiEndpoints
from corral.node.machine.lifecycle import Machine
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints
from corral.node.metrics.vmi_metrics import Step, VmiMetrics, log_step
from corral.node.network.guest_ports import Ports
from corral.node.network.helper_processes import Helper
from corral.node.pressure.evictions import Evictions
from corral.node.state.events import MachineEventRecorder
from corral.node.status.node_status import (
    Capacity,
    Heartbeat,
    Host,
    host_address,
    measure,
    no_pressure,
)
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import controller_uid, key_of
from corral.reconcile.workqueue import WorkQueue

_WORKERS = 32


class Agent:
    """The agent of one node.

    ``host``: the parts that all nodes of this host share; ``boots_at_once``: how many guests may
    boot at the same time, by default the hypervisor's choice; ``retired``: whether the node ends
    with its last machine; ``lease``, ``watchdog``: those of a node that may be cut off from the API
    server, and fences itself.
    """

    def __init__(
        self,
        context: ControllerContext,
        name: str,
        directory: Path,
        host: HostParts,
        *,
        hypervisor: Hypervisor,
        capacity: Capacity | None = None,
        address: str = "",
        boots_at_once: int | None = None,
        retired: bool = False,
        step: Step = log_step,
        lease: NodeLease | None = None,
        watchdog: Helper | None = None,
    ) -> None:
        self.name = name
        self.hypervisor = hypervisor
        self._step = step
        self._queue: WorkQueue[Key] = WorkQueue()
        self._pods = context.informers.of(Pod, fields=f"spec.nodeName={name}")
        self._moved = context.informers.of(Pod, labels=MIGRATION_UID)
        """Pods that VMIs have migrated to, or are about to."""
        self._instances = context.informers.of(VirtualMachineInstance)
        self._self = context.informers.of(Node, fields=f"metadata.name={name}")
        checkpoints = NodeCheckpoints(context.client, name, directory)
        self._host = replace(
            _host(name, host, hypervisor, capacity or measure(directory), address, retired=retired),
            checkpoints=lambda: checkpoints.usage,
        )
        self._machines = Machines(
            context,
            name,
            directory,
            host,
            hypervisor,
            boots_at_once=boots_at_once,
            due=self._queue.add,
            step=self._on_step,
            start_tasks=self._start_guest_tasks,
            checkpoints=checkpoints,
            lease=lease,
        )
        self._checkpoints = CheckpointSync(
            context, name, checkpoints, self._machines, on_usage=self.register_again
        )
        self._fencing = (
            SelfFencing(context.client, name, lease, self._machines, watchdog)
            if lease is not None
            else None
        )
        self._heartbeat = self._new_heartbeat(context, lease)
        self.index = self._machines.index
        self.vmi_metrics = VmiMetrics(
            name,
            self._machines.values,
            self.index.instance,
            others=self._checkpoints.metrics.families,
        )
        ports = Ports(host.network, host.destinations)
        self._guest_tasks = GuestTasks(
            context, self.index, self._machines.dependencies, host.images, ports
        )
        self._kubelet = Kubelet(
            self.index.machine_of_pod,
            self._machines.logs,
            VmiEndpoints(self.index.machine_of_instance, ports),
            ResourceEndpoints(name, host.sampler),
            extra_routes=self.vmi_metrics.routes(),
        )
        self.asgi = self._kubelet.asgi
        sync = PodSync(context, self._host, self._pods, self._machines, self._guest_tasks)
        self._controller: Controller[Key] = Controller(
            f"node-{name}",
            sync.sync,
            queue=self._queue,
            sources=(self._pods, self._instances),
            workers=_WORKERS,
        )
        host.sampler.add(name, self.index.running_pods)
        if host.pressure is not None:
            node, events = partial(self._self.get, Key("", name)), self._machines.kubelet_events
            evict = self._checkpoints.evict_oldest
            host.pressure.add(Evictions(self.index, events, node, self.register_again, evict))

    def _new_heartbeat(self, context: ControllerContext, lease: NodeLease | None) -> Heartbeat:
        if self._fencing is None:
            refresh = self.hypervisor.refresh
            return Heartbeat(context.client, self._host, context.clock, after_renewal=refresh)
        return Heartbeat(
            context.client,
            replace(self._host, fencing=self._fencing.condition),
            context.clock,
            lease=lease,
            before_return=self._fencing.end_replaced,
            after_renewal=self._after_renewal,
        )

    async def _after_renewal(self) -> bool:
        """Resume what waited for a renewal; return whether the node's status has changed."""
        assert self._fencing is not None
        resumed = await self._fencing.resume()
        return await self.hypervisor.refresh() or resumed

    async def run(self) -> None:
        """Serve the node until cancelled; machines run on.

        A retired node ends with its machines.  A node that fences itself adopts its machines, and
        ends those that were replaced, before it reports that it is ready.
        """
        async with Background() as tasks:
            if self._fencing is not None:
                await self._fencing.start(tasks)
            else:
                tasks.start(self._heartbeat.run(), name="heartbeat")
            tasks.start(self._prepare_hypervisor(), name="hypervisor")
            tasks.start(self._machines.logs.run(), name="logs")
            tasks.start(self._kubelet.run(), name="freeze timers")
            tasks.start(self._machines.refresh_guest_info(), name="guest info")
            tasks.start(HangDetector(self._machines.values).run(), name="hangs")
            await self._pods.synced()
            await self._instances.synced()
            await self._moved.synced()
            self._moved.handle(self._on_moved)
            await self._machines.adopt(tasks)
            if self._fencing is not None:
                tasks.start(self._heartbeat.run(), name="heartbeat")
            self._self.handle(self._on_node)
            self._pods.handle(self._on_pod)
            self._instances.handle(self._on_instance)
            tasks.start(self._controller.run(), name="pods")
            tasks.start(self._checkpoints.run(), name="checkpoints")
            if not self._host.retired:
                await asyncio.Event().wait()  # until cancelled
            await self._machines.empty.wait()

    async def _prepare_hypervisor(self) -> None:
        await self._machines.prepare()
        self.register_again()

    async def registered(self) -> None:
        """Wait until the Node is in the API, with its status."""
        await self._heartbeat.is_registered.wait()

    async def stop(self) -> None:
        """Prepare the end of the agent: exclusive machines are to run on, like all others."""
        if self._fencing is not None:
            await self._fencing.end(self._heartbeat.write_last)

    def retry_leased(self) -> None:
        """Retry the starts that wait for the lease of a disk: its holder may be over now."""
        self._machines.retry_leased()

    def register_again(self) -> None:
        """Write the Node again at once: its status or annotations have changed."""
        self._heartbeat.register_again()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if (pod := new or old) is not None:
            self._queue.add(key_of(pod))

    def _on_moved(self, old: Pod | None, new: Pod | None) -> None:
        """Reserve the address of a machine that has left this node, while its pod runs.

        The machine here that it leaves is enqueued: it waits for what becomes of the guest there.
        """
        if (pod := new or old) is None or (pod.spec and pod.spec.nodeName) == self.name:
            return
        addresses = [str(each) for each in pod_addresses(new)]
        if addresses or new is None or is_finished(new):
            self._machines.networking.observe(key_of(pod), addresses)
        for source in self.index.pods_of(controller_uid(pod)):
            self._queue.add(source)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            self.register_again()  # somebody has deleted it, but it still runs
            return
        if ready_status(new) == "Unknown" and (old is None or ready_status(old) != "Unknown"):
            self.register_again()  # its Lease was late: the status may not be due for minutes
        if new.spec is not None:
            ranges = new.spec.podCIDRs or ()
            self._machines.networking.assign(ranges)
            self._heartbeat.keep_ranges(ranges)

    def _on_instance(
        self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if (vmi := new or old) is not None:
            for pod in self.index.pods_of(vmi.metadata.uid):
                self._queue.add(pod)

    def _on_step(self, uid: str, step: str) -> None:
        self.vmi_metrics.step(uid, step)
        self._step(uid, step)

    def _start_guest_tasks(
        self,
        vmi: VirtualMachineInstance | None,
        recorder: MachineEventRecorder,
        machine: Machine,
        tasks: Background,
    ) -> None:
        """Start the tasks that run beside a guest for as long as it runs."""
        self._kubelet.resume_freeze_timer(machine)
        self._guest_tasks.start_tasks(tasks, vmi, recorder, machine)


def _host(
    name: str,
    parts: HostParts,
    hypervisor: Hypervisor,
    capacity: Capacity,
    address: str,
    *,
    retired: bool,
) -> Host:
    """Return the Node's properties, from the parts that know them."""
    storage, limits, pressure = parts.storage, parts.limits, parts.pressure
    shared = parts.shared
    return Host(
        name=name,
        address=address or parts.registration.address or host_address(),
        registration=parts.registration,
        capacity=capacity,
        labels={
            LIVE_MIGRATION_LABEL: LIVE_MIGRATION if parts.moves else None,
            **({STORAGE_LABEL: storage.id} if storage is not None else {}),
        },
        facts=hypervisor.facts,
        limits=limits.facts if limits is not None else dict,
        network=parts.network_facts,
        storage=parts.storage_facts,
        shared_labels=shared.labels if shared is not None else _without_shared,
        shared=shared.condition if shared is not None else lambda: None,
        clock=parts.clock_condition,
        images=parts.listed_images,
        pressures=pressure.conditions if pressure is not None else no_pressure,
        retired=retired,
    )


def _without_shared() -> Mapping[str, None]:
    """Return the labels of a Node that has no shared directory, or none any more."""
    return {SHARED_LABEL: None}


async def grow_claim(agents: Iterable[Agent], claim: Key, size: int) -> None:
    """Resize a claim's disk in every machine that uses it, by its QEMU.

    Raises NoMachineError if no machine uses it, and GuestError if a resize fails.
    """
    using = [each for agent in agents for each in agent.index.machines_with(claim)]
    if not using:
        raise NoMachineError("no machine that uses the claim is found")
    for machine, vmi, volume in using:
        await machine.guest.grow(vmi, volume, size)
