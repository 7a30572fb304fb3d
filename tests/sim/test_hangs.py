"""Machines whose QEMU hangs, or cannot even be killed."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set
from tests.sim.pools import Pools

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.agent import hang_detector
from corral.node.host.process import Pulse

pytestmark = pytest.mark.looptime

LONGEST_SECONDS = (
    2 * hang_detector.INTERVAL_SECONDS + hang_detector.PINGS * hang_detector.ANSWER_SECONDS + 1
)


async def one_machine(c):
    """The only machine of a set that replaces nothing, and its guest."""
    await c.client.create(ReplicaSet, replica_set("test", 1))
    await c.until_ready("test", 1)
    await c.client.patch(ReplicaSet, Key("default", "test"), {"spec": {"paused": True}})
    (machine,) = await c.machines()
    return machine, c.guest(machine)


def condition(thing, type_):
    return next((one for one in thing.status.conditions if one.type == type_), None)


async def now(c, machine):
    return await c.client.get(Machine, machine.metadata.name, "default")


async def turns(c, machine, phase, seconds=LONGEST_SECONDS):
    async def has_turned():
        return (await now(c, machine)).status.phase == phase

    await c.until(has_turned, seconds)
    return await now(c, machine)


async def events_of(c, name):
    return [(e.type, e.reason, e.message) for e in await c.events(name)]


async def test_the_guest_of_a_hanging_qemu_is_unknown_until_qemu_responds():
    async with cluster() as c:
        machine, guest = await one_machine(c)
        guest.hung = True
        lost = await turns(c, machine, "Unknown")
        assert condition(lost, "Ready").reason == "GuestNotRunning"
        assert condition(lost, "Synchronized").reason == "MonitorSilent"
        (pod,) = await c.pods()
        assert pod.status.phase == "Running"
        assert {one.type: one.status for one in pod.status.conditions}["Ready"] == "False"
        why = "QEMU hangs: it is set to hang, and did so for 10 s"
        assert ("Warning", "MonitorSilent", why) in await events_of(c, machine.metadata.name)

        guest.hung = False
        back = await turns(c, machine, "Running", hang_detector._RETURN_SECONDS + 20)
        assert condition(back, "Synchronized") is None
        assert condition(back, "Ready").status == "True"
        phases = [one.phase for one in back.status.phase_transition_timestamps]
        assert phases[-3:] == ["Running", "Unknown", "Running"]


async def test_a_hanging_vmi_can_be_deleted():
    async with cluster() as c:
        machine, guest = await one_machine(c)
        guest.hung = True
        await turns(c, machine, "Unknown")
        await c.client.delete(Machine, machine.key)

        async def is_gone():
            return not await c.machines() and not await c.pods()

        await c.until(is_gone, 45)


async def test_a_machine_that_responded_during_a_save_is_queried_again_while_it_is_busy(
    monkeypatch,
):
    async with cluster() as c:
        machine, guest = await one_machine(c)
        guest.hung = True
        await turns(c, machine, "Unknown")
        with monkeypatch.context() as saved:
            saved.setattr(hang_detector, "_monitored_guest", lambda _: None)
            guest.hung = False
            await asyncio.sleep(hang_detector._RETURN_SECONDS)
        await turns(c, machine, "Running")


async def test_a_machine_that_responds_or_waits_for_cpu_does_not_hang():
    async with cluster() as c:
        machine, guest = await one_machine(c)
        guest.ran_nanos = lambda: 0  # idle, or paused
        await asyncio.sleep(3 * LONGEST_SECONDS)
        assert (await now(c, machine)).status.phase == "Running"
        guest.hung = True
        guest.pulse = lambda: Pulse(0, runnable=True)
        await asyncio.sleep(3 * LONGEST_SECONDS)
        assert (await now(c, machine)).status.phase == "Running"


async def test_a_killed_process_that_does_not_exit_is_reported_and_awaited():
    async with cluster() as c:
        machine, guest = await one_machine(c)
        guest.stuck = True
        await c.client.delete(Machine, machine.key)

        async def is_reported():
            said = condition(await now(c, machine), "Synchronized")
            return said is not None and said.reason == "FailedKillPod"

        await c.until(is_reported)
        (pod,) = await c.pods()
        (event,) = [
            one for one in await events_of(c, pod.metadata.name) if one[1] == "FailedKillPod"
        ]
        assert event == ("Warning", "FailedKillPod", "error killing pod: it is set not to end")
        guest.crash()

        async def is_gone():
            return not await c.machines()

        await c.until(is_gone)


async def test_a_set_replaces_a_hanging_vmi():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 2))
        await c.until_ready("test", 2)
        lost, spared = await c.machines()
        c.guest(lost).hung = True

        async def is_replaced():
            uids = {machine.metadata.uid for machine in await c.machines()}
            return lost.metadata.uid not in uids

        await c.until(is_replaced, LONGEST_SECONDS + 45)
        await c.until_ready("test", 2)
        assert spared.metadata.uid in {machine.metadata.uid for machine in await c.machines()}
        messages = [
            message for _, reason, message in await events_of(c, "test") if "Delete" in reason
        ]
        assert messages == [f"Deleted finished virtual machine: {lost.metadata.name}"]


async def test_a_pool_keeps_a_hanging_vm_as_not_ready():
    """Its disks may still be written to."""
    async with cluster() as c:
        web = Pools(c)
        await web.create(2, autohealing={"minFailingToStartDuration": "10s"})
        await web.until_ready(2)
        before = {name: machine.metadata.uid for name, machine in (await web.machines()).items()}
        c.guest((await web.machines())["web-0"]).hung = True

        async def is_lost():
            is_unknown = (await web.vm(0)).status.printable_status == "Unknown"
            return is_unknown and (await web.get()).status.ready_replicas == 1

        await c.until(is_lost, LONGEST_SECONDS + 1)
        await asyncio.sleep(400)
        after = {name: machine.metadata.uid for name, machine in (await web.machines()).items()}
        assert after == before
        c.guest((await web.machines())["web-0"]).hung = False
        await web.until_ready(2, hang_detector._RETURN_SECONDS + 20)
