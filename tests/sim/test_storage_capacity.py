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

        async def until_capacities_are(*expected):
            """Wait for the capacities of the class; a class of the cluster itself has some, too."""

            async def is_so():
                found = (await c.client.list(CSIStorageCapacity)).items
                return [each.capacity for each in found if each.storageClassName == "disks"] == [
                    *expected
                ]

            await c.until(is_so)

        await c.client.create(
            StorageClass, {"metadata": {"name": "disks"}, "provisioner": CORRAL_PROVISIONER}
        )
        metadata = {
            "name": "far",
            "labels": {STORAGE_LABEL: "a"},
            "annotations": {STORAGE_CAPACITY: "1000"},
        }
        await c.client.create(Node, {"metadata": metadata})
        await until_capacities_are("1k")
        change = {"metadata": {"annotations": {STORAGE_CAPACITY: "7"}}}
        await c.client.patch(Node, Key("", "far"), change)
        await until_capacities_are("7")
        await c.client.delete(Node, Key("", "far"))
        await until_capacities_are()
