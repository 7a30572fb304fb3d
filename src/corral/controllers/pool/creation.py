"""Makes VirtualMachines, and the revision that they are made from."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from lightkube.models.apps_v1 import ControllerRevision

from corral.api.errors import AlreadyExists, ApiError, Conflict
from corral.api.kinds.pool import VirtualMachinePool
from corral.api.kinds.virtualmachine import VirtualMachine
from corral.controllers.pool.child import new_vm
from corral.controllers.pool.report import Failure
from corral.controllers.pool.revisions import History, name_of, revision
from corral.controllers.pool.tools import Tools
from corral.reconcile.batch import slow_start
from corral.reconcile.objects import controller_uid


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
    tools.expectations.expect(pool.key, creations=len(names) + missing)
    try:
        await keep_revision(tools, pool, history)
    except ApiError as error:
        tools.expectations.forget(pool.key)
        _warn(tools, pool, error)
        raise Failure("FailedScaleOut", "during scale out", error) from error

    async def make(name: str) -> None:
        try:
            document = new_vm(pool, name, name_of(pool), resuming=await resuming(name))
            await tools.client.create(VirtualMachine, document)
        except ApiError:
            tools.expectations.created(pool.key)
            raise
        tools.tell(pool, "SuccessfulCreate", f"Created VM {pool.metadata.namespace}/{name}")

    tried, refused = await slow_start(names, make)
    tools.expectations.created(pool.key, len(names) - tried)
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
    name = name_of(pool)
    try:
        await tools.client.create(ControllerRevision, revision(pool))
    except AlreadyExists:
        found = await tools.client.get(ControllerRevision, name, pool.metadata.namespace)
        if controller_uid(found) != pool.metadata.uid:
            message = f"ControllerRevision {name} belongs to somebody else: delete it"
            raise Conflict(message) from None


def _warn(tools: Tools, pool: VirtualMachinePool, error: ApiError) -> None:
    tools.warn(pool, "FailedCreate", f"Error creating VM: {error}")
