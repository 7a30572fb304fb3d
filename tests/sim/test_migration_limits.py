"""Two pods of one VMI while it migrates: what budgets and quotas make of them."""

import asyncio

import pytest
from lightkube.models.core_v1 import Pod, ResourceQuota
from lightkube.models.policy_v1 import PodDisruptionBudget
from tests.sim.cluster import cluster
from tests.sim.drains import evict
from tests.sim.migrations import in_phase, migrate, migration, running, slow, started, vmi

from corral.api.errors import TooManyRequests
from corral.api.object import Key
from corral.reconcile.objects import key_of

pytestmark = pytest.mark.looptime
BUDGET = Key("default", "budget")
QUOTA = Key("default", "q")
NO_QUOTA = "migrationRejectedByResourceQuota"


async def protect(c, **spec):
    """Create a budget for all machines; wait until it counts them."""
    selector = {"matchLabels": {"kubevirt.io": "virt-launcher"}}
    document = {"metadata": BUDGET._asdict(), "spec": {"selector": selector, **spec}}
    await c.client.create(PodDisruptionBudget, document)
    await asyncio.sleep(1)


async def allowed(c):
    return (await c.client.get(PodDisruptionBudget, *reversed(BUDGET))).status.disruptionsAllowed


@pytest.mark.parametrize(
    "spec", [{"minAvailable": 2}, {"maxUnavailable": 1}, {"minAvailable": "60%"}]
)
async def test_a_budget_allows_no_more_evictions_while_machines_migrate(spec):
    async with cluster(nodes=2) as c:
        machines = await started(c, 3)
        await protect(c, **spec)
        assert await allowed(c) == 1
        slow(c, 5)
        most = 0
        for number, machine in enumerate(machines):
            await migrate(c, machine, f"m{number}")

        async def are_done():
            nonlocal most
            most = max(most, await allowed(c))
            names = [f"m{number}" for number in range(len(machines))]
            return all([(await migration(c, name)).status.phase == "Succeeded" for name in names])

        await c.until(are_done, 120)
        assert most == 1, "two pods of one VMI count as one"
        await asyncio.sleep(5)
        assert await allowed(c) == 1


async def test_neither_pod_of_a_vmi_that_migrates_may_be_evicted():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        memory = running(c)
        slow(c, 30)
        await migrate(c, before)
        await in_phase(c, "Running")
        for pod in await c.pods("default"):
            with pytest.raises(TooManyRequests, match="denied the request"):
                await evict(c, key_of(pod))
        await in_phase(c, "Succeeded")
        assert running(c) == memory


async def limit(c, pods):
    document = {"metadata": QUOTA._asdict(), "spec": {"hard": {"pods": str(pods)}}}
    await c.client.create(ResourceQuota, document)
    await asyncio.sleep(1)


async def conditions(c):
    found = (await migration(c)).status.conditions
    return {each.type: each.status for each in found}


async def test_a_migration_waits_for_the_quota_of_its_target_pod():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        await limit(c, 1)
        await migrate(c, before)

        async def is_rejected():
            return await conditions(c) == {NO_QUOTA: "True"}

        await c.until(is_rejected, 10)
        await asyncio.sleep(120)
        assert (await migration(c)).status.phase == "Pending"
        assert (await vmi(c, before)).status.phase == "Running"
        assert [key_of(pod).name for pod in await c.pods("default")] == [
            key_of(pod).name for pod in (await c.client.list(Pod, "default")).items
        ]
        events = [each.message for each in await c.events(before.metadata.name)]
        assert any(
            "Error creating pod: pods" in each and "exceeded quota" in each for each in events
        )
        await c.client.patch(ResourceQuota, QUOTA, {"spec": {"hard": {"pods": "2"}}})
        begun = asyncio.get_running_loop().time()
        await in_phase(c, "Succeeded")
        assert asyncio.get_running_loop().time() - begun < 10
        assert NO_QUOTA not in await conditions(c)


async def test_a_pod_that_is_left_behind_leaves_its_quota():
    async with cluster(nodes=2) as c:
        [before] = await started(c)
        await limit(c, 2)
        for number in range(4):
            await migrate(c, before, f"m{number}")
            done = await in_phase(c, "Succeeded", "Failed", name=f"m{number}")
            assert done.status.phase == "Succeeded"

            async def is_free():
                used = (await c.client.get(ResourceQuota, *reversed(QUOTA))).status.used
                return used == {"pods": "1"}

            await c.until(is_free, 10)
