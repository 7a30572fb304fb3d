"""Executes the rollout plan: updates VirtualMachines, recreates VMIs."""

from collections.abc import Sequence
from functools import partial

from corral.api.errors import ApiError, NotFound
from corral.api.kinds.kubevirt.pool import REVISION_LABEL, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.context import Tools
from corral.controllers.pool.revisions import History, Step, name_of
from corral.controllers.pool.rollout import VMIs
from corral.controllers.pool.scale_out import ensure_revision
from corral.controllers.pool.scale_plan import preservation_of
from corral.controllers.pool.status import Failure, raise_first
from corral.controllers.pool.vm_template import update
from corral.reconcile.batch import for_each
from corral.reconcile.deletion import remove


async def update_vms(
    tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine], history: History
) -> None:
    """Update VirtualMachines to the current template. Raises Failure."""
    tools.expectations.expect(pool.metadata.uid, creations=0 if history.has_current else 1)
    try:
        await ensure_revision(tools, pool, history)
    except ApiError as error:
        tools.expectations.forget(pool.metadata.uid)
        raise Failure("FailedUpdate", "during VM update", error) from error
    refused = await for_each(vms, partial(_update, tools, pool))
    raise_first(refused, "FailedUpdate", "during VM update")


async def update_vmis(
    tools: Tools,
    pool: VirtualMachinePool,
    steps: Sequence[tuple[VirtualMachine, Step]],
    vmis: VMIs,
) -> None:
    """Bring the VMIs of up-to-date VirtualMachines up to date. Raises Failure."""
    deleted_uids = {
        vm.metadata.name: _deleted_uid(vm, step, vmis[vm.metadata.name])
        for vm, step in steps
        if step is not Step.LABEL
    }
    tools.expectations.expect(pool.metadata.uid, deletions=deleted_uids.values())

    async def execute(due: tuple[VirtualMachine, Step]) -> None:
        vm, step = due
        uid = deleted_uids.get(vm.metadata.name, "")
        try:
            done = await _execute(tools, pool, vm, step, vmis[vm.metadata.name])
        except ApiError as error:
            tools.expectations.deletion_observed(pool.metadata.uid, uid)
            tools.warn(pool, "FailedUpdate", f"Error updating resource {vm.key}: {error}")
            raise
        if not done:
            tools.expectations.deletion_observed(pool.metadata.uid, uid)
            return
        tools.record(pool, "SuccessfulDelete", f"Successfully updated resource {vm.key}")

    refused = await for_each(steps, execute)
    raise_first(refused, "FailedUpdate", "during VMI update", lagging=False)


async def _update(tools: Tools, pool: VirtualMachinePool, vm: VirtualMachine) -> None:
    try:
        await tools.client.patch(VirtualMachine, vm.key, update(vm, pool, name_of(pool)))
    except NotFound:
        return
    except ApiError as error:
        name = f"{vm.metadata.name}/{vm.metadata.namespace}"
        tools.warn(pool, "FailedUpdate", f"Error updating virtual machine {name}: {error}")
        raise
    tools.record(pool, "SuccessfulUpdate", f"Updated VM {vm.key}")


def _deleted_uid(vm: VirtualMachine, step: Step, vmi: VirtualMachineInstance) -> str:
    """Return the uid of the object that a step deletes."""
    return (vm if step is Step.RECREATE else vmi).metadata.uid


async def _execute(
    tools: Tools,
    pool: VirtualMachinePool,
    vm: VirtualMachine,
    step: Step,
    vmi: VirtualMachineInstance,
) -> bool:
    """Execute a step; return False if its object is already gone: the cache will show it."""
    if step is Step.RECREATE:
        # Foreground deletion waits for the disks, which must not be deleted if preserved.
        policy = "Foreground" if preservation_of(pool, vm) == "Disabled" else "Background"
        return await remove(
            tools.client, VirtualMachine, vm.key, vm.metadata.uid, propagation=policy
        )
    if step is Step.RESTART:
        return await remove(tools.client, VirtualMachineInstance, vmi.key, vmi.metadata.uid)
    labels = {REVISION_LABEL: vm.metadata.labels[REVISION_LABEL]}
    change = {"metadata": {"uid": vmi.metadata.uid, "labels": labels}}
    try:
        await tools.client.patch(VirtualMachineInstance, vmi.key, change)
    except NotFound:
        return False
    return True
