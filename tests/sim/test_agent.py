"""The node agent with hollow machines in a whole cluster: killed at every step, and back again."""

import asyncio
import errno
from collections import Counter
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from lightkube.models.core_v1 import Event, Node, Pod
from tests.sim.cluster import cluster, replica_set

from corral.aio import Background
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.quantity import canonical
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.agent.agent import Agent
from corral.node.agent.host_parts import HostParts
from corral.node.agent.machines import REFRESH_SECONDS
from corral.node.hollow.hypervisor import CAPACITY, Behaviour, Hollow, HollowGuest, HollowNetworks
from corral.node.hypervisor import Change, GuestError, GuestInfo, GuestInterface
from corral.node.images.store import ImageStore
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS, LONGEST_BACK_OFF_SECONDS
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Outcome, Stage
from corral.node.storage import Storage
from corral.reconcile.context import ControllerContext

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

USER = User(name="system:node:node1", groups=("system:masters",))


class Killed(BaseException):
    """``kill -9`` of an agent of a test."""


class Host:
    """A machine on which agents come and go, and hollow guests stay."""

    provisioner: User | None = None
    """The user who writes claims, unless the node does."""

    def __init__(
        self,
        directory: Path,
        whole,
        behaviour: Behaviour | None = None,
        storage: Storage | None = None,
    ) -> None:
        self.directory = directory
        self.storage = storage
        self.whole = whole
        self.behaviour = behaviour or Behaviour(boot_seconds=1, shutdown_seconds=0.5)
        self.steps: Counter[tuple[str, str]] = Counter()
        self.kill_at = ""
        self.agent: Agent | None = None
        self.hypervisor = Hollow(self.behaviour)

    def step(self, uid: str, name: str) -> None:
        self.steps[uid, name] += 1
        if name == self.kill_at:
            self.kill_at = ""
            raise Killed

    async def run(self) -> None:
        """One life of an agent, until it is killed."""
        client = Client(InProcess(self.whole.server.handle, USER))
        # No two processes read the clock at the same instant: events are named after it.
        context = ControllerContext(
            client, clock=lambda: self.whole.clock() + timedelta(microseconds=1)
        )
        self.hypervisor = Hollow(self.behaviour)
        images = ImageStore(self.directory / "images")
        provisioner = self.provisioner and Client(
            InProcess(self.whole.server.handle, self.provisioner)
        )
        self.agent = Agent(
            context,
            "node1",
            self.directory,
            HostParts(
                images=images,
                storage=self.storage,
                networks=HollowNetworks(),
                provisioner=provisioner,
            ),
            hypervisor=self.hypervisor,
            capacity=CAPACITY,
            address="192.0.2.1",
            step=self.step,
        )
        with suppress(BaseExceptionGroup):
            async with Background() as tasks:
                tasks.start(context.run(), name="context")
                tasks.start(images.watch(), name="images")
                await self.agent.run()

    async def serve(self) -> None:
        """Agents, each of which begins when the one before was killed."""
        while True:
            self.life = asyncio.create_task(self.run())
            try:
                await asyncio.wait([self.life])
            finally:
                self.life.cancel()
            await asyncio.sleep(1)

    async def killed(self) -> bool:
        """Return whether the agent was killed where it was to be."""
        return not self.kill_at

    @property
    def remains(self) -> list[Path]:
        return list((self.directory / "machines").iterdir())


@asynccontextmanager
async def node(
    directory: Path,
    behaviour: Behaviour | None = None,
    *,
    pod_cidr: str = "10.244.0.0/24",
    storage: Storage | None = None,
    stand_ins=(),
):
    async with cluster(nodes=0, stand_ins=stand_ins) as whole:
        host = Host(directory, whole, behaviour, storage)
        async with Background() as tasks:
            tasks.start(host.serve(), name="host")

            async def registered():
                nodes = (await whole.client.list(Node)).items
                return bool(nodes and nodes[0].status.allocatable)

            await whole.until(registered)
            spec = {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]}
            await whole.client.patch(Node, Key("", "node1"), {"spec": spec})
            yield host


