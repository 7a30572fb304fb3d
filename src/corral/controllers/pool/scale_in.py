"""Deletes VirtualMachines of a pool, preserving state as the pool's strategy says.

The pool's finalizer is removed last: while it is there the garbage collector leaves the
VirtualMachine's dependents alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.kinds.kubevirt.pool import FINALIZER, StatePreservation, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import FINALIZER as VM_FINALIZER, VirtualMachine
from corral.controllers.pool.context import Tools
from corral.controllers.pool.disk_orphaning import orphan_disks
from corral.controllers.pool.scale_plan import (
    LEAVING,
    RUN_STRATEGY,
    marked_preservation,
    preservation_of,
    scale_in_preservation,
)
from corral.controllers.pool.status import raise_first
from corral.reconcile import deletion
from corral.reconcile.batch import for_each
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.ownership import owners_without, patch_preconditions


async def remove(tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> None:
    """Scale in the selected VirtualMachines. Raises Failure."""
    keep = scale_in_preservation(pool)
    if keep != "Disabled":
        mark = partial(_mark, tools, keep=keep)
        raise_first(await for_each(vms, mark), "FailedScaleIn", "during scale in")
    if keep != "Online":  # its memory is saved first
        await delete(tools, pool, vms)


async def delete(tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]) -> None:
    """Delete VirtualMachines without state left to save. Raises Failure."""
    uids = [vm.metadata.uid for vm in vms]
    tools.expectations.expect(pool.metadata.uid, deletions=uids)
    refused = await for_each(vms, partial(_delete, tools, pool))
    raise_first(refused, "FailedScaleIn", "during scale in", lagging=False)


async def release_deleted(
    tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine]
) -> None:
    """Preserve disks of VirtualMachines that are being deleted, and release them.

    Raises Failure.
    """
    finalized = [vm for vm in vms if FINALIZER in vm.metadata.finalizers]
    refused = await for_each(finalized, partial(_release, tools, pool))
    raise_first(refused, "FailedScaleIn", "during opportunistic scale in")


async def release(
    tools: Tools, vm: VirtualMachine, keep: StatePreservation | None = None, *, owner: str = ""
) -> None:
    """Remove the pool's finalizer from a VirtualMachine, and its reference to ``owner``.

    Of one that is being deleted ``keep`` is preserved, else what its mark says; it is released
    after the VM controller has released it. One that stays loses the marks of scale-in.
    """
    if is_being_deleted(vm) and (keep or marked_preservation(vm) or "Disabled") != "Disabled":
        await orphan_disks(tools.client, vm)
        if VM_FINALIZER in vm.metadata.finalizers:
            # The VM controller may adopt the disks again until it has seen the deletion.
            return
    metadata: dict[str, Any] = {
        **patch_preconditions(vm),
        "finalizers": [name for name in vm.metadata.finalizers if name != FINALIZER],
    }
    change: dict[str, Any] = {"metadata": metadata}
    if owner:
        metadata["ownerReferences"] = owners_without(vm, owner)
    if not is_being_deleted(vm):
        metadata["annotations"] = {LEAVING: None, RUN_STRATEGY: None}
        if run_strategy := vm.metadata.annotations.get(RUN_STRATEGY):
            change["spec"] = {"runStrategy": run_strategy}
    try:
        await tools.client.patch(VirtualMachine, vm.key, change)
    except NotFound:
        return


async def _mark(tools: Tools, vm: VirtualMachine, *, keep: str) -> None:
    annotations = {LEAVING: keep}
    change: dict[str, object] = {"metadata": {"uid": vm.metadata.uid, "annotations": annotations}}
    if keep == "Online":
        # A VMI ends once its memory is saved, and must not be started again.
        annotations[RUN_STRATEGY] = vm.spec.strategy
        change["spec"] = {"runStrategy": "Manual", "running": None}
    try:
        await tools.client.patch(VirtualMachine, vm.key, change)
    except NotFound:
        return


async def _delete(tools: Tools, pool: VirtualMachinePool, vm: VirtualMachine) -> None:
    uid, name = vm.metadata.uid, str(vm.key)
    try:
        deleted = await deletion.remove(tools.client, VirtualMachine, vm.key, uid)
    except ApiError as error:
        tools.expectations.deletion_observed(pool.metadata.uid, uid)
        tools.warn(pool, "FailedDelete", f"Error deleting virtual machine {name}: {error}")
        raise
    if not deleted:
        tools.expectations.deletion_observed(pool.metadata.uid, uid)  # it was already gone
        return
    tools.record(pool, "SuccessfulDelete", f"Deleted VM {name} with uid {uid} from pool")


async def _release(tools: Tools, pool: VirtualMachinePool, vm: VirtualMachine) -> None:
    try:
        await release(tools, vm, preservation_of(pool, vm))
    except Conflict:
        raise
    except ApiError as error:
        tools.warn(pool, "FailedUpdate", f"Error preserving state of VM {vm.key}: {error}")
        raise
