"""The VMIs of a node of another host: those that run there, and those that migrate to it."""

import asyncio

import pytest
from tests.sim.cluster import cluster
from tests.sim.hosts import Joined

from corral.api.kinds.kubevirt.migration import TARGET_NODE
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Vmi
from corral.node.agent.placed_instances import PlacedInstances

pytestmark = pytest.mark.looptime


@pytest.fixture
async def placed():
    """The informer of node n1, with the changes that its handler has seen, and a client."""
    async with cluster(nodes=0, joined={"n1": Joined()}, only=()) as c:
        informer, seen = PlacedInstances(c.client, "n1"), []
        informer.handle(lambda old, new: seen.append((name(old), name(new))))
        running = asyncio.ensure_future(informer.run())
        await informer.synced()
        yield c, informer, seen
        running.cancel()


def name(vmi):
    return vmi and vmi.metadata.name


async def create(c, **labels):
    spec = {"domain": {"devices": {}, "resources": {"requests": {"memory": "64M"}}}}
    metadata = {"name": "vm", "namespace": "default", "labels": labels}
    return await c.component.create(Vmi, {"metadata": metadata, "spec": spec})


async def label(c, vmi, **labels):
    await c.component.patch(Vmi, vmi.key, {"metadata": {"labels": labels}})
    await asyncio.sleep(1)


async def test_a_vmi_is_there_from_the_migration_on(placed):
    c, informer, seen = placed
    vmi = await create(c, **{NODE_LABEL: "n2"})
    await asyncio.sleep(1)
    assert list(informer.items()) == []
    await label(c, vmi, **{TARGET_NODE: "n1"})
    assert [name(each) for each in informer.items()] == ["vm"]
    await label(c, vmi, **{TARGET_NODE: None, NODE_LABEL: "n1"})
    assert informer.get(vmi.key).metadata.labels[NODE_LABEL] == "n1"
    await label(c, vmi, **{NODE_LABEL: "n2"})
    assert list(informer.items()) == []
    assert (seen[0], seen[-1]) == ((None, "vm"), ("vm", None))


async def test_a_vmi_with_both_labels_stays_while_it_has_one(placed):
    c, informer, seen = placed
    vmi = await create(c, **{NODE_LABEL: "n1", TARGET_NODE: "n1"})
    await label(c, vmi, **{TARGET_NODE: None})
    assert informer.get(vmi.key) is not None
    assert ("vm", None) not in seen
    await c.component.delete(Vmi, vmi.key)
    await asyncio.sleep(1)
    assert informer.get(vmi.key) is None