async def gone(host: Host) -> None:
    async def is_gone():
        return not (await host.whole.machines() or await host.whole.pods() or host.remains)

    await host.whole.until(is_gone, 300)


def times(host: Host, name: str) -> set[int]:
    """Return how often each machine took a step, of those that took it."""
    return {count for (_, step), count in host.steps.items() if step == name}


async def test_vmis_of_a_set_start_and_stop(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=3))
        await host.whole.until_ready("test", 3)
        for machine in await host.whole.machines():
            assert machine.status.phase == "Running"
            assert machine.status.node_name == "node1"
        await host.whole.scale("test", 0)
        await gone(host)
        assert times(host, "spawned") == times(host, "erased") == {1}


async def test_a_source_learns_from_its_targets_pod_that_the_guest_has_ended(tmp_path, monkeypatch):
    """Though nothing of the VMI changes."""
    follows = [True]
    on_instance = Agent._on_instance
    monkeypatch.setattr(
        Agent,
        "_on_instance",
        lambda agent, old, new: on_instance(agent, old, new) if follows else None,
    )
    async with node(tmp_path) as host:
        client = host.whole.client
        await client.create(ReplicaSet, replica_set(replicas=1))
        await host.whole.until_ready("test", 1)
        [vmi], [pod] = await host.whole.machines(), await host.whole.pods()
        key = Key(vmi.metadata.namespace, vmi.metadata.name)
        follows.clear()
        state = {"migrationUid": "m", "sourceNode": "node1", "targetPod": "target"}
        await host.whole.component.patch(Machine, key, {"status": {"migrationState": state}})
        machine = host.agent._machines.get(Key(pod.metadata.namespace, pod.metadata.name))
        sent = msgspec.structs.replace(machine.record, stage=Stage.SENT, departure="m")
        machine._state.record = sent
        observed = []
        monkeypatch.setattr(machine.departure, "observe", observed.append)
        target = msgspec.to_builtins(pod)
        labels = {**target["metadata"]["labels"], "kubevirt.io/migrationJobUID": "m"}
        owners = target["metadata"]["ownerReferences"]
        target["metadata"] = {"name": "target", "labels": labels, "ownerReferences": owners}
        target["spec"]["nodeName"] = "node2"
        await client.create(Pod, target, key.namespace)
        assert TargetState.GONE not in observed
        where = Key(key.namespace, "target")
        await client.patch(Pod, where, {"status": {"phase": "Failed"}}, subresource="status")

        async def is_known():
            return TargetState.GONE in observed

        await host.whole.until(is_known, 10)


@pytest.mark.parametrize(
    "step", ["defined", "prepared", "spawned", "recorded", "resumed", "booted"]
)
async def test_an_agent_killed_during_starts_of_machines_resumes(tmp_path, step):
    async with node(tmp_path) as host:
        host.kill_at = step
        await host.whole.client.create(ReplicaSet, replica_set(replicas=3))
        await host.whole.until(host.killed)
        await host.whole.until_ready("test", 3)
        assert times(host, "spawned") == {1}
        assert times(host, "resumed") == {1}
        assert (
            len(
                host.steps.keys()
                & {(m.metadata.uid, "resumed") for m in await host.whole.machines()}
            )
            == 3
        )
        await host.whole.scale("test", 0)
        await gone(host)


@pytest.mark.parametrize("step", ["decided", "ended", "erased"])
async def test_an_agent_killed_during_stops_of_machines_resumes(tmp_path, step):
    async with node(tmp_path) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=3))
        await host.whole.until_ready("test", 3)
        host.kill_at = step
        await host.whole.scale("test", 0)
        await gone(host)
        assert host.kill_at == ""


async def kill(host: Host) -> None:
    """Kill the agent while nothing happens; the next one begins a second later."""
    host.life.cancel()
    await asyncio.wait([host.life])


async def test_machines_run_on_without_an_agent(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=3))
        await host.whole.until_ready("test", 3)
        before = {machine.metadata.uid for machine in await host.whole.machines()}
        addresses = await pod_addresses(host)
        await kill(host)
        await host.whole.until_ready("test", 3)
        assert {machine.metadata.uid for machine in await host.whole.machines()} == before
        assert times(host, "spawned") == {1}
        assert await pod_addresses(host) == addresses
        await host.whole.scale("test", 5)
        await host.whole.until_ready("test", 5)
        now = await pod_addresses(host)
        assert addresses.items() < now.items()
        assert len(set(now.values())) == 5


