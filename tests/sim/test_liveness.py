"""VMIs whose liveness probe fails."""

import asyncio

import pytest
from lightkube.models.core_v1 import Event
from tests.sim.cluster import cluster, replica_set

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet

pytestmark = pytest.mark.looptime

PROBE = {"guestAgentPing": {}, "periodSeconds": 5, "failureThreshold": 2}
GRACE_SECONDS = 40
WHY = "The VirtualMachineInstance failed its liveness probe: the guest agent does not answer"


def guarded():
    document = replica_set("test", 1)
    spec = document["spec"]["template"]["spec"]
    spec |= {"livenessProbe": PROBE, "terminationGracePeriodSeconds": GRACE_SECONDS}
    return document


async def falls_ill(c, shutdown_seconds):
    """The set's only machine, whose guest needs so long to shut down."""
    await c.client.create(ReplicaSet, guarded())
    await c.until_ready("test", 1)
    (machine,) = await c.machines()
    guest = c.guest(machine)
    guest.shutdown_seconds = shutdown_seconds
    guest.agent.well = False
    return machine


async def replaced(c, machine):
    async def is_replaced():
        machines = await c.machines()
        return machines and machine.metadata.uid not in {one.metadata.uid for one in machines}

    await c.until(is_replaced)
    await c.until_ready("test", 1)


async def events_of(c, machine, reason):
    return [
        (e.type, e.message) for e in await c.events(machine.metadata.name) if e.reason == reason
    ]


@pytest.mark.parametrize(
    ("shutdown_seconds", "ends_within"), [(0, 15), (20, 35), (1000, 15 + GRACE_SECONDS)]
)
async def test_a_vmi_with_a_failed_liveness_probe_shuts_down_gracefully_and_fails(
    shutdown_seconds, ends_within
):
    async with cluster() as c:
        machine = await falls_ill(c, shutdown_seconds)
        began = asyncio.get_running_loop().time()

        async def has_stopped():
            return await events_of(c, machine, "Stopped")

        await c.until(has_stopped)
        assert asyncio.get_running_loop().time() - began < ends_within
        assert await events_of(c, machine, "Stopped") == [("Warning", WHY)]
        events = (await c.client.list(Event)).items
        said = [one.message for one in events if one.reason == "Killing"]
        assert said == ["Container compute failed liveness probe"]
        await replaced(c, machine)


async def test_a_restarted_manager_stops_a_vmi_whose_liveness_probe_failed_before():
    async with cluster() as c:
        machine = await falls_ill(c, 1000)
        await asyncio.sleep(5 + 5 + 1)
        c.kill_agent("node0")
        await asyncio.sleep(1)
        c.start_node("node0")

        async def has_stopped():
            return await events_of(c, machine, "Stopped")

        await c.until(has_stopped)
        assert await events_of(c, machine, "Stopped") == [("Warning", WHY)]
        await replaced(c, machine)
