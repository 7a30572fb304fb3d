"""Sets whose machines are replaced only after another one is ready, in a whole cluster."""

import asyncio

import pytest
from lightkube.models.policy_v1 import PodDisruptionBudget as Budget
from tests.sim.cluster import Cluster, cluster, replica_set
from tests.sim.drains import allows, budget, cordon, drain, evict, pods_on, witness

from corral.api.errors import TooManyRequests
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.replacement import REPLACE_AFTER_READY, REPLACEMENT_REQUESTED
from corral.reconcile.objects import key_of

pytestmark = pytest.mark.looptime


async def serving(c: Cluster, **template) -> None:
    """A set of four machines, none of which may be missing."""
    document = replica_set("test", 4)
    document["metadata"]["annotations"] = {REPLACE_AFTER_READY: "true"}
    document["spec"]["template"]["spec"] |= template
    await c.client.create(ReplicaSet, document)
    await c.until_ready("test", 4)
    await c.client.create(Budget, budget(minAvailable="100%"))
    await allows(c, 0)


@pytest.mark.parametrize("template", [{}, {"evictionStrategy": "LiveMigrate"}])
async def test_a_node_is_drained_although_no_machine_may_be_missing(template):
    async with cluster(nodes=2) as c:
        await serving(c, **template)
        async with witness(c) as seen:
            for node in ("node0", "node1"):
                await asyncio.wait_for(drain(c, node), 600)
                assert await pods_on(c, node) == []
                await c.until_ready("test", 4)
                await cordon(c, node, closed=False)
        assert seen.fewest == 4
        assert len(await c.machines("default")) == 4


async def test_a_machine_stays_where_there_is_no_node_for_its_successor():
    async with cluster(nodes=1) as c:
        await serving(c)
        before = {vmi.metadata.uid for vmi in await c.machines("default")}
        await cordon(c, "node0")
        pod = (await c.pods("default"))[0]
        with pytest.raises(TooManyRequests):
            await evict(c, key_of(pod))
        await asyncio.sleep(300)
        machines = await c.machines("default")
        assert len(machines) == 5
        assert before <= {vmi.metadata.uid for vmi in machines}
        await cordon(c, "node0", closed=False)

        async def is_replaced() -> bool:
            found = await c.machines("default")
            uids = {vmi.metadata.uid for vmi in found}
            return len(found) == 4 and len(before & uids) == 3

        await c.until(is_replaced, 600)


async def test_a_dry_run_marks_nothing():
    async with cluster(nodes=1) as c:
        await serving(c)
        pod = (await c.pods("default"))[0]
        with pytest.raises(TooManyRequests):
            await evict(c, key_of(pod), dryRun=["All"])
        await asyncio.sleep(10)
        marked = [
            vmi
            for vmi in await c.machines("default")
            if REPLACEMENT_REQUESTED in vmi.metadata.annotations
        ]
        assert marked == []