async def pod_addresses(host: Host) -> dict[str, str]:
    return {pod.metadata.name: pod.status.podIP for pod in await host.whole.pods()}


async def test_vmis_and_pods_have_the_same_addresses(tmp_path):
    async with node(tmp_path, pod_cidr="10.7.0.0/24") as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=3))
        await host.whole.until_ready("test", 3)
        pods = await pod_addresses(host)
        assert set(pods.values()) == {"10.7.0.2", "10.7.0.3", "10.7.0.4"}


async def test_a_machine_without_an_address_waits_for_a_free_one(tmp_path):
    async with node(tmp_path, pod_cidr="10.7.0.0/30") as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=2))

        async def complains():
            events = (await host.whole.client.list(Event)).items
            return any(one.reason == "FailedCreatePodSandBox" for one in events)

        await host.whole.until(complains)
        running = [one for one in await host.whole.machines() if one.status.phase == "Running"]
        assert len(running) == 1
        assert set((await pod_addresses(host)).values()) == {None, "10.7.0.2"}
        await host.whole.scale("test", 1)
        await host.whole.until_ready("test", 1)
        assert set((await pod_addresses(host)).values()) == {"10.7.0.2"}


async def test_records_without_addresses_of_earlier_versions_are_adopted(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=1))
        await host.whole.until_ready("test", 1)
        host.life.cancel()
        (path,) = host.directory.glob("machines/*/machine.json")
        former = msgspec.json.decode(path.read_bytes().splitlines()[-1])
        del former["addresses"]
        path.write_bytes(msgspec.json.encode(former))
        await host.whole.until_ready("test", 1)
        await host.whole.scale("test", 2)
        await host.whole.until_ready("test", 2)
        assert times(host, "spawned") == {1}


async def crash(host: Host) -> str:
    """End one guest as kill -9 does; answers its instance's uid."""
    directory, guest = next(iter(host.hypervisor.guests.items()))
    guest.crash()
    return directory.name


async def test_a_crashed_machine_fails_its_vmi_which_is_replaced(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=2))
        await host.whole.until_ready("test", 2)
        lost = await crash(host)

        async def is_replaced():
            machines = await host.whole.machines()
            return len(machines) == 2 and all(m.metadata.uid != lost for m in machines)

        await host.whole.until(is_replaced)
        await host.whole.until_ready("test", 2)


@pytest.mark.parametrize(
    ("shutdown_seconds", "grace", "outcome"),
    [(0.5, 10, Outcome.SUCCEEDED), (60, 3, Outcome.FAILED), (60, 0, Outcome.SUCCEEDED)],
)
async def test_a_guest_gets_the_grace_period_of_its_deleted_pod(
    tmp_path, shutdown_seconds, grace, outcome
):
    async with node(tmp_path, Behaviour(shutdown_seconds=shutdown_seconds)) as host:
        template = replica_set(replicas=1)["spec"]["template"]
        document = {"metadata": {"name": "vm", "namespace": "default"}, "spec": template["spec"]}
        document["spec"]["terminationGracePeriodSeconds"] = grace
        await host.whole.client.create(Machine, document)

        async def runs():
            machine = await host.whole.client.get(Machine, "vm", "default")
            return machine.status.phase == "Running"

        await host.whole.until(runs)
        begun = asyncio.get_running_loop().time()
        [pod] = await host.whole.pods()
        await host.whole.client.delete(Pod, Key("default", pod.metadata.name))

        async def over():
            return not await host.whole.pods()

        await host.whole.until(over)
        took = asyncio.get_running_loop().time() - begun
        assert took == pytest.approx(min(shutdown_seconds, grace), abs=1.5)
        machine = await host.whole.client.get(Machine, "vm", "default")
        assert machine.status.phase == outcome.value
        assert not host.remains


