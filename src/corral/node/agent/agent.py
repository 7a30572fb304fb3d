"""The kubelet of machines: runs the pods bound to this node, and tells what becomes of them.

A controller whose keys are this node's pods.  What a machine does by itself (start, crash, power
off) makes its pod's key due, as a change in the API does; ``reconcile`` then passes on what the API
wishes and writes what is new.  Machines live in tasks of their own and never wait for the API.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import structlog
from lightkube.models.core_v1 import Node, Pod

from corral.aio import Background
from corral.api.kinds import kind_of
from corral.api.kinds.vmi.saved_memory import saves_to
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.agent.deleted_pods import DeletedPods
from corral.node.agent.hang_detector import HangDetector
from corral.node.guest.guest_tasks import Companions
from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.hypervisor import Hypervisor, StuckError
from corral.node.images.store import ImageStore
from corral.node.kubelet.logs import Logs
from corral.node.kubelet.server import Kubelet
from corral.node.kubelet.vmi_endpoints import Doors
from corral.node.limits.limits import Limits
from corral.node.machine.boot_slots import Boots
from corral.node.machine.dependencies import Larder
from corral.node.machine.lifecycle import Machine
from corral.node.machine_index import Roster
from corral.node.metrics.sampling.kubelet_endpoints import SamplingDoors
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.metrics.vmi_metrics import Measures, Step, log_step
from corral.node.network.attachment import Networking, Networks
from corral.node.network.guest_ports import Network, Ports
from corral.node.pressure import Pressure
from corral.node.pressure.evictions import Evictions
from corral.node.state import machine_record as records
from corral.node.state.events import ApiVoice
from corral.node.state.facts import Facts, Trouble
from corral.node.state.grace_period import guest_seconds, seconds_left
from corral.node.state.machine_record import Record, Stage
from corral.node.status import pod_admission
from corral.node.status.node_status import (
    Capacity,
    Heartbeat,
    Host,
    host_address,
    measure,
    no_pressure,
)
from corral.node.status.status_manager import Reports
from corral.node.storage import Storage
from corral.node.storage.provision_plan import STORAGE_LABEL
from corral.node.storage.saved_memory_claims import Shelf
from corral.reconcile.context import World
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import is_there
from corral.reconcile.objects import controller_uid, is_going, key_of, reference, uid_of
from corral.reconcile.workqueue import WorkQueue

ASK_SECONDS = 300.0
"""How often each guest's agent is asked for the guest's addresses, one machine after the other."""
_AFTER_A_FAULT_SECONDS = 10.0
_WORKERS = 32
_FINAL = frozenset({"Succeeded", "Failed"})

log = structlog.get_logger()


class Agent:
    """One node.

    ``storage``: where the volumes of claims lie; ``host_disks``: the directory whose files machines
    may have as disks; ``boots_at_once``: how many guests may boot at the same time, where that is
    not left to the hypervisor; ``limits``: what bounds machines; ``networks``: where machines get
    addresses; ``network_facts``: what the node is to say of them; ``destinations``: where probes
    may lead; ``sampler``: who looks at what machines take, if anybody does; ``pressure``: who looks
    at what the host has left; ``retired``: whether the node goes with its last machine.
    """

    def __init__(
        self,
        world: World,
        name: str,
        directory: Path,
        *,
        images: ImageStore,
        storage: Storage | None = None,
        host_disks: Path | None = None,
        hypervisor: Hypervisor,
        capacity: Capacity | None = None,
        address: str = "",
        boots_at_once: int | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        networks: Networks | None = None,
        network_facts: Callable[[], Mapping[str, str]] = dict,
        destinations: Destinations = FOR_TENANTS,
        sampler: Sampler | None = None,
        pressure: Pressure | None = None,
        retired: bool = False,
        step: Step = log_step,
    ) -> None:
        self.name = name
        self._world = world
        self._client = world.client
        self._directory = directory / records.MACHINES
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._larder = Larder(
            self._client, images, storage, host_disks, needed=hypervisor.needs_drives
        )
        self._shelf = Shelf(self._client, storage) if storage is not None else None
        self._hypervisor = hypervisor
        self._step = step
        self._host = Host(
            name=name,
            address=address or host_address(),
            capacity=capacity or measure(directory),
            labels={STORAGE_LABEL: storage.id} if storage is not None else {},
            facts=hypervisor.facts,
            limits=limits.facts if limits is not None else dict,
            network=network_facts,
            pressures=pressure.holds if pressure is not None else no_pressure,
            retired=retired,
        )
        self._empty = asyncio.Event()
        self._reports = Reports(world, self._host.address, self._shelf)
        self._heartbeat = Heartbeat(self._client, self._host, world.clock)
        self._networking = Networking(networks)
        self._limits = limits
        self._boots = Boots(hypervisor.boots_at_once, size=boots_at_once)
        self._machines: dict[Key, Machine] = {}
        self._instances_here: set[str] = set()
        """The instances of these machines, by uid."""
        self._tasks: Background | None = None
        self._pods = world.informers.of(Pod, fields=f"spec.nodeName={name}")
        self._instances = world.informers.of(VirtualMachineInstance)
        self._self = world.informers.of(Node, fields=f"metadata.name={name}")
        self.roster = Roster(self._machines, self._pods, self._instances)
        self._deleted_pods = DeletedPods(self._client, self._pods, self.roster)
        self.measures = Measures(name, self._machines.values, self.roster.instance)
        self._handler = world.recorder("virt-handler", name)
        self._kubelet_events = world.recorder("kubelet", name)
        self._logs = Logs()
        if pressure is not None:
            node, events = partial(self._self.get, Key("", name)), self._kubelet_events
            pressure.add(Evictions(self.roster, events, node, self.register_again))
        self._controller: Controller[Key] = Controller(
            f"node-{name}",
            self.reconcile,
            queue=WorkQueue(),
            sources=(self._pods, self._instances),
            workers=_WORKERS,
        )
        self._ports = Ports(network, destinations)
        self._companions = Companions(world, self.roster, self._larder, images, self._ports)
        doors = Doors(self.roster.machine_of_instance, self._ports)
        sampler = sampler or Sampler()
        sampler.add(name, self.roster.tenants)
        self._kubelet = Kubelet(
            self.roster.machine_of_pod,
            self._logs,
            doors,
            SamplingDoors(name, sampler),
            beside=self.measures.routes(),
        )
        self.asgi = self._kubelet.asgi

    # -- running

    async def run(self) -> None:
        """Serve the node until cancelled; machines run on.  One that is retired: to their end."""
        async with Background() as tasks:
            self._tasks = tasks
            tasks.start(self._prepare_hypervisor(), name="hypervisor")
            tasks.start(self._heartbeat.run(), name="heartbeat")
            tasks.start(self._logs.run(), name="logs")
            tasks.start(self._kubelet.run(), name="doors")
            tasks.start(self._ask_around(), name="ask around")
            tasks.start(HangDetector(self._machines.values).run(), name="hangs")
            await self._pods.synced()
            await self._instances.synced()
            await self._adopt()
            self._self.handle(self._on_node)
            self._pods.handle(self._on_pod)
            self._instances.handle(self._on_instance)
            tasks.start(self._controller.run(), name="pods")
            self._look_whether_empty()
            await self._empty.wait()

    async def _prepare_hypervisor(self) -> None:
        if self._limits is not None:
            await self._limits.prepare()
        await self._hypervisor.prepare()
        self.register_again()

    def register_again(self) -> None:
        """Write the node anew at once: what it says of itself has changed."""
        self._heartbeat.register_again()

    async def _ask_around(self) -> None:
        """Guests change their addresses without a word: ask each of them now and then."""
        while True:
            machines = list(self._machines.values())
            for machine in machines:
                machine.ask()
                await asyncio.sleep(ASK_SECONDS / len(machines))
            if not machines:
                await asyncio.sleep(ASK_SECONDS)

    def _look_whether_empty(self) -> None:
        if self._host.retired and not self._machines:
            self._empty.set()

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if (pod := new or old) is not None:
            self._controller.queue.add(key_of(pod))

    def _on_node(self, _old: Node | None, new: Node | None) -> None:
        if new is None:
            self.register_again()  # somebody has deleted it, but here it is
        elif new.spec is not None:
            ranges = new.spec.podCIDRs or ()
            self._networking.assign(ranges)
            self._heartbeat.keep_ranges(ranges)

    def _on_instance(
        self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if (vmi := new or old) is not None:
            for pod in self.roster.pods_of(vmi.metadata.uid):
                self._controller.queue.add(pod)

    async def _adopt(self) -> None:
        """Go on with what an earlier manager has left: its machines, or their remains."""
        remains = []
        for directory, record in records.scan(self._directory):
            if record is None:
                remains.append(directory)
                continue
            key = Key(record.namespace, record.pod)
            if record.stage is not Stage.ENDED:
                self._networking.hold(record.uid, record.addresses)
            log.info("machine taken over", instance=f"{record.namespace}/{record.instance}")
            self._begin(key, record, self.roster.instance(record.uid))
            self._controller.queue.add(key)
        await asyncio.gather(*map(self._clear_away, remains))

    async def _clear_away(self, directory: Path) -> None:
        """What nobody knows the owner of.  What does not end stays, and is tried at each start."""
        try:
            await self._hypervisor.end(directory)
        except StuckError as error:
            log.warning("remains of a machine stay", directory=str(directory), error=str(error))
        else:
            await asyncio.to_thread(records.erase, directory)

    def _begin(self, key: Key, record: Record, vmi: VirtualMachineInstance | None) -> Machine:
        """Give a machine its task."""
        assert self._tasks is not None
        voice = ApiVoice(
            partial(self._controller.queue.add, key),
            record,
            handler=self._handler,
            kubelet=self._kubelet_events,
        )
        machine = Machine(
            record,
            self._directory / record.uid,
            hypervisor=self._hypervisor,
            networking=self._networking,
            boots=self._boots,
            voice=voice,
            steps=partial(self._on_step, record.uid),
            shelf=self._shelf,
            limits=self._limits,
            beside=partial(self._beside, vmi, voice),
            users=self.roster.users,
        )
        self._machines[key] = machine
        self._instances_here.add(record.uid)
        self._logs.follow(machine.directory)
        self._tasks.start(self._live(machine, vmi), name=f"machine-{record.instance}")
        return machine

    def _beside(
        self,
        vmi: VirtualMachineInstance | None,
        voice: ApiVoice,
        machine: Machine,
        tasks: Background,
    ) -> None:
        """What goes on for as long as a guest runs."""
        self._kubelet.recall(machine)
        self._companions.attend(tasks, vmi, voice, machine)

    def _on_step(self, uid: str, step: str) -> None:
        if step == "spawned":  # its console log is there from now on
            self._logs.follow(self._directory / uid)
        self.measures.step(uid, step)
        self._step(uid, step)

    async def _live(self, machine: Machine, vmi: VirtualMachineInstance | None) -> None:
        while not machine.facts.ended:
            try:
                await machine.run(vmi, partial(self._larder.at_start, machine, vmi))
            except Exception:
                # The one door: a fault over one machine must not end all the others.
                log.exception("machine failed", uid=machine.record.uid)
                await asyncio.sleep(_AFTER_A_FAULT_SECONDS)
        self._logs.wake(machine.directory)
        if (last := self.roster.instance(machine.record.uid) or vmi) is not None:
            for other in self.roster.waiting(last):
                other.retry()

    # -- one pod

    async def reconcile(self, key: Key) -> Result | None:
        """Bring a pod's machine and the API together."""
        pod = self._pods.get(key)
        machine = self._machines.get(key)
        if machine is not None and (pod is None or uid_of(pod) != machine.record.pod_uid):
            if await self._deleted_pods.include(key, machine.record.pod_uid):
                await self._abandon(key, machine)
            return None
        if pod is None:
            return None
        vmi = self.roster.instance(controller_uid(pod))
        if machine is None:
            machine = await self._meet(key, pod, vmi)
        if machine is None or not await self._knows(machine, vmi):
            return None
        self._companions.wake(machine.record.uid)
        self._pass_on_wishes(machine, pod, vmi)
        await self._reports.of_machine(machine, pod, vmi)
        if machine.facts.ended and is_going(pod):
            await self._client.delete(Pod, key, uid=uid_of(pod), grace_seconds=0)
        return None

    async def _knows(self, machine: Machine, vmi: VirtualMachineInstance | None) -> bool:
        """Whether it is certain what becomes of a machine: its instance is there, or is gone."""
        of = machine.record
        key = Key(of.namespace, of.instance)
        kind = kind_of(VirtualMachineInstance)
        return vmi is not None or not await is_there(self._client, key, of.uid, kind)

    async def _meet(self, key: Key, pod: Pod, vmi: VirtualMachineInstance | None) -> Machine | None:
        """A pod without a machine: a new one, or one whose machine has ended."""
        if is_going(pod):
            await self._client.delete(Pod, key, uid=uid_of(pod), grace_seconds=0)
            return None
        if pod.status is not None and pod.status.phase in _FINAL:
            return None
        if (objection := pod_admission.objection(pod)) is not None:
            if await self._reports.of_pod(pod, Facts(trouble=objection)):
                self._say(pod, objection)
            return None
        if vmi is None or vmi.is_final or is_going(vmi):
            return None
        runs = vmi.metadata.uid in self._instances_here
        rejection = pod_admission.rejection(pod, vmi, runs=runs) or pod_admission.no_room(
            pod, self._host.pressures()
        )
        if rejection is not None:
            status = {"phase": "Failed", "reason": rejection.reason, "message": rejection.message}
            await self._client.patch(Pod, key, {"status": status}, subresource="status")
            self._say(pod, rejection)
            return None
        return self._begin(key, records.new(pod, vmi), vmi)

    def _say(self, pod: Pod, why: Trouble) -> None:
        self._kubelet_events.event(reference(pod), "Warning", why.reason, why.message)

    async def _abandon(self, key: Key, machine: Machine) -> None:
        """The pod was taken away by force: nothing may remain of its machine."""
        machine.stop(0)
        if machine.facts.ended:
            self._logs.forget(machine.directory)
            await machine.erase()
            self._machines.pop(key, None)
            self._instances_here.discard(machine.record.uid)
            self._deleted_pods.forget(machine.record.pod_uid)
            self._look_whether_empty()
            if self._pods.get(key) is not None:  # the next of that name
                self._controller.queue.add(key)

    def _pass_on_wishes(
        self, machine: Machine, pod: Pod, vmi: VirtualMachineInstance | None
    ) -> None:
        """Deletion of pod or instance means: shut down in the time that is granted."""
        if vmi is None:
            machine.stop(0)
            return
        granted = guest_seconds(vmi)
        if (left := seconds_left(pod, vmi, self._world.clock())) is not None:
            machine.stop(left, in_order=granted == 0)
        elif self._shelf is not None:
            machine.save(saves_to(vmi), granted, in_order=granted == 0)
