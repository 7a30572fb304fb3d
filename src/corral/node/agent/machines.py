"""The machines of a node, each in a task of its own, from adoption or start to removal."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

import structlog
from lightkube.models.core_v1 import Pod

from corral.aio import Background
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.agent.host_parts import HostParts
from corral.node.fencing.lease import NodeLease
from corral.node.hypervisor import Drive, GuestError, Hypervisor, StuckError
from corral.node.kubelet.logs import Logs
from corral.node.machine.boot_slots import BootSlots
from corral.node.machine.dependencies import Dependencies
from corral.node.machine.disk_leases import LEASED, MachineLeases
from corral.node.machine.exclusive_starts import ExclusiveStarts
from corral.node.machine.lifecycle import Machine
from corral.node.machine.memory.checkpoint import CheckpointError
from corral.node.machine.memory.fork import Checkpoints
from corral.node.machine_index import MachineIndex
from corral.node.metrics.vmi_metrics import Step
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records
from corral.node.state.events import MachineEventRecorder
from corral.node.state.machine_record import Record, Stage
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.reconcile.context import ControllerContext

REFRESH_SECONDS = 300.0
"""Time between queries of each guest agent for addresses, one machine after the other."""
_FAULT_PAUSE_SECONDS = 10.0

StartTasks = Callable[
    [VirtualMachineInstance | None, MachineEventRecorder, Machine, Background], None
]
"""Starts the tasks that run beside a guest for as long as it runs."""

log = structlog.get_logger()


class Machines:
    """The machines of one node by their pods, and what they share.

    ``due`` enqueues a pod whose machine has changed; ``step`` is called with each step of each
    machine; ``start_tasks`` starts the tasks beside a guest.
    """

    def __init__(
        self,
        context: ControllerContext,
        node: str,
        directory: Path,
        host: HostParts,
        hypervisor: Hypervisor,
        *,
        boots_at_once: int | None,
        due: Callable[[Key], None],
        step: Step,
        start_tasks: StartTasks,
        checkpoints: Checkpoints | None = None,
        lease: NodeLease | None = None,
    ) -> None:
        client, storages = context.client, host.storages
        self.networking = Networking(host.networks)
        self.dependencies = Dependencies(
            client, host.images, storages, host.host_disks, needed=hypervisor.needs_drives
        )
        writer = host.provisioner or client
        self.saved_memories = SavedMemoryClaims(client, storages, writer) if storages else None
        self.logs = Logs()
        self.due = due
        self.empty = asyncio.Event()
        """Set while there are no machines."""
        self.empty.set()
        self._machines: dict[Key, Machine] = {}
        self._of_vmis: dict[str, set[Key]] = {}
        """The pods of the machines, by the uid of their VMI: one that comes back has several."""
        self.index = MachineIndex(
            self._machines,
            context.informers.of(Pod, fields=f"spec.nodeName={node}"),
            context.informers.of(VirtualMachineInstance),
        )
        self.kubelet_events = context.recorder("kubelet", node)
        self._handler_events = context.recorder("virt-handler", node)
        self._directory = directory / records.MACHINES
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._hypervisor = hypervisor
        self._limits = host.limits
        self._targets = host.targets
        self._checkpoints = checkpoints
        self._boot_slots = BootSlots(hypervisor.boots_at_once, size=boots_at_once)
        self._lease = lease
        self._starts = ExclusiveStarts(client, lease)
        self._leases = MachineLeases(host.shared)
        self._living: dict[Key, asyncio.Task[None]] = {}
        self._step = step
        self._start_tasks = start_tasks
        self._tasks: Background | None = None

    def get(self, pod: Key) -> Machine | None:
        return self._machines.get(pod)

    def values(self) -> Collection[Machine]:
        return self._machines.values()

    def runs(self, uid: str) -> bool:
        """Report whether a VMI has a machine here that has not ended, as one that moved has."""
        own = map(self._machines.get, self._of_vmis.get(uid, ()))
        return any(each is not None and not each.facts.ended for each in own)

    async def prepare(self) -> None:
        """Probe the host for resource limits and the hypervisor."""
        if self._limits is not None:
            await self._limits.prepare()
        await self._hypervisor.prepare()

    async def adopt(self, tasks: Background) -> None:
        """Adopt the machines that an earlier manager has left, or remove their remains.

        Machines run in ``tasks`` from now on.
        """
        self._tasks = tasks
        remains = []
        for directory, record in records.scan(self._directory):
            if record is None:
                remains.append(directory)
                continue
            key = Key(record.namespace, record.pod)
            if record.stage is not Stage.ENDED:
                self.networking.restore(record.id, record.addresses)
            log.info("machine adopted", instance=f"{record.namespace}/{record.instance}")
            machine = self.begin(key, record, self.index.instance(record.uid))
            if self._lease is not None and self._lease.ends_machines and record.exclusive:
                machine.fence()  # before its task resumes anything
            self.due(key)
        await asyncio.gather(*map(self._remove_remains, remains))

    async def _remove_remains(self, directory: Path) -> None:
        """Remove a directory without a readable record; one whose QEMU does not end stays."""
        try:
            await self._hypervisor.end(directory)
        except StuckError as error:
            log.warning("remains of a machine stay", directory=str(directory), error=str(error))
        else:
            await asyncio.to_thread(records.erase, directory)

    def begin(self, key: Key, record: Record, vmi: VirtualMachineInstance | None) -> Machine:
        """Start a machine's task."""
        assert self._tasks is not None
        recorder = MachineEventRecorder(
            partial(self.due, key),
            record,
            handler=self._handler_events,
            kubelet=self.kubelet_events,
        )
        machine = Machine(
            record,
            self._directory / record.id,
            hypervisor=self._hypervisor,
            networking=self.networking,
            boot_slots=self._boot_slots,
            recorder=recorder,
            on_step=partial(self._on_step, record),
            saved_memories=self.saved_memories,
            checkpoints=self._checkpoints,
            limits=self._limits,
            start_guest_tasks=partial(self._start_tasks, vmi, recorder),
            targets=self._targets,
            users=self.index.users,
            require=self._starts.require,
            leases=self._leases,
        )
        self._machines[key] = machine
        self._of_vmis.setdefault(record.uid, set()).add(key)
        self.empty.clear()
        self.logs.follow(machine.directory)
        task = self._tasks.start(self._live(machine, vmi), name=f"machine-{record.instance}")
        self._living[key] = task
        return machine

    async def ended(self, pods: Iterable[Key], seconds: float) -> bool:
        """Wait until the machines of some pods have ended; return False if some have not yet."""
        tasks = [self._living[pod] for pod in pods if pod in self._living]
        return not tasks or not (await asyncio.wait(tasks, timeout=seconds))[1]

    def _on_step(self, record: Record, step: str) -> None:
        if step == "spawned":  # its console log exists from now on
            self.logs.follow(self._directory / record.id)
        self._step(record.uid, step)

    async def _live(self, machine: Machine, vmi: VirtualMachineInstance | None) -> None:
        while not machine.facts.ended:
            try:
                await machine.run(vmi, partial(self._prepare, machine, vmi))
            except Exception:
                # Top-level handler: a fault in one machine must not end all the others.
                log.exception("machine failed", uid=machine.record.uid)
                await asyncio.sleep(_FAULT_PAUSE_SECONDS)
        self.logs.wake(machine.directory)
        if (last := self.index.instance(machine.record.uid) or vmi) is not None:
            for other in self.index.waiting(last):
                other.retry()

    async def checkpoint(
        self, machine: Machine, vmi: VirtualMachineInstance, files: CheckpointFiles, key: str
    ) -> Checkpoint:
        """Make the checkpoint of a key of a machine.  Raises CheckpointError."""
        try:
            guest = machine.guest
        except GuestError as error:
            raise CheckpointError("NotRunning", str(error), is_transient=True) from error
        return await machine.checkpoint.make(files, guest, vmi, key)

    async def _prepare(
        self, machine: Machine, vmi: VirtualMachineInstance | None
    ) -> Mapping[str, Drive]:
        """Return the drives that a machine starts with.  Raises DriveError and StartError."""
        if machine.record.stage is Stage.DEFINED:  # drives are also prepared for a save
            await self._starts.confirm(machine.record)
        return await self.dependencies.at_start(machine, vmi)

    def retry_leased(self) -> None:
        """Retry the starts that wait for the lease of a disk."""
        for machine in self._machines.values():
            trouble = machine.facts.trouble
            if trouble is not None and trouble.reason == LEASED:
                machine.retry()

    async def erase(self, key: Key, machine: Machine) -> None:
        """Remove the remains of a machine that has ended."""
        self.logs.forget(machine.directory)
        await machine.erase()
        self._machines.pop(key, None)
        pods = self._of_vmis.get(machine.record.uid, set())
        pods.discard(key)
        if not pods:
            self._of_vmis.pop(machine.record.uid, None)
        self._living.pop(key, None)
        self._starts.forget(machine.record)
        if not self._machines:
            self.empty.set()

    async def refresh_guest_info(self) -> None:
        """Query each guest now and then: guests report no changes of their addresses."""
        while True:
            machines = list(self._machines.values())
            for machine in machines:
                machine.refresh_guest_info()
                await asyncio.sleep(REFRESH_SECONDS / len(machines))
            if not machines:
                await asyncio.sleep(REFRESH_SECONDS)
