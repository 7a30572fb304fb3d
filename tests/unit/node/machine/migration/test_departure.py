"""A machine that sends its guest: what it records, when, and who runs the guest after a failure."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import Background
from corral.api.kinds.vmi.derived import target_pod_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.hollow.hypervisor import Hollow, HollowNetworks
from corral.node.hypervisor import Definition, MigrationOptions, NoAnswerError, StartError
from corral.node.machine.disk_leases import LEASED, MachineLeases
from corral.node.machine.migration.departure import (
    CANCELLED,
    COMPLETE_SECONDS,
    Departure,
    MigrationRequest,
)
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.targets import LocalTarget, MigrationTargets
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records
from corral.node.state.facts import INTERRUPTED, LOST, Outcome, Progress
from corral.node.state.machine_record import Record, Stage
from corral.node.state.machine_state import MachineState

pytestmark = pytest.mark.looptime
NAMED = {"namespace": "default", "instance": "vm", "uid": "u", "pod": "p", "pod_uid": "p"}
MOVING = {"departure": "m", "departure_node": "b"}
REQUEST = MigrationRequest(uid="m", node="b", options=MigrationOptions())
VMI = msgspec.convert(
    {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
    },
    VirtualMachineInstance,
)


class Ways(HollowNetworks):
    """Networks that say where the address of the machine leads to, and whether its guest runs."""

    def __init__(self, source):
        self.source = source
        self.log = []

    async def take_over(self, owner):
        self.log.append((owner, self.source.runs))

    def let_go(self, owner, addresses, node, pod):
        self.log.append((node, pod, list(addresses), self.source.runs))


class Leases(MachineLeases):
    """Leases that another machine may have by now."""

    def __init__(self):
        super().__init__()
        self.failures = []
        self.taken_back = 0

    async def take_back(self, uid, prepare):
        assert uid == "u"
        await prepare()
        if self.failures:
            raise self.failures.pop(0)
        self.taken_back += 1


async def nothing():
    return {}


class Source:
    """A machine with a running guest, and the target of its migration on the same host."""

    def __init__(self, directory, record):
        self.ways, self.leases = Ways(self), Leases()
        self.directory = directory / "source"
        self.hypervisor = Hollow()
        self.targets = MigrationTargets()
        self.steps = []
        self.events = []
        recorder = SimpleNamespace(
            changed=lambda: None,
            vmi_event=lambda *event: self.events.append(event),
            pod_event=lambda *event: self.events.append(event),
        )
        self.state = MachineState(record, self.directory, recorder=recorder, step=self._step)
        self.directory.mkdir()
        records.write(self.directory, record)
        self.departure = Departure(
            self.state, self.targets.reach, Networking(self.ways), self.leases
        )

    def _step(self, step):
        self.steps.append((step, records.read(self.directory).stage))

    async def start(self):
        self.guest = await self._start(self.directory)
        await self.guest.resume()

    async def _start(self, directory, **options):
        return await self.hypervisor.start(Definition(vmi=VMI, directory=directory, **options))

    async def add_target(self):
        directory = self.directory.with_name("target")
        directory.mkdir()
        guest = await self._start(directory, receives=True)
        target = LocalTarget(guest, take_over=self._expected)
        self.targets.add("m", target)
        return target

    async def _expected(self):
        self.ways.log.append(("target", self.runs))

    @property
    def migration(self):
        return self.state.facts.migration

    @property
    def runs(self):
        """Whether its guest executes something."""
        running = self.hypervisor.guests.get(self.directory) is self.guest
        return running and not self.guest.received and self.state.facts.outcome is None


@pytest.fixture
def source_of(tmp_path):
    @asynccontextmanager
    async def make(vmi=VMI, **on_record):
        source = Source(tmp_path, Record(**{"stage": Stage.STARTED} | NAMED | on_record))
        await source.start()
        async with Background() as tasks:
            source.departure.start_tasks(tasks, source.guest, vmi, nothing)
            yield source

    return make


async def receive(target):
    """Receive the guest, as the target does."""
    await target.memory_opened.wait()
    await target.guest.receive(target.memory)
    target.is_complete = True
    target.notify()


async def run(target):
    """Run the guest on request, and show that in the API."""
    while not target.run_requested:
        target.changed.clear()
        await target.changed.wait()
    target.is_running = target.is_reported = True
    target.notify()


async def finished(source):
    await asyncio.sleep(10)
    assert source.departure.idle.is_set()


async def test_a_guest_is_handed_over_after_sent_is_recorded(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await receive(target)
        while not target.run_requested:
            target.changed.clear()
            await target.changed.wait()
        assert records.read(source.directory).stage is Stage.SENT
        assert not source.runs
        assert source.migration.progress is Progress.SENDING, "the API is written later"
        await run(target)
        await finished(source)
        assert target.guest.memory == source.guest.memory
    assert [step for step, _ in source.steps][:4] == [
        "sending",
        "transferred",
        "sent",
        "handed over",
    ]
    assert source.state.facts.outcome is Outcome.SUCCEEDED
    assert source.migration.progress is Progress.SENT
    assert [event[1] for event in source.events] == ["Migrating", "Migrated"]
    assert source.directory not in source.hypervisor.guests or not source.runs


async def test_the_record_says_sending_before_anything_is_sent(source_of):
    async with source_of() as source:
        await source.add_target()
        source.hypervisor.behaviour = replace(source.hypervisor.behaviour, migration_seconds=60)
        source.departure.request(REQUEST)
        await asyncio.sleep(1)
        record = records.read(source.directory)
        assert (record.stage, record.departure, record.departure_node) == (Stage.SENDING, "m", "b")
        assert source.runs


async def test_a_migration_without_a_target_leaves_the_guest_running(source_of):
    async with source_of() as source:
        source.departure.request(REQUEST)
        await finished(source)
        assert source.runs
        assert source.migration.progress is Progress.FAILED
        assert source.migration.failure == "node b has no target for this migration"
        assert records.read(source.directory).stage is Stage.STARTED
    kind, reason, message = source.events[-1]
    assert (kind, reason) == ("Warning", "Migrated")
    assert "migration uid m failed. reason:node b has no target" in message


async def test_a_target_that_fails_leaves_the_guest_running(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await target.memory_opened.wait()
        await target.guest.receive(target.memory)
        target.fail("QEMU cannot receive the guest")
        await finished(source)
        assert source.runs
        assert source.migration.failure == "the target failed: QEMU cannot receive the guest"


async def test_a_cancelled_migration_ends_its_target(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.hypervisor.behaviour = replace(source.hypervisor.behaviour, migration_seconds=60)
        source.departure.request(REQUEST)
        await asyncio.sleep(1)
        source.departure.cancel()
        await finished(source)
        assert target.failure == CANCELLED
        assert (source.migration.failure, source.migration.abort) == (CANCELLED, "Succeeded")
        assert source.runs


async def test_a_cancellation_comes_too_late_once_the_guest_is_handed_over(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await receive(target)
        await run(target)
        source.departure.cancel()
        await finished(source)
        assert source.migration.progress is Progress.SENT
        assert not target.failure


async def test_the_address_leads_to_the_target_once_the_guest_stands_still(source_of):
    """Packets wait for the guest there: what comes meanwhile is not lost."""
    async with source_of(addresses=("10.0.0.7",)) as source:
        target = await source.add_target()
        source.hypervisor.behaviour = replace(source.hypervisor.behaviour, migration_seconds=60)
        source.departure.request(REQUEST)
        await asyncio.sleep(59)
        assert source.ways.log == []
        await asyncio.sleep(2)
        pod = Key("default", target_pod_name(VMI, "m"))
        away = ("b", pod, ["10.0.0.7"], False)
        assert source.ways.log == [("target", False), away], "though it is not handed over"
        await receive(target)
        await run(target)
        await finished(source)
        assert source.ways.log == [("target", False), away, away]


async def test_the_address_leads_back_before_the_guest_runs_on(source_of):
    async with source_of(addresses=("10.0.0.7",)) as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await target.memory_opened.wait()
        await asyncio.sleep(1)
        assert len(source.ways.log) == 2
        target.fail("QEMU cannot receive the guest")
        await finished(source)
        assert source.ways.log[2:] == [("u", False)]
        assert source.runs


async def test_a_target_that_cannot_be_requested_to_expect_the_guest_changes_nothing(source_of):
    async with source_of(addresses=("10.0.0.7",)) as source:
        target = await source.add_target()

        async def is_lost():
            raise NoAnswerError("the connection to node b is lost")

        target.expect_guest = is_lost
        source.departure.request(REQUEST)
        await receive(target)
        await run(target)
        await finished(source)
        assert source.migration.progress is Progress.SENT


async def test_a_manager_that_finds_sent_leads_the_address_to_the_target(source_of):
    async with source_of(stage=Stage.SENT, addresses=("10.0.0.7",), **MOVING) as source:
        await asyncio.sleep(1)
        assert [each[0] for each in source.ways.log] == ["b"]


async def test_a_guest_that_is_given_back_has_its_leases_first(source_of):
    async with source_of(stage=Stage.SENT, **MOVING) as source:
        source.leases.failures = [StartError(LEASED, "the directory is lost")]
        await asyncio.sleep(5)
        source.departure.observe(TargetState.ABSENT)
        await finished(source)
        assert source.leases.taken_back == 1
        assert source.state.record.stage is Stage.STARTED


async def test_a_guest_whose_disk_is_another_machines_by_now_is_lost(source_of):
    async with source_of(stage=Stage.SENT, **MOVING) as source:
        source.leases.failures = [StartError(LEASED, "volume a is leased", busy="data")]
        await asyncio.sleep(5)
        source.departure.observe(TargetState.ABSENT)
        await finished(source)
        assert source.state.facts.outcome is Outcome.FAILED
        assert source.state.facts.message == LOST
        assert not source.runs


async def test_a_migration_is_run_once(source_of):
    async with source_of() as source:
        source.departure.request(REQUEST)
        await finished(source)
        before = list(source.steps)
        source.departure.request(REQUEST)
        await finished(source)
        assert source.steps == before
        source.departure.request(replace(REQUEST, uid="n"))
        await finished(source)
        assert source.steps == [*before, *before]


async def test_a_manager_that_finds_sending_cancels_the_migration(source_of):
    async with source_of(stage=Stage.SENDING, **MOVING) as source:
        await finished(source)
        assert source.runs
        assert source.migration.failure == INTERRUPTED
        assert records.read(source.directory).stage is Stage.STARTED


async def test_a_manager_that_finds_sent_notifies_the_target_again(source_of):
    async with source_of(stage=Stage.SENT, **MOVING) as source:
        await asyncio.sleep(5)
        assert source.state.facts.outcome is None, "the target may run the guest"
        target = await source.add_target()
        target.is_complete = True
        await run(target)
        await finished(source)
        assert source.state.facts.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("observed", "outcome", "stage"),
    [
        (TargetState.RUNNING, Outcome.SUCCEEDED, Stage.SENT),
        (TargetState.ABSENT, None, Stage.STARTED),
        (TargetState.UNKNOWN, None, Stage.SENT),
    ],
)
async def test_the_api_decides_about_a_target_that_does_not_answer(
    source_of, observed, outcome, stage
):
    async with source_of(stage=Stage.SENT, **MOVING) as source:
        await asyncio.sleep(5)
        source.departure.observe(observed)
        await asyncio.sleep(10)
        assert source.state.facts.outcome is outcome
        assert records.read(source.directory).stage is stage


async def test_a_target_that_runs_the_guest_need_not_answer(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await receive(target)
        while not target.run_requested:
            target.changed.clear()
            await target.changed.wait()
        await asyncio.sleep(60)
        assert source.state.facts.outcome is None
        source.departure.observe(TargetState.RUNNING)
        await finished(source)
        assert source.state.facts.outcome is Outcome.SUCCEEDED


async def test_a_manager_that_finds_sent_ends_the_guest_of_a_vmi_that_it_does_not_cache(source_of):
    """The API shows it on the target's host, so this host's watches have it no more."""
    async with source_of(vmi=None, stage=Stage.SENT, **MOVING) as source:
        await asyncio.sleep(5)
        assert not source.departure.idle.is_set(), "it may be that the target has failed"
        source.departure.observe(TargetState.RUNNING)
        await finished(source)
        assert source.state.facts.outcome is Outcome.SUCCEEDED
        assert not source.runs


async def test_a_target_that_ends_after_sent_gives_the_guest_back(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await receive(target)
        while not target.run_requested:
            target.changed.clear()
            await target.changed.wait()
        target.fail("QEMU has ended")
        await finished(source)
        assert source.runs
        assert source.migration.progress is Progress.FAILED


async def test_a_record_that_cannot_be_written_hands_nothing_over(source_of, monkeypatch):
    async with source_of() as source:
        target = await source.add_target()

        def full(directory, record, write=records.write):
            if record.stage is Stage.SENT:
                raise OSError(28, "No space left on device")
            write(directory, record)

        monkeypatch.setattr(records, "write", full)
        source.departure.request(REQUEST)
        await receive(target)
        await finished(source)
        assert not target.run_requested
        assert source.runs


async def test_a_target_that_never_reports_the_whole_guest_holds_no_stopped_one(source_of):
    async with source_of() as source:
        target = await source.add_target()
        source.departure.request(REQUEST)
        await target.memory_opened.wait()
        await target.guest.receive(target.memory)
        await asyncio.sleep(COMPLETE_SECONDS - 1)
        assert not source.runs
        assert not source.departure.idle.is_set()
        await finished(source)
        assert source.runs
        assert source.migration.failure == "the target has not received the whole guest after 30 s"
        assert target.failure == source.migration.failure
        assert not target.run_requested
        assert records.read(source.directory).stage is Stage.STARTED


class Silent:
    """A way to a target that never answers."""

    async def reach(self, _uid, _node):
        await asyncio.Event().wait()


async def test_a_migration_whose_target_does_not_answer_can_be_cancelled(source_of):
    async with source_of() as source:
        source.departure._connect_target = Silent().reach
        source.departure.request(REQUEST)
        await asyncio.sleep(1)
        assert not source.departure.idle.is_set()
        source.departure.cancel()
        await finished(source)
        assert (source.migration.failure, source.migration.abort) == (CANCELLED, "Succeeded")
        assert source.runs


async def test_what_the_api_shows_ends_the_wait_for_an_answer(source_of):
    async with source_of(stage=Stage.SENT, **MOVING) as source:
        source.departure._connect_target = Silent().reach
        await asyncio.sleep(100)
        source.departure.observe(TargetState.RUNNING)
        await asyncio.sleep(1)
        assert source.state.facts.outcome is Outcome.SUCCEEDED