async def test_force_deleting_a_pod_leaves_no_machine(tmp_path):
    async with node(tmp_path, Behaviour(shutdown_seconds=60)) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=1))
        await host.whole.until_ready("test", 1)
        [pod] = await host.whole.pods()
        key = Key("default", pod.metadata.name)
        await host.whole.client.delete(Pod, key, grace_seconds=0)
        await host.whole.until_ready("test", 1)

        async def one_is_left():
            return len(host.remains) == 1 and pod.metadata.uid not in str(host.remains)

        await host.whole.until(one_is_left)


async def test_a_failed_start_is_reported_and_retried(tmp_path):
    behaviour = Behaviour(start_failures=0.7, seed=3)
    async with node(tmp_path, behaviour) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=4))

        async def some_fail():
            return any(
                condition.type == "Synchronized" and condition.reason == "StartFailed"
                for machine in await host.whole.machines()
                for condition in machine.status.conditions
            )

        await host.whole.until(some_fail)
        await host.whole.until_ready("test", 4, 3600)
        for machine in await host.whole.machines():
            assert all(one.type != "Synchronized" for one in machine.status.conditions)
        reasons = {
            event.reason
            for machine in await host.whole.machines()
            for event in await host.whole.events(machine.metadata.name)
        }
        assert {"StartFailed", "Created", "Started"} <= reasons


async def test_a_node_reports_its_status(tmp_path):
    async with node(tmp_path) as host:
        found = await host.whole.client.get(Node, "node1")
        assert found.metadata.labels["kubevirt.io/schedulable"] == "true"
        assert found.metadata.labels["kubernetes.io/hostname"] == "node1"
        assert found.status.allocatable["cpu"] == canonical(CAPACITY.cpu)
        assert {one.type: one.status for one in found.status.conditions}["Ready"] == "True"


class Opening(Hollow):
    """Hollow machines whose disks are prepared as those of real ones are."""

    needs_drives = True


