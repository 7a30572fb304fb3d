"""Carries out what an update of a pool asks for next."""

from collections.abc import Sequence
from functools import partial

from corral.api.errors import ApiError, NotFound
from corral.api.kinds.kubevirt.pool import REVISION_LABEL, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.pool.context import Tools
from corral.controllers.pool.revisions import History, Step, name_of
from corral.controllers.pool.rollout import Machines
from corral.controllers.pool.scale_out import keep_revision
from corral.controllers.pool.scale_plan import kept
from corral.controllers.pool.status import Failure, raise_first
from corral.controllers.pool.vm_template import update
from corral.reconcile.batch import for_each
from corral.reconcile.deletion import remove


async def update_vms(
    tools: Tools, pool: VirtualMachinePool, vms: Sequence[VirtualMachine], history: History
) -> None:
    """Make VirtualMachines what the template says today.  Raises Failure."""
    tools.expectations.expect(pool.metadata.uid, creations=0 if history.holds_present else 1)
    try:
        await keep_revision(tools, pool, history)
    except ApiError as error:
        tools.expectations.forget(pool.metadata.uid)
        raise Failure("FailedUpdate", "during VM update", error) from error
    refused = await for_each(vms, partial(_update, tools, pool))
    raise_first(refused, "FailedUpdate", "during VM update")


async def take_steps(
    tools: Tools,
    pool: VirtualMachinePool,
    steps: Sequence[tuple[VirtualMachine, Step]],
    machines: Machines,
) -> None:
    """Bring the machines of up-to-date VirtualMachines up to date.  Raises Failure."""
    going = {
        vm.metadata.name: _goes(vm, step, machines[vm.metadata.name])
        for vm, step in steps
        if step is not Step.LABEL
    }
    tools.expectations.expect(pool.metadata.uid, deletions=going.values())

    async def take(due: tuple[VirtualMachine, Step]) -> None:
        vm, step = due
        uid = going.get(vm.metadata.name, "")
        try:
            taken = await _take(tools, pool, vm, step, machines[vm.metadata.name])
        except ApiError as error:
            tools.expectations.deletion_observed(pool.metadata.uid, uid)
            tools.warn(pool, "FailedUpdate", f"Error updating resource {vm.key}: {error}")
            raise
        if not taken:
            tools.expectations.deletion_observed(pool.metadata.uid, uid)
            return
        tools.tell(pool, "SuccessfulDelete", f"Successfully updated resource {vm.key}")

    refused = await for_each(steps, take)
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
    tools.tell(pool, "SuccessfulUpdate", f"Updated VM {vm.key}")


def _goes(vm: VirtualMachine, step: Step, machine: VirtualMachineInstance) -> str:
    """The uid of what a step deletes."""
    return (vm if step is Step.RECREATE else machine).metadata.uid


async def _take(
    tools: Tools,
    pool: VirtualMachinePool,
    vm: VirtualMachine,
    step: Step,
    machine: VirtualMachineInstance,
) -> bool:
    """Take a step; False where what it is about went by itself: the cache will show it."""
    if step is Step.RECREATE:
        # In the foreground its disks go first; what is to be kept must not be waited for.
        policy = "Foreground" if kept(pool, vm) == "Disabled" else "Background"
        return await remove(
            tools.client, VirtualMachine, vm.key, vm.metadata.uid, propagation=policy
        )
    if step is Step.RESTART:
        return await remove(tools.client, VirtualMachineInstance, machine.key, machine.metadata.uid)
    labels = {REVISION_LABEL: vm.metadata.labels[REVISION_LABEL]}
    change = {"metadata": {"uid": machine.metadata.uid, "labels": labels}}
    try:
        await tools.client.patch(VirtualMachineInstance, machine.key, change)
    except NotFound:
        return False
    return True
