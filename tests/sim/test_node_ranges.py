"""Nodes' ranges of addresses in a whole cluster."""

from ipaddress import ip_network

import pytest
from lightkube.models.core_v1 import Node, Pod
from tests.sim.cluster import Faults, cluster

from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.object import Key
from corral.cluster import node_ipam

pytestmark = pytest.mark.looptime

RANGES = node_ipam.controller(3, ip_network("10.9.0.0/16"), ip_network("fd00:9::/56"))


async def given(c) -> dict[str, list[str]]:
    return {
        each.metadata.name: each.spec.podCIDRs
        for each in (await c.client.list(Node)).items
        if each.spec and each.spec.podCIDRs
    }


@pytest.mark.parametrize("seed", range(3))
async def test_each_node_gets_its_own_range_of_each_family(seed):
    faults = Faults(seed, fail=0.3, lose_answer=0.3, delay=0.2)
    async with cluster(nodes=3, stand_ins=[RANGES], faults=faults) as c:

        async def all_have():
            return len(await given(c)) == 3

        await c.until(all_have)
        found = await given(c)
        assert {each for pair in found.values() for each in pair} == {
            "10.9.0.0/20", "10.9.16.0/20", "10.9.32.0/20",
            "fd00:9::/64", "fd00:9:0:1::/64", "fd00:9:0:2::/64",
        }  # fmt: skip
        node = await c.client.get(Node, "node0")
        assert node.spec.podCIDR == node.spec.podCIDRs[0]


async def test_ranges_survive_a_restart_and_are_released_with_their_node():
    async with cluster(nodes=2, stand_ins=[RANGES]) as c:

        async def both_have():
            return len(await given(c)) == 2

        await c.until(both_have)
        before = await given(c)
        await c.crash_loops()
        c.kill_agent("node0")
        await c.client.delete(Node, Key("", "node0"))
        c.start_loops()
        c.start_node("node7")

        async def new_has():
            return "node7" in await given(c)

        await c.until(new_has)
        assert await given(c) == {"node1": before["node1"], "node7": before["node0"]}


async def test_a_range_waits_until_no_machine_elsewhere_has_an_address_of_it():
    async with cluster(nodes=2, stand_ins=[RANGES]) as c:

        async def have(*names):
            return set(names) <= (await given(c)).keys()

        await c.until(lambda: have("node0", "node1"))
        before = await given(c)
        metadata = {"name": "moved", "namespace": "default", "labels": {MIGRATION_UID: "m"}}
        spec = {"nodeName": "node1", "containers": [{"name": "compute", "image": "i"}]}
        await c.client.create(Pod, {"metadata": metadata, "spec": spec})
        address = str(ip_network(before["node0"][0])[7])
        status = {"status": {"phase": "Running", "podIPs": [{"ip": address}]}}
        await c.client.patch(Pod, Key("default", "moved"), status, subresource="status")
        c.kill_agent("node0")
        await c.client.delete(Node, Key("", "node0"))
        c.start_node("node7")
        await c.until(lambda: have("node7"))
        ipv4, ipv6 = (await given(c))["node7"]
        assert ipv4 not in {*before["node0"], *before["node1"]}
        assert ipv6 == before["node0"][1], "nobody has an address of this one"
        await c.client.delete(Pod, Key("default", "moved"))
        c.start_node("node8")
        await c.until(lambda: have("node8"))
        assert (await given(c))["node8"][0] == before["node0"][0]


async def test_another_pod_range_changes_the_ranges_of_nodes():
    async with cluster(nodes=2, stand_ins=[RANGES]) as c:
        old = {"podCIDR": "10.8.0.0/20", "podCIDRs": ["10.8.0.0/20"]}

        async def both_have(begin):
            found = await given(c)
            return len(found) == 2 and all(each[0].startswith(begin) for each in found.values())

        await c.until(lambda: both_have("10.9."))
        before = await given(c)
        await node_ipam.release_outside(
            c.client, [ip_network("10.9.0.0/16"), ip_network("fd00:9::/56")]
        )
        assert await given(c) == before
        await c.client.patch(Node, Key("", "node0"), {"spec": old})
        await node_ipam.release_outside(
            c.client, [ip_network("10.9.0.0/16"), ip_network("fd00:9::/56")]
        )
        assert "node0" not in await given(c)
        await c.until(lambda: both_have("10.9."))
