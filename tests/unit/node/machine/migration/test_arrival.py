"""A machine that receives a guest: what it records, and when the guest runs here."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import Background, run_until
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hollow.hypervisor import Hollow, HollowNetworks
from corral.node.hypervisor import Definition, NoAnswerError, Outgoing, StartError
from corral.node.machine.disk_leases import LEASED, MachineLeases
from corral.node.machine.migration.arrival import Arrival
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.machine.resource_limits import MachineLimits
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records
from corral.node.state.facts import Outcome, Progress
from corral.node.state.machine_record import Record, Stage
from corral.node.state.machine_state import MachineState

pytestmark = pytest.mark.looptime
NAMED = {"namespace": "default", "instance": "vm", "uid": "u", "pod": "t", "pod_uid": "t"}
VMI = msgspec.convert(
    {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
    },
    VirtualMachineInstance,
)


ADDRESSES = ("10.0.0.7",)


class Site:
    """A host with a guest that runs, and a machine that is to receive it."""

    def __init__(self, directory, record, networks, leases):
        self.hypervisor = Hollow()
        self.targets = MigrationTargets()
        self.source = directory / "source"
        self.directory = directory / "target"
        for each in (self.source, self.directory):
            each.mkdir()
        self.targets.directories["u"] = self.source
        self.steps = []
        self.halted_when_reported = []
        self.arrived = []
        recorder = SimpleNamespace(changed=self._changed, vmi_event=print, pod_event=print)
        self.state = MachineState(record, self.directory, recorder=recorder, step=self._step)
        records.write(self.directory, record)
        self.arrival = Arrival(
            self.state,
            hypervisor=self.hypervisor,
            networking=Networking(networks),
            targets=self.targets,
            limits=MachineLimits(self.state, None, lambda: None),
            leases=leases,
            arrived=self.arrived.append,
            require=lambda _record: None,
        )

    def _step(self, step):
        guest = self.hypervisor.guests.get(self.directory)
        runs = guest is not None and not (guest.halted or guest.received)
        self.steps.append((step, records.read(self.directory).stage, runs))

    def _changed(self):
        migration = self.state.facts.migration
        if migration is not None and migration.progress is Progress.ARRIVED:
            self.halted_when_reported.append(self.guest.received)

    @property
    def guest(self):
        return self.hypervisor.guests[self.directory]

    async def start_source(self):
        self.source_guest = await self.hypervisor.start(Definition(vmi=VMI, directory=self.source))
        await self.source_guest.resume()

    async def target(self):
        """Return the target, once it is there."""
        while True:
            try:
                return await self.targets.reach("m", "here")
            except NoAnswerError:
                await asyncio.sleep(1)

    async def send(self):
        """Send the guest; return the target once it has all of it."""
        target = await self.target()
        memory = await target.open_memory()
        await self.source_guest.send(VMI, Outgoing(memory=memory, open_disk=target.open_disk))
        memory.close()
        await target.complete()
        return target


@pytest.fixture
def site_of(tmp_path, monkeypatch):
    async def inline(function, *arguments):
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", inline)

    @asynccontextmanager
    async def make(networks=None, leases=None, **on_record):
        record = Record(arrival="m", **NAMED | on_record)
        site = Site(tmp_path, record, networks, leases or MachineLeases())
        await site.start_source()
        async with Background() as tasks:
            site.tasks = tasks
            yield site

    return make


async def nothing():
    return {}


async def test_the_machine_is_as_the_vmi_was_handed_over(site_of):
    """Its guest may have got vCPUs since the target's pod was created."""
    grown = msgspec.convert(
        {
            **msgspec.to_builtins(VMI),
            "spec": {"domain": {"devices": {}, "cpu": {"maxSockets": 4}}},
            "status": {"currentCPUTopology": {"sockets": 3, "cores": 1, "threads": 1}},
        },
        VirtualMachineInstance,
    )
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(grown, [], "a")
        await (await site.send()).run_guest(paused=False)
        await running
        assert (await site.guest.resizing.query()).processors == 3


