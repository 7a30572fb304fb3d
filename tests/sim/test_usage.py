"""Usage of pods and nodes, from the guests to the API."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.usage import NodeMetrics, PodMetrics
from corral.api.object import Key
from corral.api.quantity import parse
from corral.node.metrics.sampling.sampler import PERIOD_SECONDS

pytestmark = pytest.mark.looptime


async def running(whole, replicas=1, name="test"):
    """The machines of a set, once all of them run."""
    await whole.client.create(ReplicaSet, replica_set(name, replicas))

    async def all_run():
        return (await whole.replica_set(name)).status.ready_replicas == replicas

    await whole.until(all_run)
    machines = await whole.machines("default")
    return [one for one in machines if one.metadata.labels["app"] == name]


async def usages(whole, labels=""):
    """Processors that each pod takes in all its containers."""
    found = await whole.client.list(PodMetrics, "default", labels=labels)
    return {
        one.metadata.name: sum(parse(each.usage["cpu"]).nanos for each in one.containers) / 1e9
        for one in found.items
    }


async def looks(count=2):
    """Let every guest be looked at so many times more: it may just have been."""
    await asyncio.sleep(count * PERIOD_SECONDS)


async def test_usage_of_a_guest_is_served_for_its_pod_and_selected_by_labels():
    async with cluster() as whole:
        busy, idle = await running(whole, 2)
        await running(whole, 1, name="other")
        whole.guest(busy).load = 0.25
        await looks()
        taken = await usages(whole, labels="app=test")
        pods = {pod.metadata.labels["kubevirt.io/created-by"]: pod for pod in await whole.pods()}
        assert taken == {
            pods[busy.metadata.uid].metadata.name: pytest.approx(0.25, rel=0.01),
            pods[idle.metadata.uid].metadata.name: 0,
        }
        assert len(await usages(whole)) == 3


async def test_every_running_container_is_listed_and_only_the_guests_uses_anything():
    async with cluster() as whole:
        (machine,) = await running(whole)
        whole.guest(machine).load = 1.0
        await looks()
        (found,) = (await whole.client.list(PodMetrics, "default")).items
        (pod,) = await whole.pods("default")
        sidecars = [one.name for one in pod.spec.initContainers or () if one.restartPolicy]
        assert [one.name for one in found.containers] == [
            *(one.name for one in pod.spec.containers),
            *sidecars,
        ]
        others = [one.usage for one in found.containers if one.name != "compute"]
        assert others
        assert all(one == {"cpu": "0", "memory": "0"} for one in others)


async def test_a_new_pod_has_no_usage_before_two_samples():
    async with cluster() as whole:
        await running(whole)
        (pod,) = await whole.pods("default")
        key = Key("default", pod.metadata.name)
        with pytest.raises(NotFound, match=r"podmetrics\.metrics\.k8s\.io"):
            await whole.client.get(PodMetrics, key.name, key.namespace)
        await looks()
        found = await whole.client.get(PodMetrics, key.name, key.namespace)
        assert found.window == "15s"


async def test_after_a_restart_of_the_agent_pods_have_no_usage_before_two_samples():
    async with cluster() as whole:
        (machine,) = await running(whole)
        whole.guest(machine).load = 0.5
        await looks(20)
        assert list((await usages(whole)).values()) == [pytest.approx(0.5, rel=0.01)]
        whole.kill_agent("node0")
        assert await usages(whole) == {}
        await asyncio.sleep(20)
        whole.start_node("node0")
        await asyncio.sleep(PERIOD_SECONDS - 1)
        assert await usages(whole) == {}
        await looks()
        assert list((await usages(whole)).values()) == [pytest.approx(0.5, rel=0.01)]


async def test_a_finished_vmi_has_no_usage_and_its_replacement_starts_afresh():
    async with cluster() as whole:
        (machine,) = await running(whole)
        whole.guest(machine).load = 3.0
        await looks()
        (first,) = await usages(whole)
        whole.guest(machine).crash()
        await whole.until(lambda: _other(whole, machine))
        assert first not in await usages(whole)
        await looks()
        assert list((await usages(whole)).values()) == [0]


async def _other(whole, machine):
    return [one.metadata.name for one in await whole.machines("default")] != [machine.metadata.name]


async def test_usage_of_a_node_is_that_of_its_machines():
    async with cluster(nodes=2) as whole:
        machines = await running(whole, 4)
        for machine in machines:
            whole.guest(machine).load = 0.5
        await looks()
        nodes = (await whole.client.list(NodeMetrics)).items
        assert [one.metadata.name for one in nodes] == ["node0", "node1"]
        taken = sum(parse(one.usage["cpu"]).nanos for one in nodes) / 1e9
        assert taken == pytest.approx(2.0, rel=0.01)
        assert nodes[0].metadata.labels["kubernetes.io/hostname"] == "node0"


async def test_a_paused_vmi_has_zero_cpu_usage():
    async with cluster() as whole:
        (machine,) = await running(whole)
        whole.guest(machine).load = 0.5
        await looks()
        await whole.guest(machine).pause()
        await looks()
        assert list((await usages(whole)).values()) == [0]
        await whole.guest(machine).resume()
        await looks()
        assert list((await usages(whole)).values()) == [pytest.approx(0.5, rel=0.01)]


async def test_a_load_is_put_on_a_hollow_guest_by_exec():
    async with cluster() as whole:
        (machine,) = await running(whole)
        agent = whole.guest(machine).agent
        assert (await agent.run(["load", "300m"])).exit_code == 0
        await looks()
        assert list((await usages(whole)).values()) == [pytest.approx(0.3, rel=0.01)]
        for arguments in (["much"], [], ["1", "2"], ["-1"]):
            assert (await agent.run(["load", *arguments])).exit_code != 0
        assert whole.guest(machine).load == 0.3