async def test_a_missing_image_is_reported_and_awaited(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.sim.test_agent.Hollow", Opening)
    async with node(tmp_path) as host:
        template = replica_set(replicas=1)["spec"]["template"]
        document = {"metadata": {"name": "vm", "namespace": "default"}, "spec": template["spec"]}
        [volume] = document["spec"]["volumes"]
        volume["containerDisk"] = {"image": "nowhere/at-all:1", "imagePullPolicy": "Never"}
        await host.whole.client.create(Machine, document)

        async def machine():
            return await host.whole.client.get(Machine, "vm", "default")

        async def is_reported():
            return any(
                one.type == "Synchronized" and one.reason == "ErrImageNeverPull"
                for one in (await machine()).status.conditions
            )

        await host.whole.until(is_reported)
        [pod] = await host.whole.pods()
        waiting = {
            status.name: status.state.waiting.reason for status in pod.status.containerStatuses
        }
        assert waiting == {"compute": "ErrImageNeverPull", "volumeroot": "ErrImageNeverPull"}
        said = {(event.reason, event.type) for event in await host.whole.events(pod.metadata.name)}
        assert ("Failed", "Warning") in said
        assert (await machine()).status.phase == "Scheduling"

        await asyncio.sleep(LONGEST_BACK_OFF_SECONDS * 2)
        disk = tmp_path / "disk.raw"
        disk.write_bytes(bytes(1 << 20))
        imported = asyncio.get_running_loop().time()
        await ImageStore(host.directory / "images").import_disk(disk, ["nowhere/at-all:1"])

        async def runs():
            return (await machine()).status.phase == "Running"

        await host.whole.until(runs)
        assert asyncio.get_running_loop().time() - imported < FIRST_BACK_OFF_SECONDS
        assert not any(one.type == "Synchronized" for one in (await machine()).status.conditions)


async def test_a_missing_secret_of_a_volume_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.sim.test_agent.Hollow", Opening)
    async with node(tmp_path) as host:
        spec = {
            "domain": {
                "resources": {"requests": {"memory": "64M"}},
                "devices": {"disks": [{"name": "seed", "disk": {"bus": "virtio"}}]},
            },
            "volumes": [{"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "absent"}}}],
        }
        document = {"metadata": {"name": "vm", "namespace": "default"}, "spec": spec}
        await host.whole.client.create(Machine, document)

        async def is_reported():
            machine = await host.whole.client.get(Machine, "vm", "default")
            return any(
                one.reason == "FailedMount" and "absent" in one.message
                for one in machine.status.conditions
            )

        await host.whole.until(is_reported)


async def test_boots_are_limited_and_waiting_ones_are_reported(tmp_path, monkeypatch):
    async def two(_self):
        return 2

    monkeypatch.setattr(Hollow, "boots_at_once", two)
    async with node(tmp_path, Behaviour(boot_seconds=5)) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=5))
        begun = asyncio.get_running_loop().time()

        async def two_run():
            phases = [machine.status.phase for machine in await host.whole.machines()]
            return phases.count("Running") == 2 and len(phases) == 5

        await host.whole.until(two_run)
        await host.whole.until_ready("test", 5)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(10, abs=2)
        waited = [
            machine.metadata.name
            for machine in await host.whole.machines()
            for event in await host.whole.events(machine.metadata.name)
            if event.reason == "BootQueued"
        ]
        assert len(waited) == 3


def lonely(**spec) -> dict:
    """A machine that no set owns."""
    template = replica_set(replicas=1)["spec"]["template"]
    return {
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": {**template["spec"], **spec},
    }


async def phase(host: Host) -> str:
    return (await host.whole.client.get(Machine, "vm", "default")).status.phase


async def test_a_machine_that_crashed_without_an_agent_has_failed(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(Machine, lonely())

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)
        await kill(host)
        for directory in host.remains:
            (directory / "hollow.json").unlink()

        async def failed():
            return await phase(host) == "Failed"

        await host.whole.until(failed)
        assert times(host, "spawned") == {1}


async def test_a_pod_deleted_without_an_agent_leaves_no_machine(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(Machine, lonely())

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)
        await kill(host)
        [pod] = await host.whole.pods()
        key = Key("default", pod.metadata.name)
        await host.whole.client.delete(Pod, key, grace_seconds=0)

        async def nothing_is_left():
            return not host.remains

        await host.whole.until(nothing_is_left)
        assert await phase(host) == "Failed"


async def test_a_vmi_that_starts_paused_is_running_and_not_ready(tmp_path):
    async with node(tmp_path) as host:
        await host.whole.client.create(Machine, lonely(startStrategy="Paused"))

        async def is_paused():
            machine = await host.whole.client.get(Machine, "vm", "default")
            known = {one.type: one for one in machine.status.conditions}
            return (
                machine.status.phase == "Running"
                and "Paused" in known
                and known["Ready"].status == "False"
                and known["Ready"].reason == "ReadinessGatesNotReady"
            )

        await host.whole.until(is_paused)
        assert times(host, "resumed") == set()


async def test_a_vmi_deleted_before_its_start_is_gone_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.sim.test_agent.Hollow", Opening)
    async with node(tmp_path) as host:
        disk = {"image": "nowhere/at-all:1", "imagePullPolicy": "Never"}
        volumes = [{"name": "root", "containerDisk": disk}]
        await host.whole.client.create(Machine, lonely(volumes=volumes))

        async def waits():
            pods = await host.whole.pods()
            return bool(pods and pods[0].status.containerStatuses)

        await host.whole.until(waits)
        await host.whole.client.delete(Machine, Key("default", "vm"))
        begun = asyncio.get_running_loop().time()
        await gone(host)
        assert asyncio.get_running_loop().time() - begun < 5
        assert times(host, "spawned") == set()


async def test_no_machine_is_lost_or_duplicated_by_random_crashes_of_the_agent(tmp_path):
    async with node(tmp_path, Behaviour(boot_seconds=1, crashes=0.1, seed=7)) as host:
        await host.whole.client.create(ReplicaSet, replica_set(replicas=8))
        for seconds in (0.3, 0.7, 1.1, 1.9, 3.1):
            await asyncio.sleep(seconds)
            await kill(host)
        await host.whole.until_ready("test", 8, 300)
        assert times(host, "spawned") == {1}
        assert len(host.remains) == 8
        await host.whole.scale("test", 0)
        await asyncio.sleep(0.3)
        await kill(host)
        await gone(host)


async def test_a_pod_that_is_no_vmi_is_rejected_and_can_be_deleted(tmp_path):
    async with node(tmp_path) as host:
        client = host.whole.client
        spec = {"nodeName": "node1", "containers": [{"name": "plain", "image": "busybox"}]}
        document = {"metadata": {"name": "plain", "namespace": "default"}, "spec": spec}
        await client.create(Pod, document)

        async def is_reported():
            statuses = (await client.get(Pod, "plain", "default")).status.containerStatuses
            return bool(statuses) and statuses[0].state.waiting.reason == "NotAVirtualMachine"

        await host.whole.until(is_reported)
        await asyncio.sleep(1)
        [said] = await host.whole.events("plain")
        assert (said.reason, said.count) == ("NotAVirtualMachine", 1)
        await client.delete(Pod, Key("default", "plain"))
        await gone(host)


async def test_a_second_pod_of_a_vmi_is_rejected_and_its_machine_runs_on(tmp_path):
    async with node(tmp_path) as host:
        client = host.whole.client
        await client.create(Machine, lonely())

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)
        [own] = await host.whole.pods()
        copy = msgspec.to_builtins(own)
        references = copy["metadata"]["ownerReferences"]
        copy["metadata"] = {"name": "second", "namespace": "default", "ownerReferences": references}
        copy.pop("status")
        await client.create(Pod, copy)

        async def is_refused():
            status = (await client.get(Pod, "second", "default")).status
            return (status.phase, status.reason) == ("Failed", "NotTheInstancesOwnPod")

        await host.whole.until(is_refused)
        await asyncio.sleep(30)
        assert await phase(host) == "Running"
        assert len(host.remains) == len(host.hypervisor.guests) == 1
        await client.delete(Pod, Key("default", "second"), grace_seconds=0)
        await asyncio.sleep(30)
        assert await phase(host) == "Running"
        assert len(host.hypervisor.guests) == 1