class Returned(HollowNetworks):
    """Networks that say whose addresses were given back."""

    def __init__(self):
        self.log = []

    async def give_back(self, owner, addresses):
        self.log.append((owner, tuple(addresses)))


def receives(site):
    return site.tasks.start(site.arrival.run(VMI, nothing), name="arrival")


async def test_a_guest_runs_here_once_the_source_says_so(site_of):
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(VMI, ["10.0.0.7"], "a")
        target = await site.send()
        await asyncio.sleep(10)
        assert site.guest.received, "it waits for the source"
        assert records.read(site.directory).stage is Stage.RECEIVING
        await target.run_guest(paused=False)
        await running
        assert site.arrived == [site.guest]
        assert site.guest.memory == site.source_guest.memory
        assert not site.guest.received
        assert records.read(site.directory).stage is Stage.STARTED
    assert ("arriving", Stage.ARRIVING, False) in site.steps, "recorded before the guest runs"
    assert ("resumed", Stage.ARRIVING, True) in site.steps


async def test_the_api_is_written_after_the_guest_runs(site_of):
    """Else the guest stands still meanwhile."""
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(VMI, [], "a")
        await (await site.send()).run_guest(paused=False)
        await running
        assert site.halted_when_reported
        assert not any(site.halted_when_reported)


async def test_a_guest_that_was_paused_stays_paused(site_of):
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(VMI, [], "a")
        await (await site.send()).run_guest(paused=True)
        await running
        assert site.guest.received
        assert site.state.facts.paused
        assert site.state.facts.migration.progress is Progress.ARRIVED


async def test_nothing_is_started_before_the_addresses_are_known(site_of):
    async with site_of() as site:
        receives(site)
        await asyncio.sleep(60)
        assert site.arrival.awaits_addresses
        assert site.directory not in site.hypervisor.guests
        site.arrival.arrange(VMI, [], "a")
        assert not site.arrival.awaits_addresses
        await site.target()
        assert site.guest.halted


async def test_a_target_whose_migration_fails_ends(site_of):
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(VMI, [], "a")
        target = await site.target()
        site.arrival.end("it was cancelled")
        await running
        assert target.failure == "it was cancelled"
        assert site.state.facts.outcome is Outcome.FAILED
        assert site.state.facts.message == "The migration target failed: it was cancelled"
        assert MachineState(
            records.read(site.directory), site.directory, recorder=None, step=None
        ).facts.never_ran, "also after a restart"
        assert site.directory not in site.hypervisor.guests
        with pytest.raises(NoAnswerError):
            await site.targets.reach("m", "here")


async def test_a_target_requested_to_run_does_not_end(site_of):
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(VMI, [], "a")
        target = await site.send()
        requesting = site.tasks.start(target.run_guest(paused=False), name="request run")
        while not target.run_requested:
            await asyncio.sleep(0)
        site.arrival.end("too late")
        await requesting
        await running
        assert site.state.facts.outcome is None
        assert site.arrived


async def test_a_target_that_cannot_start_says_why(site_of):
    async with site_of() as site:
        site.hypervisor.behaviour = replace(site.hypervisor.behaviour, start_failures=1)
        site.arrival.arrange(VMI, [], "a")
        await site.arrival.run(VMI, nothing)
        assert "the hollow machine is set to fail" in site.state.facts.message


async def test_memory_that_is_not_whole_fails_the_target(site_of):
    async with site_of() as site:
        running = receives(site)
        site.arrival.arrange(VMI, [], "a")
        target = await site.target()
        (await target.open_memory()).close()
        await running
        assert "its memory is not whole" in site.state.facts.message
        assert site.directory not in site.hypervisor.guests


async def test_an_earlier_managers_target_without_all_of_the_guest_ends(site_of):
    async with site_of(networks := Returned(), stage=Stage.RECEIVING, addresses=ADDRESSES) as site:
        await site.hypervisor.start(Definition(vmi=VMI, directory=site.directory, receives=True))
        await site.arrival.resume(site.guest, nothing)
        assert "the agent of the target node was restarted" in site.state.facts.message
    assert networks.log == [("t", ADDRESSES)]


