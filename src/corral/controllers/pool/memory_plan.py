"""The plan for a VirtualMachine's memory on scale-in: when to save it, and its claim. Pure."""

from enum import Enum

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.storage.common import SELECTED_NODE
from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.saved_memory import RESTORE_FROM, mark_of, saves_to
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.controllers.pool.scale_plan import is_leaving, preservation_of
from corral.reconcile.objects import controller_uid, is_being_deleted, owner_reference

SAVE_TIMEOUT_SECONDS = 600.0
"""Time limit for a node to save the memory of a VMI, which is shut down without it then."""
_OVERHEAD_MIB = 256
"""Size of a claim beyond the guest's memory: device state and video memory."""


class SaveStep(Enum):
    """Next step for a VirtualMachine whose memory is to be saved."""

    CREATE_CLAIM = "create the claim that the memory is saved to"
    REQUEST = "request that the node saves it"
    WAIT = "wait: the node is saving it"
    DONE = "it is saved, or there is none: delete the VirtualMachine"
    GIVE_UP = "it could not be saved: delete the VirtualMachine without it"


def claim_name(vm_name: str) -> str:
    """Return the name of the claim for the memory of a pool's VirtualMachine."""
    return f"{vm_name}-memory"


def vm_name(claim: str) -> str:
    """Return the name of the VirtualMachine that a claim of that name belongs to."""
    return claim.removesuffix("-memory")


def claim_for(pool: VirtualMachinePool, vm: VirtualMachine, node: str) -> Document:
    """Return the claim for a VirtualMachine's memory; the pool owns it.

    No pod ever uses the claim, so nobody else selects the node that its volume may be waiting for.
    """
    memory = -(-guest_memory(vm.spec.template.spec.domain).rounded_up() // (1 << 20))
    size = memory + memory // 8 + _OVERHEAD_MIB
    return {
        "metadata": {
            "name": claim_name(vm.metadata.name),
            "namespace": vm.metadata.namespace,
            "annotations": {SELECTED_NODE: node},
            "ownerReferences": [owner_reference(pool)],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{size}Mi"}},
        },
    }


def save_step(
    vmi: VirtualMachineInstance | None, claim: PersistentVolumeClaim | None, waited: float
) -> SaveStep:
    """Return the next step for a VirtualMachine to delete.

    ``waited``: seconds since its node was requested to save.
    """
    if vmi is None or (not saves_to(vmi) and vmi.status.phase != "Running"):
        return SaveStep.DONE  # it never ran, or its memory is gone
    if vmi.is_final or is_being_deleted(vmi):
        lost = saves_to(vmi) and (claim is None or mark_of(claim) is None)
        return SaveStep.GIVE_UP if lost else SaveStep.DONE
    if claim is None:
        return SaveStep.CREATE_CLAIM
    if is_being_deleted(claim):
        return SaveStep.WAIT  # for the name
    if not saves_to(vmi):
        return SaveStep.REQUEST
    return SaveStep.WAIT if waited < SAVE_TIMEOUT_SECONDS else SaveStep.GIVE_UP


class ClaimStep(Enum):
    """The next action on a claim for memory."""

    KEEP = "it has memory, or is about to"
    UNSET = "a VMI was restored from it: remove the annotation of its VirtualMachine"
    DELETE = "nothing will be restored from it"


def claim_step(
    pool: VirtualMachinePool,
    claim: PersistentVolumeClaim,
    vm: VirtualMachine | None,
    vmi: VirtualMachineInstance | None,
) -> ClaimStep:
    """Return what to do with a claim, given the VirtualMachine whose memory it is for."""
    is_saved = mark_of(claim) is not None
    if vm is None:
        return ClaimStep.KEEP if is_saved else ClaimStep.DELETE
    is_ours = controller_uid(vm) == pool.metadata.uid
    if is_ours and is_leaving(vm) and preservation_of(pool, vm) == "Online":
        return ClaimStep.KEEP
    if not restores_memory(vm):
        return ClaimStep.DELETE
    if is_saved or vmi is None or vmi.status.phase != "Running":
        return ClaimStep.KEEP
    return ClaimStep.UNSET


def restores_memory(vm: VirtualMachine) -> bool:
    """Report whether VMIs of a VirtualMachine are restored from saved memory."""
    return bool(vm.spec.template.metadata.annotations.get(RESTORE_FROM))
