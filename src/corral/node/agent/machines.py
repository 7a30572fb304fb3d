"""The machines of a node: they begin, live in tasks of their own, and leave nothing behind."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import structlog
from lightkube.models.core_v1 import Pod

from corral.aio import Background
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.agent.host_parts import HostParts
from corral.node.hypervisor import Hypervisor, StuckError
from corral.node.kubelet.logs import Logs
from corral.node.machine.boot_slots import Boots
from corral.node.machine.dependencies import Larder
from corral.node.machine.lifecycle import Machine
from corral.node.machine_index import Roster
from corral.node.metrics.vmi_metrics import Step
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records
from corral.node.state.events import ApiVoice
from corral.node.state.machine_record import Record, Stage
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.reconcile.context import ControllerContext

ASK_SECONDS = 300.0
"""How often each guest's agent is asked for the guest's addresses, one machine after the other."""
_AFTER_A_FAULT_SECONDS = 10.0

Attend = Callable[[Background, VirtualMachineInstance | None, ApiVoice, Machine], None]
"""Starts what goes on for as long as a guest runs."""

log = structlog.get_logger()


class Machines:
    """The machines of one node by their pods, and what they share.

    ``due`` is called with the key of a pod of whose machine there is news, ``step`` with each step
    of each machine; ``attend`` starts what goes on beside a guest.
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
        attend: Attend,
    ) -> None:
        client, storage = context.client, host.storage
        self.networking = Networking(host.networks)
        self.larder = Larder(
            client, host.images, storage, host.host_disks, needed=hypervisor.needs_drives
        )
        self.saved_memories = SavedMemoryClaims(client, storage) if storage is not None else None
        self.logs = Logs()
        self.due = due
        self.empty = asyncio.Event()
        """Set while there is none."""
        self.empty.set()
        self._machines: dict[Key, Machine] = {}
        self._uids: set[str] = set()
        """The instances of these machines."""
        self.roster = Roster(
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
        self._boots = Boots(hypervisor.boots_at_once, size=boots_at_once)
        self._step = step
        self._attend = attend
        self._tasks: Background | None = None

    def get(self, pod: Key) -> Machine | None:
        return self._machines.get(pod)

    def values(self) -> Collection[Machine]:
        return self._machines.values()

    def runs(self, uid: str) -> bool:
        """Whether an instance has a machine here."""
        return uid in self._uids

    async def prepare(self) -> None:
        """Find out what bounds and runs machines here."""
        if self._limits is not None:
            await self._limits.prepare()
        await self._hypervisor.prepare()

    async def adopt(self, tasks: Background) -> None:
        """Go on with what an earlier manager has left: its machines, or their remains.

        Machines live in ``tasks`` from now on.
        """
        self._tasks = tasks
        remains = []
        for directory, record in records.scan(self._directory):
            if record is None:
                remains.append(directory)
                continue
            key = Key(record.namespace, record.pod)
            if record.stage is not Stage.ENDED:
                self.networking.restore(record.uid, record.addresses)
            log.info("machine taken over", instance=f"{record.namespace}/{record.instance}")
            self.begin(key, record, self.roster.instance(record.uid))
            self.due(key)
        await asyncio.gather(*map(self._clear_away, remains))

    async def _clear_away(self, directory: Path) -> None:
        """What nobody knows the owner of.  What does not end stays, and is tried at each start."""
        try:
            await self._hypervisor.end(directory)
        except StuckError as error:
            log.warning("remains of a machine stay", directory=str(directory), error=str(error))
        else:
            await asyncio.to_thread(records.erase, directory)

    def begin(self, key: Key, record: Record, vmi: VirtualMachineInstance | None) -> Machine:
        """Give a machine its task."""
        assert self._tasks is not None
        voice = ApiVoice(
            partial(self.due, key),
            record,
            handler=self._handler_events,
            kubelet=self.kubelet_events,
        )
        machine = Machine(
            record,
            self._directory / record.uid,
            hypervisor=self._hypervisor,
            networking=self.networking,
            boots=self._boots,
            voice=voice,
            steps=partial(self._on_step, record.uid),
            saved_memories=self.saved_memories,
            limits=self._limits,
            beside=partial(self._beside, vmi, voice),
            users=self.roster.users,
        )
        self._machines[key] = machine
        self._uids.add(record.uid)
        self.empty.clear()
        self.logs.follow(machine.directory)
        self._tasks.start(self._live(machine, vmi), name=f"machine-{record.instance}")
        return machine

    def _beside(
        self,
        vmi: VirtualMachineInstance | None,
        voice: ApiVoice,
        machine: Machine,
        tasks: Background,
    ) -> None:
        self._attend(tasks, vmi, voice, machine)

    def _on_step(self, uid: str, step: str) -> None:
        if step == "spawned":  # its console log is there from now on
            self.logs.follow(self._directory / uid)
        self._step(uid, step)

    async def _live(self, machine: Machine, vmi: VirtualMachineInstance | None) -> None:
        while not machine.facts.ended:
            try:
                await machine.run(vmi, partial(self.larder.at_start, machine, vmi))
            except Exception:
                # The one door: a fault over one machine must not end all the others.
                log.exception("machine failed", uid=machine.record.uid)
                await asyncio.sleep(_AFTER_A_FAULT_SECONDS)
        self.logs.wake(machine.directory)
        if (last := self.roster.instance(machine.record.uid) or vmi) is not None:
            for other in self.roster.waiting(last):
                other.retry()

    async def erase(self, key: Key, machine: Machine) -> None:
        """Remove what remains of a machine that has ended."""
        self.logs.forget(machine.directory)
        await machine.erase()
        self._machines.pop(key, None)
        self._uids.discard(machine.record.uid)
        if not self._machines:
            self.empty.set()

    async def ask_around(self) -> None:
        """Guests change their addresses without a word: ask each of them now and then."""
        while True:
            machines = list(self._machines.values())
            for machine in machines:
                machine.ask()
                await asyncio.sleep(ASK_SECONDS / len(machines))
            if not machines:
                await asyncio.sleep(ASK_SECONDS)
