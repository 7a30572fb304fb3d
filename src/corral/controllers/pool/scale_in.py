"""Takes VirtualMachines away, and keeps of them what is to be kept.

The pool's finalizer goes last: while it is there nobody collects what the VirtualMachine owns.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.kinds.kubevirt.pool import FINALIZER, StatePreservation, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import FINALIZER as VM_FINALIZER, VirtualMachine
from corral.controllers.pool.context import Tools
from corral.controllers.pool.disk_orphaning import orphan_disks
from corral.controllers.pool.scale_plan import LEAVING, RAN_AS, kept, kept_when_removed, settled
from corral.controllers.pool.status import raise_first
from corral.reconcile import deletion
from corral.reconcile.batch import for_each
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.ownership import owners_without, patch_preconditions


async def remove(tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> None:
    """Take VirtualMachines away that the pool has chosen.  Raises Failure."""
    keep = kept_when_removed(pool)
    if keep != "Disabled":
        mark = partial(_mark, tools, keep=keep)
        raise_first(await for_each(vms, mark), "FailedScaleIn", "during scale in")
    if keep != "Online":  # its memory is saved first
        await delete(tools, pool, vms)


async def delete(tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> None:
    """Delete VirtualMachines of which nothing is left to save.  Raises Failure."""
    uids = [vm.metadata.uid for vm in vms]
    tools.expectations.expect(pool.metadata.uid, deletions=uids)
    refused = await for_each(vms, partial(_delete, tools, pool))
    raise_first(refused, "FailedScaleIn", "during scale in", lagging=False)


async def finish(tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> None:
    """Keep what is to be kept of VirtualMachines that go, and let go of them.  Raises Failure."""
    held = [vm for vm in vms if FINALIZER in vm.metadata.finalizers]
    refused = await for_each(held, partial(_finish, tools, pool))
    raise_first(refused, "FailedScaleIn", "during opportunistic scale in")


async def let_go(
    tools: Tools, vm: VirtualMachine, keep: StatePreservation | None = None, *, owner: str = ""
) -> None:
    """Take the pool's finalizer off a VirtualMachine, and its reference to ``owner``.

    Of one that goes is kept what is said, or else what its mark says; it is let go of when its
    own loop has.  One that stays is what it was before it was marked.
    """
    if is_being_deleted(vm) and (keep or settled(vm) or "Disabled") != "Disabled":
        await orphan_disks(tools.client, vm)
        if VM_FINALIZER in vm.metadata.finalizers:
            # Until its own loop knows that it goes, that loop may take the disks back.
            return
    metadata: dict[str, Any] = {
        **patch_preconditions(vm),
        "finalizers": [name for name in vm.metadata.finalizers if name != FINALIZER],
    }
    change: dict[str, Any] = {"metadata": metadata}
    if owner:
        metadata["ownerReferences"] = owners_without(vm, owner)
    if not is_being_deleted(vm):
        metadata["annotations"] = {LEAVING: None, RAN_AS: None}
        if ran_as := vm.metadata.annotations.get(RAN_AS):
            change["spec"] = {"runStrategy": ran_as}
    try:
        await tools.client.patch(VirtualMachine, vm.key, change)
    except NotFound:
        return


async def _mark(tools: Tools, vm: VirtualMachine, *, keep: str) -> None:
    annotations = {LEAVING: keep}
    change: dict[str, object] = {"metadata": {"uid": vm.metadata.uid, "annotations": annotations}}
    if keep == "Online":
        # A machine whose memory was saved has ended: it is not to be started again.
        annotations[RAN_AS] = vm.spec.strategy
        change["spec"] = {"runStrategy": "Manual", "running": None}
    try:
        await tools.client.patch(VirtualMachine, vm.key, change)
    except NotFound:
        return


async def _delete(tools: Tools, pool: VirtualMachinePool, vm: VirtualMachine) -> None:
    uid, name = vm.metadata.uid, str(vm.key)
    try:
        asked = await deletion.remove(tools.client, VirtualMachine, vm.key, uid)
    except ApiError as error:
        tools.expectations.deletion_observed(pool.metadata.uid, uid)
        tools.warn(pool, "FailedDelete", f"Error deleting virtual machine {name}: {error}")
        raise
    if not asked:
        tools.expectations.deletion_observed(pool.metadata.uid, uid)  # it went by itself
        return
    tools.tell(pool, "SuccessfulDelete", f"Deleted VM {name} with uid {uid} from pool")


async def _finish(tools: Tools, pool: VirtualMachinePool, vm: VirtualMachine) -> None:
    try:
        await let_go(tools, vm, kept(pool, vm))
    except Conflict:
        raise
    except ApiError as error:
        tools.warn(pool, "FailedUpdate", f"Error preserving state of VM {vm.key}: {error}")
        raise
