"""A guest gets what the VMI controller has granted, as its VMI and its hypervisor say."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import Signal
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.guest.resizing import _Resize
from corral.node.hypervisor import GuestError, GuestSize
from corral.node.machine.startup import FIRST_BACK_OFF_SECONDS
from corral.node.state.facts import Facts, State

pytestmark = pytest.mark.looptime
GIB = 1 << 30


def vmi(*, sockets=2, guest="2Gi", requested="2Gi", granted=True):
    change = {"type": "HotVCPUChange", "status": "True" if granted else "False"}
    document = {
        "metadata": {"name": "vm"},
        "spec": {
            "domain": {
                "cpu": {"sockets": sockets, "maxSockets": 4},
                "memory": {"guest": guest, "maxGuest": "4Gi"},
                "devices": {},
            }
        },
        "status": {
            "phase": "Running",
            "conditions": [change],
            "memory": {"guestAtBoot": "1Gi", "guestRequested": requested},
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


class Site:
    """A machine whose hypervisor plugs things in; ``fault``: why it does not."""

    def __init__(self, *, fault="", agent=False):
        self.size = GuestSize(1, GIB)
        self.fault = fault
        self.onlined = 0
        self.events = []
        self.facts = Facts(state=State.RUNNING, agent_connected=agent)
        self.guest = SimpleNamespace(resizing=self, agent=self)
        self.departure = SimpleNamespace(idle=Signal(is_set=True))
        recorder = SimpleNamespace(vmi_event=lambda *event: self.events.append(event))
        self.resize = _Resize(self, recorder)

    def set_facts(self, facts):
        self.facts = facts

    async def query(self):
        return self.size

    async def plug_processors(self, count):
        if self.fault:
            raise GuestError(self.fault)
        self.size = self.size._replace(processors=count)

    async def request_memory(self, plugged):
        self.size = self.size._replace(requested_bytes=plugged)

    async def bring_online(self):
        self.onlined += 1


async def test_granted_vcpus_and_memory_are_plugged_in():
    site = Site()
    assert await site.resize.step(vmi()) is None
    assert site.size == GuestSize(2, GIB, 0, GIB)
    assert site.facts.size == site.size
    assert [reason for _, reason, _ in site.events] == ["HotPlugged", "MemoryRequested"]
    await site.resize.step(vmi())
    assert len(site.events) == 2, "there is nothing more to do"


async def test_what_is_not_granted_yet_waits():
    site = Site()
    await site.resize.step(vmi(granted=False, requested="1Gi"))
    assert site.size == GuestSize(1, GIB)


@pytest.mark.parametrize("saving", [True, False])
async def test_a_guest_that_is_saved_or_sent_keeps_its_size(saving):
    site = Site()
    if saving:
        site.set_facts(replace(site.facts, saving=True))
    else:
        site.departure.idle.clear()
    assert await site.resize.step(vmi()) == FIRST_BACK_OFF_SECONDS
    assert site.size == GuestSize(1, GIB)


async def test_a_failure_is_reported_once_and_retried_after_growing_pauses():
    site = Site(fault="no room")
    assert await site.resize.step(vmi()) == FIRST_BACK_OFF_SECONDS
    assert site.facts.resize_failure == "no room"
    assert site.events == [("Warning", "HotPlugFailed", "no room")]
    left = await site.resize.step(vmi())
    assert 0 < left <= FIRST_BACK_OFF_SECONDS, "a change of the VMI elsewhere does not hurry it"
    site.resize.again_at = 0.0
    assert await site.resize.step(vmi()) == 2 * FIRST_BACK_OFF_SECONDS
    assert len(site.events) == 1
    site.fault, site.resize.again_at = "", 0.0
    await site.resize.step(vmi())
    assert site.facts.resize_failure == ""
    assert site.size.processors == 2


async def test_the_agent_brings_online_what_the_guest_has_seen():
    site = Site(agent=True)
    await site.resize.step(vmi())
    assert site.onlined == 0, "the guest has not seen it yet"
    site.resize.on_changed()
    await site.resize.step(vmi())
    assert site.onlined == 1
    await site.resize.step(vmi())
    assert site.onlined == 1


async def test_a_guest_without_an_agent_is_brought_online_once_there_is_one():
    site = Site()
    site.resize.on_changed()
    await site.resize.step(vmi())
    assert site.onlined == 0
    site.set_facts(replace(site.facts, agent_connected=True))
    await site.resize.step(vmi())
    assert site.onlined == 1


async def test_what_was_plugged_in_before_a_manager_ended_is_brought_online_by_the_next():
    site = Site(agent=True)
    grown = vmi(requested="1Gi", guest="1Gi")
    grown.metadata.annotations["corral.dev/boot-sockets"] = "1"
    site.size = GuestSize(2, GIB)
    await site.resize.step(grown)
    await site.resize.step(grown)
    assert site.onlined == 1


async def test_nothing_is_plugged_in_while_the_vmi_migrates():
    """The target starts with as many vCPUs as the guest has at the hand-over."""
    site, machine = Site(), vmi()
    machine.status.migration_state = MigrationState(migration_uid="m")
    assert await site.resize.step(machine) is None
    assert site.size == GuestSize(1, GIB)
    assert site.facts.size == site.size, "its size is reported"
    machine.status.migration_state = MigrationState(migration_uid="m", completed=True)
    await site.resize.step(machine)
    assert site.size == GuestSize(2, GIB, 0, GIB)