async def test_addresses_lead_back_before_a_target_without_the_guest_ends(site_of):
    async with site_of(networks := Returned()) as site:
        running = receives(site)
        site.arrival.arrange(VMI, ADDRESSES, "a")
        target = await site.target()
        waiting = site.tasks.start(target.notified(), name="source")
        (await target.open_memory()).close()
        await waiting
        assert networks.log == [("t", ADDRESSES)], "before the source hears of it"
        await running


async def received(site):
    """A QEMU that has all of the guest, which an earlier manager has left."""
    target = await site.hypervisor.start(
        Definition(vmi=VMI, directory=site.directory, receives=True)
    )
    target._state.memory = site.source_guest.memory
    target._state.stopped, target._state.halted, target._state.receiving = True, False, False
    return target


async def test_an_earlier_managers_target_with_all_of_the_guest_waits_for_the_source(site_of):
    async with site_of(stage=Stage.RECEIVING) as site:
        guest = await received(site)
        resuming = site.tasks.start(site.arrival.resume(guest, nothing), name="resume")
        target = await site.target()
        await asyncio.sleep(10)
        assert guest.received
        await target.run_guest(paused=False)
        await resuming
        assert not guest.received


async def test_an_earlier_manager_that_was_requested_to_run_the_guest_does_so(site_of):
    async with site_of(stage=Stage.ARRIVING) as site:
        guest = await received(site)
        await site.arrival.resume(guest, nothing)
        assert not guest.received
        assert site.arrived == [guest]
        assert records.read(site.directory).stage is Stage.STARTED


class SlowNetworks(HollowNetworks):
    """Networks whose addresses are led elsewhere slowly."""

    def __init__(self):
        self.entered = asyncio.Event()

    async def take_over(self, _owner):
        self.entered.set()
        await asyncio.sleep(1)


async def test_a_target_that_is_stopped_while_it_runs_the_guest_notifies_its_source(site_of):
    stop, networks = asyncio.Event(), SlowNetworks()
    async with site_of(networks, stage=Stage.RECEIVING) as site:
        guest = await received(site)
        resuming = run_until(stop, site.arrival.resume(guest, nothing))
        living = site.tasks.start(resuming, name="resume")
        target = await site.target()
        requesting = site.tasks.start(target.run_guest(paused=False), name="request run")
        await networks.entered.wait()
        stop.set()
        await living
        await requesting
        assert await target.state() is TargetState.RUNNING
        assert site.state.record.stage is Stage.STARTED


class LostLeases(MachineLeases):
    """Leases in a directory that is lost."""

    def __init__(self):
        super().__init__()
        self.is_tried = asyncio.Event()

    async def take_over(self, _uid, _drives):
        self.is_tried.set()
        raise StartError(LEASED, "the directory is lost")


async def test_a_target_that_waits_for_its_leases_can_be_stopped(site_of):
    stop, leases = asyncio.Event(), LostLeases()
    async with site_of(leases=leases) as site:
        living = site.tasks.start(run_until(stop, site.arrival.run(VMI, nothing)), name="arrival")
        site.arrival.arrange(VMI, [], "a")
        target = await site.send()
        requesting = asyncio.ensure_future(target.run_guest(paused=False))
        await leases.is_tried.wait()
        stop.set()
        async with asyncio.timeout(5):
            await living
        assert (await site.hypervisor.find(site.directory)).received, "it has not run here"
        assert not site.arrived
        assert site.state.record.stage is Stage.ARRIVING
        with pytest.raises(NoAnswerError, match="the target was stopped"):
            await requesting
        assert await target.state() is TargetState.UNKNOWN, (
            "it may have run, as far as its record says"
        )
        with pytest.raises(NoAnswerError):
            await site.targets.reach("m", "here")