class Silent(Hollow):
    """Hollow machines that cannot be reached when they are looked for, for a while."""

    until = 0.0

    async def find(self, directory):
        found = await super().find(directory)
        if found is not None and asyncio.get_running_loop().time() < Silent.until:
            raise GuestError("no answer")
        return found

    async def end(self, directory):
        Silent.until = 0.0
        await super().end(directory)


async def conditions(host: Host) -> dict[str, str]:
    machine = await host.whole.client.get(Machine, "vm", "default")
    return {one.type: one.reason for one in machine.status.conditions}


@asynccontextmanager
async def silent(directory: Path, monkeypatch):
    """A machine that runs, and whose monitor is silent to the agent that takes it over."""
    monkeypatch.setattr("tests.sim.test_agent.Hollow", Silent)
    monkeypatch.setattr(Silent, "until", 0.0)
    async with node(directory) as host:
        await host.whole.client.create(Machine, lonely())

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)
        Silent.until = asyncio.get_running_loop().time() + 100
        await kill(host)

        async def is_reported():
            return (await conditions(host)).get("Synchronized") == "MonitorSilent"

        await host.whole.until(is_reported)
        yield host


async def test_a_machine_without_a_response_is_queried_again_and_runs_on(tmp_path, monkeypatch):
    async with silent(tmp_path, monkeypatch) as host:
        [pod] = await host.whole.pods()
        assert pod.status.phase == "Running"

        async def answers():
            return "Synchronized" not in await conditions(host)

        await host.whole.until(answers, 300)
        assert await phase(host) == "Running"
        assert times(host, "spawned") == {1}


async def test_a_machine_without_a_response_is_killed_when_it_is_stopped(tmp_path, monkeypatch):
    async with silent(tmp_path, monkeypatch) as host:
        await host.whole.client.delete(Machine, Key("default", "vm"))
        begun = asyncio.get_running_loop().time()
        await gone(host)
        assert asyncio.get_running_loop().time() - begun < 5


