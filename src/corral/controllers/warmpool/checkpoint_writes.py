"""Writes what is decided on the checkpoint of a warm pool."""

from functools import partial

from corral.api.errors import AlreadyExists, ApiError, NotFound
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.corral.warm_pool import (
    CHECKPOINT_SOURCE_LABEL,
    TEMPLATE_HASH_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.client.client import Client
from corral.controllers.warmpool.checkpoint_plan import CheckpointPlan, source_hash
from corral.controllers.warmpool.plan import new_checkpoint
from corral.reconcile.batch import for_each
from corral.reconcile.deletion import remove
from corral.reconcile.objects import controller_uid
from corral.reconcile.ownership import patch_preconditions

VMI = VirtualMachineInstance
Checkpoint = VirtualMachineCheckpoint


class CheckpointWrites:
    """Creates and deletes checkpoints, and makes spares of the VMIs that they were made of."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def execute(
        self, pool: VirtualMachineWarmPool, decided: CheckpointPlan
    ) -> list[ApiError]:
        """Do what is decided; return the errors."""
        created = [decided.make] if decided.make is not None else []
        errors = await for_each(created, partial(self._create, pool))
        errors += await for_each(decided.release, self._release)
        return errors + await for_each(decided.delete, self._delete)

    async def _create(self, pool: VirtualMachineWarmPool, source: VMI) -> None:
        document = new_checkpoint(pool, source)
        try:
            await self._client.create(Checkpoint, document)
        except AlreadyExists:  # its response was lost, or the cache does not show it yet
            name = document["metadata"]["name"]
            found = await self._client.get(Checkpoint, name, pool.metadata.namespace)
            if controller_uid(found) != pool.metadata.uid:
                raise

    async def _release(self, source: VMI) -> None:
        """Make a spare of a source: the write conflicts with any other."""
        labels = {CHECKPOINT_SOURCE_LABEL: None, TEMPLATE_HASH_LABEL: source_hash(source)}
        change = {"metadata": {**patch_preconditions(source), "labels": labels}}
        try:
            await self._client.patch(VMI, source.key, change)
        except NotFound:  # it was deleted meanwhile
            return

    async def _delete(self, checkpoint: Checkpoint) -> None:
        key = Key(checkpoint.metadata.namespace, checkpoint.metadata.name)
        await remove(self._client, Checkpoint, key, checkpoint.metadata.uid)
