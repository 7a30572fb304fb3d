"""The descheduler: unbalanced clusters become balanced, and stay so."""

import asyncio
from dataclasses import replace

import pytest
from lightkube.models.core_v1 import ConfigMap, Node
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget
from tests.sim.cluster import cluster, replica_set
from tests.sim.drains import NAME, allows, budget, witness
from tests.sim.migrations import movable_set, running

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration as Migration
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Vmi
from corral.api.yaml import dump
from corral.cluster.descheduler.settings import CONFIG_MAP, DRY_RUN, INTERVAL
from corral.cluster.descheduler.strategies import STRATEGIES
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


async def crowd(c, document: dict, replicas: int) -> list[Vmi]:
    """Start all VMIs of a set on node0, then two further nodes."""
    await c.client.create(ReplicaSet, document)
    await c.until_ready(NAME, replicas)
    await add_nodes(c)
    return await c.machines("default")


async def add_nodes(c, others: int = 2) -> None:
    """Start further nodes, and wait until they are ready."""
    for number in range(1, others + 1):
        c.start_node(f"node{number}", SMALL)

    async def are_ready() -> bool:
        nodes = (await c.client.list(Node)).items
        return len(nodes) == others + 1 and all(
            any(each.type == "Ready" and each.status == "True" for each in one.status.conditions)
            for one in nodes
        )

    await c.until(are_ready)


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


async def messages(c, name: str = CONFIG_MAP.name) -> dict[str, str]:
    """Return the newest message of each reason of the events of an object."""
    return {each.reason: each.message for each in await c.events(name)}


async def reported(c, reason: str) -> str:
    """Wait for an event of the ConfigMap; return its message."""

    async def is_there() -> bool:
        return reason in await messages(c)

    await c.until(is_there)
    return (await messages(c))[reason]


async def test_a_cycle_keeps_to_the_limits_of_its_policy():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        await apply(c, policy(low_utilization(), maxNoOfPodsToEvictTotal=3))
        await balanced(c, [1, 2, 9])
        await balanced(c, [3, 3, 6])
        await balanced(c, [4, 4, 4])
        await stays(c)


async def test_budgets_hold():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        await c.client.create(Budget, budget(minAvailable=11))
        await allows(c, 1)
        async with witness(c) as seen:
            await apply(c, policy(low_utilization(), evictionFailureEventNotification=True))
            await balanced(c, [4, 4, 4])
        assert seen.fewest >= 11
        failed = [each for pod in await c.pods() for each in await c.events(pod.metadata.name)]
        texts = [each.message for each in failed if each.reason == "EvictionFailed"]
        assert texts
        assert all("would violate the pod's disruption budget" in text for text in texts)


async def test_vmis_that_nothing_would_start_again_stay():
    async with cluster(nodes=1, capacity=SMALL) as c:
        template = replica_set(NAME, 1)["spec"]["template"]
        for number in range(12):
            metadata = {"name": f"alone{number}", "namespace": "default"}
            await c.client.create(Vmi, {"metadata": metadata, "spec": template["spec"]})
        await c.until(lambda: _all_run(c, 12))
        await add_nodes(c)
        await apply(c, policy(low_utilization()))
        await stays(c)
        assert await counts(c) == [0, 0, 12]


async def _all_run(c, count: int) -> bool:
    return [each.status.phase for each in await c.machines("default")] == ["Running"] * count


async def test_a_dry_run_reports_what_it_would_evict():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        config_map = await apply(c, policy(low_utilization()), **{DRY_RUN: "true"})
        text = await reported(c, "DryRun")
        assert "would be evicted from node node0: LowNodeUtilization" in text
        await stays(c, 2)
        change = {"metadata": {"annotations": {DRY_RUN: None}}}
        await c.client.patch(ConfigMap, CONFIG_MAP, change)
        assert config_map.metadata.name == CONFIG_MAP.name
        await balanced(c, [4, 4, 4])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("profiles: [", "policy.yaml: yaml: "),
        (policy({"Rebalance": {}}), '"Rebalance" is no plugin of the descheduler'),
        (policy(low_utilization(), maxPods=3), "unknown field `maxPods`"),
    ],
)
async def test_a_policy_that_is_not_valid_evicts_nothing_and_an_event_says_why(document, message):
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        await apply(c, document)
        assert message in await reported(c, "InvalidPolicy")
        await stays(c, 2)
        data = {"policy.yaml": dump(policy(low_utilization()))}
        await c.client.patch(ConfigMap, CONFIG_MAP, {"data": data})
        await balanced(c, [4, 4, 4])


async def test_one_node_is_too_few():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await c.client.create(ReplicaSet, replica_set(NAME, 12))
        await c.until_ready(NAME, 12)
        await apply(c, policy(low_utilization()))
        assert "requires >=2 ready nodes" in await reported(c, "TooFewNodes")
        await stays(c, 2)


async def test_evictions_are_events_and_metrics():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        before = {pod.metadata.name for pod in await c.pods("default")}
        await apply(c, policy(low_utilization(), maxNoOfPodsToEvictTotal=1))
        await balanced(c, [0, 1, 11])
        events = [each for name in before for each in await c.events(name)]
        [event] = [each for each in events if each.action == "Descheduled"]
        assert event.reason == "LowNodeUtilization"
        assert event.message == "pod eviction from node0 node by sigs.k8s.io/descheduler"
        metrics = await c.metrics()
        labels = {
            "result": "success",
            "strategy": "LowNodeUtilization",
            "profile": "test",
            "namespace": "default",
            "node": "node0",
        }
        assert metrics.value("descheduler_pods_evicted_total", **labels) == 1
        assert metrics.value("descheduler_loop_duration_seconds_count") == 1


async def test_a_policy_that_was_there_before_the_process_waits_for_the_nodes():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        await c.crash_loops()
        await apply(c, policy(low_utilization()))
        c.start_loops()
        await asyncio.sleep(50)
        assert await counts(c) == [0, 0, 12]
        await balanced(c, [4, 4, 4])


async def test_without_its_config_map_nothing_is_evicted_any_more():
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        await apply(c, policy(low_utilization(), maxNoOfPodsToEvictTotal=1))
        await balanced(c, [0, 1, 11])
        await c.client.delete(ConfigMap, CONFIG_MAP)
        await stays(c)


async def test_a_cycle_that_evicts_nobody_lets_others_have_their_turn(monkeypatch):
    turns, judged = [], []

    def evictions(_args, handle):
        for one in handle.snapshot.pods():
            had = len(turns)
            asyncio.get_running_loop().call_soon(turns.append, one)
            yield None
            judged.append(len(turns) > had)

    low = replace(STRATEGIES["LowNodeUtilization"], evictions=evictions)
    monkeypatch.setitem(STRATEGIES, "LowNodeUtilization", low)
    async with cluster(nodes=1, capacity=SMALL) as c:
        await crowd(c, replica_set(NAME, 12), 12)
        await apply(c, policy(low_utilization()))
        await c.until(lambda: _is(len(judged) >= 12))
        assert all(judged)


async def _is(value: bool) -> bool:
    return value
