"""Budgets of disruptions, evictions and drains, as their users see them."""


import pytest
from lightkube.models.core_v1 import Pod
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget
from tests.sim.cluster import cluster, replica_set

from corral.api.errors import TooManyRequests
from corral.api.kinds.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key

pytestmark = pytest.mark.looptime

BUDGET = Key("default", "test")


def budget(**spec) -> dict:
    return {
        "metadata": {"name": "test", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "test"}}, **spec},
    }


async def evict(c, pod, **options) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        **({"deleteOptions": options} if options else {}),
    }
    await c.client.post(Pod, pod, "eviction", eviction)


async def status(c):
    return (await c.client.get(Budget, "test", "default")).status


async def allows(c, count: int) -> None:
    """Wait until the budget allows so many disruptions."""

    async def does() -> bool:
        told = await status(c)
        return told is not None and told.disruptionsAllowed == count

    await c.until(does)


@pytest.mark.parametrize(
    "bound", [{"minAvailable": "75%"}, {"maxUnavailable": 1}, {"minAvailable": 3}]
)
async def test_a_budget_lets_go_of_one_machine_of_four(bound):
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 4))
        await c.settled("test", 4)
        await c.client.create(Budget, budget(**bound))
        await allows(c, 1)
        told = await status(c)
        assert (told.currentHealthy, told.desiredHealthy, told.expectedPods) == (4, 3, 4)
        first, second, *_ = [Key("default", pod.metadata.name) for pod in await c.pods()]
        await evict(c, first)
        with pytest.raises(TooManyRequests, match="would violate the pod's disruption budget"):
            await evict(c, second)
        await c.until(lambda: _gone(c, first))
        await c.settled("test", 4)
        await allows(c, 1)
        await evict(c, second)


async def _gone(c, pod) -> bool:
    return pod.name not in {each.metadata.name for each in await c.pods()}