async def test_a_machine_with_a_broken_monitor_connection_is_reconnected(tmp_path):
    async with node(tmp_path, Behaviour(crashes=0)) as host:
        await host.whole.client.create(Machine, lonely())

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)
        [before] = host.hypervisor.guests.values()
        before.happen(Change.LOST)

        async def is_found():
            return before not in host.hypervisor.guests.values() and host.hypervisor.guests

        await host.whole.until(is_found)
        assert await phase(host) == "Running"
        assert times(host, "spawned") == {1}
        await crash(host)

        async def failed():
            return await phase(host) == "Failed"

        await host.whole.until(failed)


async def test_a_guest_that_may_have_started_is_never_started_twice(tmp_path, monkeypatch):
    async def resume(_self):
        raise GuestError("cont: timed out")

    monkeypatch.setattr(HollowGuest, "resume", resume)
    async with node(tmp_path) as host:
        await host.whole.client.create(Machine, lonely())

        async def failed():
            return await phase(host) == "Failed"

        await host.whole.until(failed)
        await asyncio.sleep(60)
        assert times(host, "spawned") == {1}
        [stopped] = [one for one in await host.whole.events("vm") if one.reason == "Stopped"]
        assert stopped.type == "Warning"
        assert "cont: timed out" in stopped.message


async def test_a_machine_whose_start_cannot_be_recorded_is_not_started(tmp_path, monkeypatch):
    write = records.write

    def full(directory, record):
        if record.stage is Stage.STARTED:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(directory, record)

    monkeypatch.setattr(records, "write", full)
    async with node(tmp_path) as host:
        await host.whole.client.create(Machine, lonely())

        async def is_reported():
            return (await conditions(host)).get("Synchronized") == "StartFailed"

        await host.whole.until(is_reported)
        [machine] = host.agent._machines.values()
        assert machine.record == records.read(machine.directory)
        assert machine.record.stage is Stage.DEFINED
        monkeypatch.setattr(records, "write", write)

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)


async def test_a_guest_with_changed_addresses_is_queried_again(tmp_path, monkeypatch):
    addresses = []
    monkeypatch.setattr(HollowGuest, "query_guest_info", lambda _self: guest_info(addresses))

    async def shown():
        machine = await host.whole.client.get(Machine, "vm", "default")
        return [one.ip_address for one in machine.status.interfaces]

    async def is_shown():
        return await shown() == addresses

    async with node(tmp_path) as host:
        devices = {"interfaces": [{"name": "default", "macAddress": MAC, "bridge": {}}]}
        domain = {"resources": {"requests": {"memory": "64M"}}, "devices": devices}
        networks = [{"name": "default", "pod": {}}]
        await host.whole.client.create(
            Machine, lonely(domain=domain, networks=networks, volumes=[])
        )

        async def runs():
            return await phase(host) == "Running"

        await host.whole.until(runs)
        await asyncio.sleep(100)
        for address in ("192.0.2.7", "192.0.2.8"):
            addresses[:] = [address]
            await host.whole.until(is_shown, REFRESH_SECONDS * 2)
        [guest] = host.hypervisor.guests.values()
        addresses[:] = ["192.0.2.9"]
        guest.happen(Change.RESUMED)
        await host.whole.until(is_shown, 15)


async def test_a_flapping_guest_agent_is_not_queried_each_time(tmp_path, monkeypatch):
    queried = []

    async def query_guest_info(_guest):
        queried.append(asyncio.get_running_loop().time())
        return await guest_info([f"192.0.2.{len(queried)}"])

    monkeypatch.setattr(HollowGuest, "query_guest_info", query_guest_info)
    async with node(tmp_path) as host:
        await host.whole.client.create(Machine, lonely())

        async def is_asked():
            return queried

        await host.whole.until(is_asked)
        [guest] = host.hypervisor.guests.values()
        for _ in range(60):
            guest.happen(Change.AGENT_CONNECTED)
            await asyncio.sleep(1)
    assert len(queried) >= 5
    assert min(late - soon for soon, late in pairwise(queried)) > 9.9


MAC = "02:00:00:00:00:01"


async def guest_info(addresses):
    card = GuestInterface(name="eth0", mac=MAC, addresses=tuple(addresses))
    return GuestInfo(interfaces=(card,))
