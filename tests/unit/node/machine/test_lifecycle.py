"""The life of one machine, with a guest that is not there: what it does to what others hold."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import Background
from corral.api.kinds.vmi.fork_state import PENDING, RENEWED
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.fencing.watchdog import FENCED
from corral.node.hollow.hypervisor import Behaviour, Hollow, HollowGuest
from corral.node.hypervisor import (
    Definition,
    GuestError,
    GuestInfo,
    GuestInterface,
    HungError,
    StartError,
)
from corral.node.limits.bounds import Bounds
from corral.node.machine.boot_slots import BootSlots
from corral.node.machine.disk_leases import LEASED, MachineLeases
from corral.node.machine.lifecycle import Machine
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records
from corral.node.state.facts import MIGRATED, Facts, Outcome, State, not_received
from corral.node.state.machine_record import Record, Stage

pytestmark = pytest.mark.looptime

LINK = GuestInterface(name="eth0", mac="02:00:00:00:00:01", addresses=("192.0.2.7",))
NAMED = {"namespace": "default", "instance": "vm", "uid": "u", "pod": "p", "pod_uid": "p"}
VMI = msgspec.convert(
    {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
    },
    VirtualMachineInstance,
)


class Limits:
    """Has stopped what an earlier manager left, as one that bounds processors by itself does."""

    def __init__(self):
        self.stopped = True
        self.released = False
        self.back = []

    async def wake(self, _directory):
        self.stopped = False

    async def lift(self, _uid, _groups): ...

    async def was_oom_killed(self, _groups):
        return False

    async def remove(self, _uid, _groups): ...

    def lower_priority(self, _uid, back):
        self.back.append(back)

    def release(self, _uid):
        self.released = True


@pytest.fixture
def limits():
    return Limits()


@pytest.fixture
def hypervisor(limits):
    class Stoppable(Hollow):
        async def find(self, directory):
            if limits.stopped:
                raise HungError("it does not answer")
            return await super().find(directory)

        async def end(self, directory):
            assert not limits.stopped, "QEMU does not hear that it is to end"
            await super().end(directory)

    return Stoppable(Behaviour(boot_seconds=10))


@pytest.fixture
def boot_slots(hypervisor):
    return BootSlots(hypervisor.boots_at_once, size=2)


@pytest.fixture
def recorded():
    return []


@pytest.fixture
def machine_of(tmp_path, hypervisor, limits, boot_slots, recorded, monkeypatch):
    """A new machine, or one that an earlier manager has left: its record says so much."""
    monkeypatch.setattr(asyncio, "to_thread", inline)
    directory = tmp_path / "machines" / "u"

    def make(leases=None, targets=None, **on_record):
        record = Record(**{"bounds": Bounds(cpu_nanos=300_000_000)} | NAMED | on_record)
        if on_record:
            directory.mkdir(parents=True, exist_ok=True)
            records.write(directory, record)
        return Machine(
            record,
            directory,
            hypervisor=hypervisor,
            networking=Networking(None),
            boot_slots=boot_slots,
            recorder=SimpleNamespace(
                changed=lambda: None,
                pod_event=lambda *event: recorded.append(event),
                vmi_event=lambda *event: recorded.append(event),
            ),
            on_step=lambda _step: None,
            start_guest_tasks=lambda _machine, _tasks: None,
            limits=limits,
            leases=leases,
            targets=targets,
        )

    return make


async def inline(function, *arguments):
    return function(*arguments)


async def test_a_process_stopped_by_an_earlier_manager_is_resumed_before_queries(
    machine_of, recorded, limits
):
    machine = machine_of(stage=Stage.STARTED)
    async with asyncio.timeout(60):
        await machine.run(None, None)
    assert not limits.stopped
    assert "Unresponsive" not in [reason for _, reason, _ in recorded]
    assert machine.record.stage is Stage.ENDED


@asynccontextmanager
async def running(machine):
    async with Background() as tasks:
        tasks.start(machine.run(VMI, nothing), name="machine")
        await asyncio.sleep(1)
        yield


async def nothing():
    return {}


async def test_files_of_a_machine_are_private(machine_of, limits):
    limits.stopped = False
    machine = machine_of()
    async with running(machine):
        assert machine.directory.stat().st_mode & 0o777 == 0o700
        assert machine.record.stage is Stage.STARTED


async def test_a_guest_not_yet_released_by_an_earlier_manager_is_released_and_not_restarted(
    machine_of, hypervisor, limits
):
    limits.stopped = False
    machine = machine_of(stage=Stage.DEFINED)
    before = await hypervisor.start(
        Definition(vmi=VMI, directory=machine.directory, drives={}, network=None)
    )
    async with running(machine):
        assert machine.guest is before
        assert not before.halted
        assert machine.record.stage is Stage.STARTED


@pytest.mark.parametrize(
    ("seconds", "events"), [(1, ["ShuttingDown", "Stopped"]), (0, ["Stopped"])]
)
async def test_a_shutdown_with_a_grace_period_is_reported(
    machine_of, recorded, limits, seconds, events
):
    limits.stopped = False
    machine = machine_of()
    async with running(machine):
        machine.stop(seconds)
        machine.stop(seconds)
        await asyncio.sleep(60)
    assert [reason for _, reason, _ in recorded] == ["Created", "Started", *events]


async def test_the_last_booting_machine_has_low_priority(machine_of, limits, boot_slots):
    limits.stopped = False
    await boot_slots.acquire(lambda _size: None)
    async with running(machine_of()):
        assert limits.back == [True]
        await asyncio.sleep(10)
        assert limits.back == [True, False], "it is up"


async def test_a_failed_start_leaks_nothing(machine_of, hypervisor, limits, boot_slots, recorded):
    limits.stopped = False
    hypervisor.behaviour = Behaviour(start_failures=1)
    async with running(machine_of()):
        assert [reason for _, reason, _ in recorded] == ["StartFailed"]
        assert limits.released
        async with asyncio.timeout(1):
            for _ in range(2):
                await boot_slots.acquire(lambda _size: None)


async def test_guest_info_is_queried_until_it_has_addresses(machine_of, limits, monkeypatch):
    """Its agent may be up before its network is.  What it has reported by then counts at once."""
    queried = []

    async def query_guest_info(_guest):
        queried.append(round(asyncio.get_running_loop().time()) - 10)
        known = (LINK,) if len(queried) == 4 else ()
        return GuestInfo(hostname="vm", interfaces=known) if len(queried) > 1 else None

    monkeypatch.setattr(HollowGuest, "query_guest_info", query_guest_info)
    limits.stopped = False
    machine = machine_of()
    async with running(machine):
        await asyncio.sleep(12)
        assert machine.facts.guest_info == GuestInfo(hostname="vm")
        await asyncio.sleep(100)
        assert queried == [0, 1, 3, 7]
        assert machine.facts.guest_info.interfaces


async def test_a_fork_gets_its_identity_before_other_queries_and_other_boots(
    machine_of, limits, monkeypatch, boot_slots
):
    queried = []

    async def query_guest_info(_guest):
        queried.append(True)

    async def booted(_guest, _processors):
        await asyncio.Event().wait()

    monkeypatch.setattr(HollowGuest, "query_guest_info", query_guest_info)
    monkeypatch.setattr(HollowGuest, "booted", booted)
    limits.stopped = False
    await boot_slots.acquire(lambda _size: None)
    machine = machine_of(stage=Stage.DEFINED, fork=PENDING, fork_of="default/other")
    async with running(machine):
        await machine.agent_up.wait()
        next_slot = asyncio.create_task(boot_slots.acquire(lambda _size: None))
        await asyncio.sleep(5)
        assert queried == []
        assert not next_slot.done()
        machine.record_fork(RENEWED)
        await asyncio.sleep(0.1)
        assert queried == [True]
        assert next_slot.done()


async def test_an_adopted_machine_is_synced_once_its_guest_is_found(machine_of, limits):
    limits.stopped = False
    async with running(machine_of()):
        await asyncio.sleep(60)
    adopted = machine_of(stage=Stage.STARTED)
    before = asyncio.create_task(adopted.synced())
    await asyncio.sleep(0)
    assert not before.done()
    async with Background() as tasks:
        tasks.start(adopted.run(VMI, nothing), name="machine")
        begun = asyncio.get_running_loop().time()
        await before
        assert adopted.facts.state is State.RUNNING
        assert asyncio.get_running_loop().time() == begun


@pytest.mark.parametrize("stage", [Stage.DEFINED, Stage.ENDED])
async def test_a_machine_without_an_earlier_guest_is_synced(machine_of, stage):
    await asyncio.wait_for(machine_of(stage=stage).synced(), 1)


async def test_requests_do_not_wait_for_a_silent_qemu(machine_of, limits):
    limits.wake = nothing_wakes
    machine = machine_of(stage=Stage.STARTED)
    async with Background() as tasks:
        tasks.start(machine.run(VMI, nothing), name="machine")
        await asyncio.wait_for(machine.synced(), 1)
    with pytest.raises(GuestError, match="does not run"):
        _ = machine.guest


async def nothing_wakes(_directory): ...


async def test_a_machine_that_never_ran_reports_no_shutdown(machine_of, recorded):
    machine_of().stop(30)
    assert recorded == []


async def test_a_stopped_machine_is_stopping(machine_of):
    machine = machine_of()
    assert machine.stopping is False
    machine.stop(30)
    assert machine.stopping is True


async def test_a_finished_machine_is_not_killed_again(machine_of, limits, recorded):
    limits.stopped = False
    machine = machine_of(stage=Stage.ENDED)
    async with asyncio.timeout(60):
        await machine.run(VMI, nothing)
    assert machine.facts.state is State.ENDED
    assert recorded == []


async def test_a_machine_stopped_before_its_guest_runs_has_failed(machine_of, limits, boot_slots):
    limits.stopped = False
    for _ in range(2):
        await boot_slots.acquire(lambda _size: None)
    machine = machine_of()
    async with running(machine):
        assert machine.facts.state is State.QUEUED
        machine.stop(0)
        await asyncio.sleep(60)
        assert machine.record.stage is Stage.ENDED
    assert machine.facts.outcome is Outcome.FAILED
    assert "stopped before it was started" in machine.facts.message


async def test_a_manager_that_exits_releases_limits_of_running_machines(machine_of, limits):
    limits.stopped = False
    machine = machine_of()
    async with running(machine):
        assert machine.record.stage is Stage.STARTED
        assert not limits.released
    assert limits.released
    assert machine.record.stage is Stage.STARTED


async def test_guest_info_stays_while_the_guest_does_not_respond(machine_of, limits, monkeypatch):
    answers = [GuestInfo(hostname="vm")]

    async def query_guest_info(_guest):
        return answers.pop() if answers else None

    monkeypatch.setattr(HollowGuest, "query_guest_info", query_guest_info)
    limits.stopped = False
    machine = machine_of()
    async with running(machine):
        await asyncio.sleep(60)
        assert answers == []
        assert machine.facts.guest_info == GuestInfo(hostname="vm")


async def test_a_fenced_qemu_whose_guest_never_ran_does_not_fence_the_next(machine_of, limits):
    """As where the watchdog has ended it while the agent was dead."""
    limits.stopped = False
    machine = machine_of(stage=Stage.DEFINED)
    (machine.directory / FENCED).touch()
    async with running(machine):
        assert not (machine.directory / FENCED).exists()
        machine.stop(0)
        await asyncio.sleep(30)
    assert machine.record.stage is Stage.ENDED
    assert not machine.facts.fenced


SENT = {"stage": Stage.SENT, "departure": "m", "departure_node": "two"}


def fill(directory):
    """Let a machine have disks, sockets and logs."""
    (directory / "volumes").mkdir()
    for name in ("volumes/c.qcow2", "volumes/seed.iso", "monitor.sock", "console.log"):
        (directory / name).touch()


def left(directory):
    return sorted(each.name for each in directory.iterdir())


async def test_a_machine_that_has_migrated_leaves_no_disks(machine_of, hypervisor, limits):
    limits.stopped = False
    machine = machine_of(**SENT)
    guest = await hypervisor.start(Definition(vmi=VMI, directory=machine.directory))
    await guest.resume()
    fill(machine.directory)
    async with running(machine):
        await asyncio.sleep(30)
        assert machine.record.stage is Stage.SENT  # it does not know whether the target runs it
        assert (machine.directory / "volumes" / "c.qcow2").exists()
        machine.departure.observe(TargetState.RUNNING)
        await asyncio.sleep(30)
        assert machine.record.stage is Stage.ENDED
    assert machine.facts.message == MIGRATED
    assert left(machine.directory) == ["console.log", records.NAME]


@pytest.mark.parametrize(
    "record",
    [
        SENT | {"outcome": Outcome.SUCCEEDED, "message": MIGRATED},
        {
            "stage": Stage.DEFINED,
            "outcome": Outcome.FAILED,
            "message": not_received(Facts(), "").message,
            "never_ran": True,
        },
    ],
)
async def test_disks_go_after_the_manager_was_killed_before_they_were_gone(
    machine_of, limits, monkeypatch, record
):
    def killed(_directory):
        raise RuntimeError

    limits.stopped = False
    machine = machine_of(**record)
    fill(machine.directory)
    with monkeypatch.context() as patch:
        patch.setattr(records, "strip", killed)
        with pytest.raises(RuntimeError):
            await machine.run(VMI, nothing)
    found = records.read(machine.directory)
    assert found is not None
    await machine_of(**msgspec.structs.asdict(found)).run(VMI, nothing)
    assert records.read(machine.directory).stage is Stage.ENDED
    assert left(machine.directory) == ["console.log", records.NAME]


async def test_disks_of_a_guest_that_ended_here_stay_with_its_pod(machine_of, limits):
    limits.stopped = False
    machine = machine_of(stage=Stage.STARTED)
    fill(machine.directory)
    await machine.run(VMI, nothing)
    assert machine.record.stage is Stage.ENDED
    assert (machine.directory / "volumes" / "c.qcow2").exists()


class LostLeases(MachineLeases):
    """Leases in a directory that is lost."""

    async def take_over(self, _uid, _drives):
        raise StartError(LEASED, "the directory is lost")


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_machine_that_waits_for_leases_ends_at_once(
    machine_of, hypervisor, limits, seconds
):
    """Its guest has not run here since it was handed over: nothing hears the power button."""
    limits.stopped = False
    machine = machine_of(LostLeases(), stage=Stage.ARRIVING, arrival="m")
    definition = Definition(vmi=VMI, directory=machine.directory, receives=True)
    guest = await hypervisor.start(definition)
    guest._state.stopped, guest._state.halted, guest._state.receiving = True, False, False
    async with running(machine):
        machine.stop(seconds)
        await asyncio.sleep(5)
        assert machine.record.stage is Stage.ENDED
        assert machine.record.outcome is Outcome.FAILED
        assert not machine.record.started_at
    assert machine.directory not in hypervisor.guests


class Released(MachineLeases):
    """Leases that remember how they ended."""

    def __init__(self):
        super().__init__()
        self.ends = []

    async def release(self, uid):
        self.ends.append(("released", uid))

    def forget(self, uid):
        self.ends.append(("forgotten", uid))

    def leave(self, uid):
        self.ends.append(("left", uid))


@pytest.mark.parametrize(
    ("source", "end"),
    [("own", "forgotten"), ("", "forgotten"), ("other", "left")],  # "": not known yet
)
async def test_a_target_without_the_guest_leaves_the_leases_to_its_source(
    machine_of, limits, source, end
):
    limits.stopped = False

    async def copy_files(*_): ...

    leases = Released()
    others = SimpleNamespace(copy_files=copy_files)
    targets = MigrationTargets(lambda node: node == "own", others)
    machine = machine_of(leases, targets, arrival="m")
    async with running(machine):
        if source:
            machine.arrival.arrange(VMI, [], source)
        machine.arrival.end("the migration failed")
        await asyncio.sleep(5)
        assert machine.record.stage is Stage.ENDED
    assert leases.ends == [(end, "u")]


@pytest.mark.parametrize(("node", "end"), [("own", "forgotten"), ("other", "released")])
async def test_a_source_releases_its_leases_unless_the_target_is_on_its_host(
    machine_of, limits, node, end
):
    limits.stopped = False
    leases = Released()
    targets = MigrationTargets(lambda node: node == "own", SimpleNamespace())
    machine = machine_of(
        leases,
        targets,
        stage=Stage.SENT,
        departure="m",
        departure_node=node,
        outcome=Outcome.SUCCEEDED,
        message=MIGRATED,
    )
    await machine.run(VMI, nothing)
    assert leases.ends == [(end, "u")]


async def test_a_resize_that_is_taken_back_changes_nothing(machine_of, limits):
    """The task of the limits may not have had its turn since the resize."""
    limits.stopped = False
    machine = machine_of()
    before = machine.record.bounds
    async with running(machine):
        machine.set_bounds(Bounds(cpu_nanos=600_000_000))
        machine.set_bounds(before)
        await asyncio.sleep(1)
        assert machine.record.bounds == before
        machine.set_bounds(Bounds(cpu_nanos=600_000_000))
        await asyncio.sleep(1)
        assert machine.record.bounds == Bounds(cpu_nanos=600_000_000)
        machine.set_bounds(before)
        await asyncio.sleep(1)
        assert machine.record.bounds == before
