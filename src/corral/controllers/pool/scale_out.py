"""Creates VirtualMachines of a pool, and the revision that they are created from."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import AlreadyExists, ApiError, Conflict
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.controllers.pool.context import Tools
from corral.controllers.pool.revisions import History, name_of, revision
from corral.controllers.pool.status import Failure
from corral.controllers.pool.vm_template import new_vm
from corral.reconcile.batch import slow_start_batch
from corral.reconcile.deletion import remove
from corral.reconcile.objects import controller_of, key_of, uid_of
from corral.reconcile.ownership import adopt


async def create(
    tools: Tools,
    pool: VirtualMachinePool,
    names: Sequence[str],
    history: History,
    *,
    restore_annotations: Callable[[str], Awaitable[Mapping[str, str]]],
) -> None:
    """Create the VirtualMachines of these names. Raises Failure.

    ``restore_annotations`` returns the annotations that restore a VMI from the memory of an earlier
    one of the same name; none where there is no such memory.
    """
    missing = 0 if history.has_current else 1
    tools.expectations.expect(pool.metadata.uid, creations=len(names) + missing)
    try:
        await ensure_revision(tools, pool, history)
    except ApiError as error:
        tools.expectations.forget(pool.metadata.uid)
        _warn(tools, pool, error)
        raise Failure("FailedScaleOut", "during scale out", error) from error

    async def create_one(name: str) -> None:
        try:
            document = new_vm(
                pool, name, name_of(pool), restore_annotations=await restore_annotations(name)
            )
            await tools.client.create(VirtualMachine, document)
        except ApiError:
            tools.expectations.creation_observed(pool.metadata.uid)
            raise
        tools.record(pool, "SuccessfulCreate", f"Created VM {pool.metadata.namespace}/{name}")

    tried, refused = await slow_start_batch(names, create_one)
    tools.expectations.creation_observed(pool.metadata.uid, len(names) - tried)
    # AlreadyExists: the cache does not show the VM yet; the next sync picks another name.
    errors = [error for error in refused if not isinstance(error, AlreadyExists)]
    if errors:
        _warn(tools, pool, errors[0])
        raise Failure("FailedScaleOut", "during scale out", errors[0]) from errors[0]
    if refused:
        raise Conflict(f"{pool.key}: a VirtualMachine of the chosen name already exists")


async def ensure_revision(tools: Tools, pool: VirtualMachinePool, history: History) -> None:
    """Ensure that the revision of the pool's current spec exists. Raises ApiError."""
    if history.has_current:
        return
    try:
        await tools.client.create(ControllerRevision, revision(pool))
    except AlreadyExists:
        await _claim_revision(tools, pool)


async def _claim_revision(tools: Tools, pool: VirtualMachinePool) -> None:
    """Adopt or replace the revision that already has the name of the current one.

    An earlier pool of this name that was deleted with ``orphan`` leaves revisions without a
    controller behind, which may hold another spec.
    """
    name = name_of(pool)
    found = await tools.client.get(ControllerRevision, name, pool.metadata.namespace)
    owner = controller_of(found)
    if owner is not None and owner.uid != pool.metadata.uid:
        whose = f"{owner.kind} {owner.name}"
        message = f"ControllerRevision {name} belongs to {whose}: delete it, or rename the pool"
        raise Conflict(message)
    if owner is None and found.data == revision(pool)["data"]:
        await adopt(tools.client, pool, [found])
    elif owner is None:
        await remove(tools.client, ControllerRevision, key_of(found), uid_of(found))
        await tools.client.create(ControllerRevision, revision(pool))


def _warn(tools: Tools, pool: VirtualMachinePool, error: ApiError) -> None:
    tools.warn(pool, "FailedCreate", f"Error creating VM: {error}")
