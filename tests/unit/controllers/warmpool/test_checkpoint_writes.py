"""What is written of the checkpoint of a warm pool, against a server."""

import msgspec
import pytest
from tests.unit.controllers.claim.test_binder import COMPONENT, TEMPLATE, Troubled

from corral.api.errors import AlreadyExists, Conflict, Unavailable
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint as Checkpoint
from corral.api.kinds.corral.warm_pool import (
    CHECKPOINT_SOURCE_LABEL,
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool as WarmPool,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.controllers.warmpool.checkpoint_plan import CheckpointPlan
from corral.controllers.warmpool.checkpoint_writes import CheckpointWrites
from corral.controllers.warmpool.plan import new_checkpoint
from corral.reconcile.objects import controller_uid

DIGEST = "0123456789"


class Fixture:
    """A warm pool, the source of its checkpoint, and a transport that can be made to fail."""

    def __init__(self, server):
        self.transport = Troubled(server)
        self.client = Client(InProcess(server.handle, COMPONENT))
        self.writes = CheckpointWrites(Client(self.transport))

    async def begin(self):
        spec = {"replicas": 1, "template": TEMPLATE}
        self.pool = await self.client.create(
            WarmPool, {"metadata": {"name": "spares", "namespace": "default"}, "spec": spec}
        )
        labels = {WARM_POOL_LABEL: "spares", CHECKPOINT_SOURCE_LABEL: DIGEST}
        metadata = {"name": "source", "namespace": "default", "labels": labels}
        self.source = await self.client.create(Machine, {"metadata": metadata, **TEMPLATE})
        return self

    async def execute(self, **decided):
        return await self.writes.execute(self.pool, CheckpointPlan(**decided))

    async def checkpoints(self):
        return (await self.client.list(Checkpoint, "default")).items

    async def labels(self):
        return (await self.client.get(Machine, "source", "default")).metadata.labels


@pytest.fixture
async def there(server):
    return await Fixture(server).begin()


async def test_a_checkpoint_is_of_its_source_and_goes_with_the_pool(there):
    assert await there.execute(make=there.source) == []
    [made] = await there.checkpoints()
    assert made.spec.source.name == "source"
    assert controller_uid(made) == there.pool.metadata.uid
    assert made.metadata.labels[TEMPLATE_HASH_LABEL] == DIGEST


async def test_a_checkpoint_whose_creation_was_not_acknowledged_is_not_made_twice(there):
    there.transport.fail("POST", "checkpoints", error=Unavailable("lost"), is_sent=True)
    [error] = await there.execute(make=there.source)
    assert isinstance(error, Unavailable)
    there.transport.error = None
    assert await there.execute(make=there.source) == []
    assert len(await there.checkpoints()) == 1


async def test_a_checkpoint_of_somebody_else_is_not_taken_for_that_of_the_pool(there):
    document = new_checkpoint(there.pool, there.source)
    del document["metadata"]["ownerReferences"]
    await there.client.create(Checkpoint, document)
    [error] = await there.execute(make=there.source)
    assert isinstance(error, AlreadyExists)


async def test_a_source_becomes_a_spare_by_one_write(there):
    assert await there.execute(release=(there.source,)) == []
    assert await there.labels() == {WARM_POOL_LABEL: "spares", TEMPLATE_HASH_LABEL: DIGEST}


async def test_a_source_that_has_changed_meanwhile_is_not_released(there):
    change = {"metadata": {"annotations": {"a": "b"}}}
    await there.client.patch(Machine, there.source.key, change)
    [error] = await there.execute(release=(there.source,))
    assert isinstance(error, Conflict)
    assert CHECKPOINT_SOURCE_LABEL in await there.labels()


async def test_a_source_that_is_gone_is_no_error(there):
    await there.client.delete(Machine, there.source.key)
    change = {"metadata": {"finalizers": None}}
    await there.client.patch(Machine, there.source.key, change)
    assert await there.execute(release=(there.source,)) == []


async def test_only_the_checkpoint_that_was_meant_is_deleted(there):
    await there.execute(make=there.source)
    [made] = await there.checkpoints()
    other = msgspec.structs.replace(made.metadata, uid="another")
    await there.execute(delete=(msgspec.structs.replace(made, metadata=other),))
    assert len(await there.checkpoints()) == 1
    assert await there.execute(delete=(made,)) == []
    assert await there.checkpoints() == []
    assert await there.execute(delete=(made,)) == []


def test_the_key_of_a_checkpoint_follows_from_its_source(there):
    name = f"spares-{there.source.metadata.uid[:8]}"
    metadata = new_checkpoint(there.pool, there.source)["metadata"]
    assert Key(metadata["namespace"], metadata["name"]) == Key("default", name)
