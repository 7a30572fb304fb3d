"""Makes VirtualMachines, and the revision that they are made from."""

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
    resuming: Callable[[str], Awaitable[Mapping[str, str]]],
) -> None:
    """Make the VirtualMachines of these names.  Raises Failure.

    ``resuming`` answers the annotations by which a machine goes on from the memory of an earlier
    one of its name; none where there is no such memory.
    """
    missing = 0 if history.holds_present else 1
    tools.expectations.expect(pool.metadata.uid, creations=len(names) + missing)
    try:
        await keep_revision(tools, pool, history)
    except ApiError as error:
        tools.expectations.forget(pool.metadata.uid)
        _warn(tools, pool, error)
        raise Failure("FailedScaleOut", "during scale out", error) from error

    async def make(name: str) -> None:
        try:
            document = new_vm(pool, name, name_of(pool), resuming=await resuming(name))
            await tools.client.create(VirtualMachine, document)
        except ApiError:
            tools.expectations.creation_observed(pool.metadata.uid)
            raise
        tools.tell(pool, "SuccessfulCreate", f"Created VM {pool.metadata.namespace}/{name}")

    tried, refused = await slow_start_batch(names, make)
    tools.expectations.creation_observed(pool.metadata.uid, len(names) - tried)
    # A name that is taken is one that the cache does not show yet: the next look finds another.
    told = [error for error in refused if not isinstance(error, AlreadyExists)]
    if told:
        _warn(tools, pool, told[0])
        raise Failure("FailedScaleOut", "during scale out", told[0]) from told[0]
    if refused:
        raise Conflict(f"{pool.key}: a VirtualMachine of a free name was there already")


async def keep_revision(tools: Tools, pool: VirtualMachinePool, history: History) -> None:
    """See that the revision of the pool's present spec is there.  Raises ApiError."""
    if history.holds_present:
        return
    try:
        await tools.client.create(ControllerRevision, revision(pool))
    except AlreadyExists:
        await _take_revision(tools, pool)


async def _take_revision(tools: Tools, pool: VirtualMachinePool) -> None:
    """Make the revision of the present spec's name the pool's own.

    An earlier pool of the name that was deleted without what it owns leaves its revisions behind,
    which belong to nobody and may hold another spec.
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
