"""The descheduler: unbalanced clusters become balanced, and stay so."""

import asyncio

import pytest
from lightkube.models.core_v1 import ConfigMap, Node
from tests.sim.cluster import cluster, replica_set
from tests.sim.drains import NAME
from tests.sim.migrations import movable_set, running

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration as Migration
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Vmi
from corral.api.yaml import dump
from corral.cluster.descheduler.settings import CONFIG_MAP, INTERVAL
from corral.node.status.node_status import Capacity
from corral.reconcile.objects import uid_of

pytestmark = pytest.mark.looptime

SMALL = Capacity(cpu=2, memory_bytes=2 << 30, storage_bytes=1 << 40)
INTERVAL_SECONDS = 60


def low_utilization(**args) -> dict:
    """Thresholds of which four VMIs a node are the target: each requests 6.5 % of its memory."""
    thresholds = {"cpu": 30, "memory": 25, "pods": 30}
    targets = {"cpu": 100, "memory": 27, "pods": 100}
    return {"LowNodeUtilization": {"thresholds": thresholds, "targetThresholds": targets, **args}}


def policy(plugins: dict, point: str = "balance", evictor: dict | None = None, **top) -> dict:
    """A policy of one profile with plugins of one extension point."""
    configs = [{"name": name, "args": args} for name, args in plugins.items()]
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "test",
                "pluginConfig": [{"name": "DefaultEvictor", "args": evictor or {}}, *configs],
                "plugins": {point: {"enabled": [*plugins]}},
            }
        ],
        **top,
    }


async def apply(c, document: dict | str, **annotations: str) -> ConfigMap:
    """Create the ConfigMap of a policy."""
    metadata = {
        "name": CONFIG_MAP.name,
        "namespace": CONFIG_MAP.namespace,
        "annotations": {INTERVAL: f"{INTERVAL_SECONDS}s", **annotations},
    }
    text = document if isinstance(document, str) else dump(document)
    return await c.client.create(ConfigMap, {"metadata": metadata, "data": {"policy.yaml": text}})


async def counts(c, nodes: int = 3) -> list[int]:
    """Return how many VMIs are on each node, the fewest first."""
    places = [each.status.node_name for each in await c.machines("default") if not each.is_final]
    return sorted(places.count(f"node{number}") for number in range(nodes))


async def balanced(c, expected: list[int], seconds: float = 1200) -> None:
    async def is_so() -> bool:
        machines = await c.machines("default")
        return (
            await counts(c, len(expected)) == expected
            and all(each.status.phase == "Running" for each in machines)
            and not any(each.status.evacuation_node_name for each in machines)
        )

    await c.until(is_so, seconds)


async def stays(c, cycles: int = 5) -> None:
    """Check that nothing is evicted in some further cycles."""
    before = {uid_of(pod) for pod in await c.pods("default") if pod.status.phase == "Running"}
    await asyncio.sleep(cycles * INTERVAL_SECONDS)
    after = {uid_of(pod) for pod in await c.pods("default") if pod.status.phase == "Running"}
    assert after == before


async def crowd(c, document: dict, replicas: int, others: int = 2) -> list[Vmi]:
    """Start all VMIs of a set on node0, then further nodes."""
    await c.client.create(ReplicaSet, document)
    await c.until_ready(NAME, replicas)
    for number in range(1, others + 1):
        c.start_node(f"node{number}", SMALL)

    async def are_ready() -> bool:
        nodes = (await c.client.list(Node)).items
        return len(nodes) == others + 1 and all(
            any(each.type == "Ready" and each.status == "True" for each in one.status.conditions)
            for one in nodes
        )

    await c.until(are_ready)
    return await c.machines("default")


async def test_vmis_that_migrate_leave_an_overutilized_node_alive():
    async with cluster(nodes=1, capacity=SMALL) as c:
        before = await crowd(c, movable_set(NAME, 12), 12)
        memory = sorted(map(str, running(c)))
        await apply(c, policy(low_utilization()))
        await balanced(c, [4, 4, 4])
        await stays(c)
        after = await c.machines("default")
        assert {each.metadata.uid for each in after} == {each.metadata.uid for each in before}
        assert sorted(map(str, running(c))) == memory
        migrations = (await c.client.list(Migration)).items
        assert {each.spec.priority for each in migrations} == {"system-maintenance"}
        assert not any("kubevirt.io/eviction-source" in each.metadata.annotations for each in after)


async def test_vmis_that_do_not_migrate_are_replaced_elsewhere():
    async with cluster(nodes=1, capacity=SMALL) as c:
        before = await crowd(c, replica_set(NAME, 12), 12)
        await apply(c, policy(low_utilization()))
        await balanced(c, [4, 4, 4])
        await stays(c)
        kept = {each.metadata.uid for each in await c.machines("default")}
        assert len(kept & {each.metadata.uid for each in before}) == 4
