"""CSIStorageCapacity objects follow what Nodes report."""

import pytest
from lightkube.models.core_v1 import Node
from lightkube.models.storage_v1 import CSIStorageCapacity, StorageClass
from tests.sim.cluster import cluster

from corral.api.kinds.storage.common import CORRAL_PROVISIONER, STORAGE_CAPACITY, STORAGE_LABEL
from corral.api.object import Key
from corral.cluster import storage_capacity

pytestmark = pytest.mark.looptime


async def test_capacities_come_change_and_go_with_their_node():
    async with cluster(stand_ins=[storage_capacity.controller]) as c:

        async def told(*expected):
            async def holds():
                found = (await c.client.list(CSIStorageCapacity)).items
                return [(each.storageClassName, each.capacity) for each in found] == [*expected]

            await c.until(holds)

        await c.client.create(
            StorageClass, {"metadata": {"name": "disks"}, "provisioner": CORRAL_PROVISIONER}
        )
        metadata = {
            "name": "far",
            "labels": {STORAGE_LABEL: "a"},
            "annotations": {STORAGE_CAPACITY: "1000"},
        }
        await c.client.create(Node, {"metadata": metadata})
        await told(("disks", "1000"))
        change = {"metadata": {"annotations": {STORAGE_CAPACITY: "7"}}}
        await c.client.patch(Node, Key("", "far"), change)
        await told(("disks", "7"))
        await c.client.delete(Node, Key("", "far"))
        await told()
