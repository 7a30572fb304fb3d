"""Spares that are kept paused: when their node pauses and resumes them, and whose pause it is."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.unit.controllers.make import make_vmi
from tests.unit.node.machine.test_lifecycle import NAMED

from corral.aio import Background
from corral.api.kinds.corral.spare_state import PAUSED_AS_SPARE, SPARE_STATE
from corral.api.kinds.corral.warm_pool import TEMPLATE_HASH_LABEL, WARM_POOL_LABEL
from corral.node.guest.paused_spares import PausedSpares, may_be_paused
from corral.node.hollow.hypervisor import Hollow
from corral.node.hypervisor import Definition, GuestError, RefusedError
from corral.node.machine.boot_slots import BootSlots
from corral.node.machine.lifecycle import Machine
from corral.node.network.attachment import Networking
from corral.node.state import machine_record as records
from corral.node.state.facts import PAUSED_BY_USER
from corral.node.state.machine_record import Record, Stage

pytestmark = pytest.mark.looptime
LABELS = {WARM_POOL_LABEL: "spares", TEMPLATE_HASH_LABEL: "0123456789"}


class Events:
    def __init__(self):
        self.listener = lambda: None

    def changed(self):
        self.listener()

    def vmi_event(self, *_): ...

    def pod_event(self, *_): ...


def spare(*, ready=True, state="Paused"):
    vmi = make_vmi(ready=ready, labels=dict(LABELS))
    if state is not None:
        vmi.metadata.annotations[SPARE_STATE] = state
    return vmi


class Fixture:
    """A machine that runs, beside the task that pauses it; ``vmi`` is what its node has cached."""

    def __init__(self, directory):
        self.directory = directory
        self.vmi = spare()
        self.task = PausedSpares(lambda _uid: self.vmi)
        self.hypervisor = Hollow()
        self.machine = None

    @property
    def guest(self):
        return self.hypervisor.guests[self.directory]

    @asynccontextmanager
    async def manager(self):
        """Run a manager, which finds the machine as the last one has left it."""
        events = Events()
        self.machine = Machine(
            records.read(self.directory),
            self.directory,
            hypervisor=self.hypervisor,
            networking=Networking(None),
            boot_slots=BootSlots(self.hypervisor.boots_at_once),
            recorder=events,
            on_step=lambda _: None,
            start_guest_tasks=lambda machine, tasks: tasks.start(
                self.task.run(machine), name="paused spare"
            ),
        )
        events.listener = self.wake
        async with Background() as tasks:
            running = tasks.start(self.machine.run(self.vmi, _no_drives), name="machine")
            await self.machine.synced()
            await asyncio.sleep(1)
            yield self.machine
            running.cancel()

    def wake(self):
        self.task.wake(self.machine.record.uid)

    async def becomes(self, vmi):
        """Have the node see another version of the VMI."""
        self.vmi = vmi
        self.wake()
        await asyncio.sleep(1)


async def _no_drives():
    return {}


@pytest.fixture
async def fixture(tmp_path):
    made = Fixture(tmp_path)
    records.write(tmp_path, msgspec.structs.replace(Record(**NAMED), stage=Stage.STARTED))
    guest = await made.hypervisor.start(Definition(vmi=made.vmi, directory=tmp_path))
    await guest.resume()
    return made


async def test_a_ready_spare_is_paused_and_goes_on_with_the_right_time_once_it_is_handed_out(
    fixture, monkeypatch
):
    fixture.vmi = spare(ready=False)
    async with fixture.manager() as machine:
        assert await fixture.guest.runs()
        await fixture.becomes(spare())
        assert not await fixture.guest.runs()
        assert machine.facts.paused == PAUSED_AS_SPARE
        asked = asyncio.Event()

        async def set_time(_seconds):
            assert await fixture.guest.runs()
            assert machine.facts.paused_as_spare, "it is not ready with the time of its pause"
            asked.set()

        monkeypatch.setattr(fixture.guest.agent, "set_time", set_time)
        await fixture.becomes(make_vmi())
        assert asked.is_set()
        assert await fixture.guest.runs()
        assert (machine.facts.paused, machine.facts.paused_as_spare) == ("", False)
        assert not records.read(fixture.directory).paused_as_spare


async def test_a_spare_whose_pool_keeps_it_running_is_not_paused(fixture):
    fixture.vmi = spare(state=None)
    async with fixture.manager():
        assert await fixture.guest.runs()
        await fixture.becomes(spare())
        assert not await fixture.guest.runs()
        await fixture.becomes(spare(state=None))
        assert await fixture.guest.runs()


async def test_the_source_of_a_checkpoint_is_not_paused(fixture):
    fixture.vmi = make_vmi(ready=True, labels={WARM_POOL_LABEL: "spares"})
    fixture.vmi.metadata.annotations[SPARE_STATE] = "Paused"
    async with fixture.manager():
        assert await fixture.guest.runs()


async def test_what_a_user_has_paused_stays_so_when_it_is_handed_out(fixture):
    fixture.vmi = spare(ready=False)
    async with fixture.manager() as machine:
        await machine.pause()
        await fixture.becomes(spare())
        assert machine.facts.paused == PAUSED_BY_USER
        await fixture.becomes(make_vmi())
        assert not await fixture.guest.runs()


async def test_a_user_who_pauses_a_paused_spare_has_it_stay_so(fixture):
    async with fixture.manager() as machine:
        assert machine.facts.paused == PAUSED_AS_SPARE
        fixture.vmi = make_vmi()
        await machine.pause()
        await fixture.becomes(make_vmi())
        assert machine.facts.paused == PAUSED_BY_USER
        assert not await fixture.guest.runs()


async def test_a_spare_that_a_user_resumes_is_paused_again(fixture):
    async with fixture.manager() as machine:
        await machine.unpause()
        await asyncio.sleep(1)
        assert not await fixture.guest.runs()
        await fixture.becomes(make_vmi())
        assert await fixture.guest.runs()


@pytest.mark.parametrize("paused", [True, False])
async def test_the_next_manager_resumes_what_was_handed_out_while_none_ran(fixture, paused):
    """``paused``: whether the first one was killed before, or after, the guest went on."""
    async with fixture.manager():
        assert not await fixture.guest.runs()
    guest = await fixture.hypervisor.find(fixture.directory)
    if not paused:
        await guest.resume()
    await guest.release()
    fixture.vmi = make_vmi()
    async with fixture.manager() as machine:
        assert await fixture.guest.runs()
        assert fixture.guest.agent.clock is not None
        assert not machine.record.paused_as_spare


async def test_the_next_manager_reports_whose_pause_it_is(fixture):
    async with fixture.manager():
        pass
    async with fixture.manager() as machine:
        assert machine.facts.paused == PAUSED_AS_SPARE


async def test_a_guest_that_cannot_be_paused_is_no_paused_spare_and_tried_again(
    fixture, monkeypatch
):
    async def fail():
        raise GuestError("busy")

    fixture.vmi = spare(ready=False)
    async with fixture.manager() as machine:
        with monkeypatch.context() as patch:
            patch.setattr(fixture.guest, "pause", fail)
            await fixture.becomes(spare())
            assert (machine.facts.paused, machine.facts.paused_as_spare) == ("", False)
        await asyncio.sleep(10)
        assert machine.facts.paused == PAUSED_AS_SPARE


async def test_a_guest_without_hwclock_sets_its_clock_by_date(fixture, monkeypatch):
    async def refuse(_seconds):
        raise RefusedError("guest-set-time: this feature or command is not currently supported")

    async with fixture.manager():
        agent = fixture.guest.agent
        monkeypatch.setattr(agent, "set_time", refuse)
        await fixture.becomes(make_vmi())
        [(command, _)] = agent.runs
        assert command[:2] == ("date", "-s")


async def test_a_spare_that_moves_is_not_paused_meanwhile(fixture):
    fixture.vmi = spare(ready=False)
    async with fixture.manager() as machine, machine._state.turn:
        await fixture.becomes(spare())
        assert await fixture.guest.runs()


async def test_a_guest_that_ends_while_it_is_paused_has_ended(fixture):
    async with fixture.manager() as machine:
        fixture.guest.crash()
        await asyncio.sleep(1)
        assert machine.facts.ended
        assert machine.facts.paused == ""


def test_spares_alone_have_the_task():
    assert may_be_paused(spare(state=None))
    assert not may_be_paused(make_vmi())


async def test_nothing_is_asked_of_a_guest_that_stands_still(fixture, monkeypatch):
    """A query that was begun ends first: one that is cut off keeps the agent busy afterwards."""
    asked = []

    async def query():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(3)
        asked.append((began, await fixture.guest.runs()))
        answered.set()

    async def ping():
        await answered.wait()

    fixture.vmi, answered = spare(ready=False), asyncio.Event()
    async with fixture.manager() as machine:
        monkeypatch.setattr(fixture.guest, "query_guest_info", query)
        monkeypatch.setattr(fixture.guest.agent, "ping", ping)
        await asyncio.sleep(60)
        asked.clear()
        answered.clear()
        machine.refresh_guest_info()
        await asyncio.sleep(0.1)
        await fixture.becomes(spare())
        assert await fixture.guest.runs()
        await asyncio.sleep(5)
        assert not await fixture.guest.runs()
        machine.refresh_guest_info()
        await asyncio.sleep(60)
        assert [while_it_ran for _, while_it_ran in asked] == [True]
