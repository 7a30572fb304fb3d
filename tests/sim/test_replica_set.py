import pytest
from tests.sim.cluster import ReplicaSet, cluster, replica_set

pytestmark = pytest.mark.looptime


async def test_a_set_of_three_comes_up_and_goes():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set("test", 3))
        await c.settled("test", 3)
        machines = await c.machines()
        assert {machine.status.phase for machine in machines} == {"Running"}
        assert all(machine.metadata.name.startswith("test") for machine in machines)
        await c.scale("test", 0)
        await c.settled("test", 0)
