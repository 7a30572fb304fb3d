"""When the memory of a VirtualMachine that leaves is saved, and what becomes of it.  Pure."""

from enum import Enum

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.storage.common import SELECTED_NODE
from corral.api.kinds.vmi.derived import guest_memory
from corral.api.kinds.vmi.saved_memory import RESTORE_FROM, mark_of, saves_to
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.controllers.pool.scale_plan import is_leaving, kept
from corral.reconcile.objects import controller_uid, is_being_deleted, owner_reference

LONGEST_SECONDS = 600.0
"""So long its node may take to save a machine's memory; it is shut down without then."""
_ROOM_MIB = 256
"""What a claim holds besides the guest's memory: the state of devices, the screen's memory."""


class Care(Enum):
    """What is next for a VirtualMachine whose memory is to be kept."""

    CLAIM = "make the claim that the memory is saved to"
    ASK = "ask for it to be saved"
    WAIT = "it is being saved"
    DONE = "it is saved, or there is none: the VirtualMachine may go"
    GIVEN_UP = "it could not be saved: the VirtualMachine goes without"


def claim_name(vm_name: str) -> str:
    """The claim that holds the memory of a VirtualMachine of a pool."""
    return f"{vm_name}-memory"


def vm_name(claim: str) -> str:
    """The VirtualMachine whose memory a claim of that name holds."""
    return claim.removesuffix("-memory")


def claim_for(pool: VirtualMachinePool, vm: VirtualMachine, node: str) -> Document:
    """The claim that a VirtualMachine's memory is saved to; it goes with the pool.

    No pod ever uses it, so nobody but we can name the node that a volume may be waiting for.
    """
    memory = -(-guest_memory(vm.spec.template.spec.domain).rounded_up() // (1 << 20))
    size = memory + memory // 8 + _ROOM_MIB
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


def care(
    machine: VirtualMachineInstance | None, claim: PersistentVolumeClaim | None, waited: float
) -> Care:
    """What is next for a VirtualMachine that leaves; its node has been asked ``waited`` seconds."""
    if machine is None or (not saves_to(machine) and machine.status.phase != "Running"):
        return Care.DONE  # it has no memory, or none any more
    if machine.is_final or is_being_deleted(machine):
        lost = saves_to(machine) and (claim is None or mark_of(claim) is None)
        return Care.GIVEN_UP if lost else Care.DONE
    if claim is None:
        return Care.CLAIM
    if is_being_deleted(claim):
        return Care.WAIT  # for the room of an earlier one
    if not saves_to(machine):
        return Care.ASK
    return Care.WAIT if waited < LONGEST_SECONDS else Care.GIVEN_UP


class Fate(Enum):
    """What becomes of a claim that memory is saved to."""

    KEEP = "it holds a memory, or is about to"
    FORGET = "a machine has gone on from it: its VirtualMachine need not name it any more"
    DROP = "nobody will go on from it"


def fate(
    pool: VirtualMachinePool,
    claim: PersistentVolumeClaim,
    vm: VirtualMachine | None,
    machine: VirtualMachineInstance | None,
) -> Fate:
    """What becomes of a claim, given the VirtualMachine whose memory it is for."""
    holds = mark_of(claim) is not None
    if vm is None:
        return Fate.KEEP if holds else Fate.DROP
    is_ours = controller_uid(vm) == pool.metadata.uid
    if is_ours and is_leaving(vm) and kept(pool, vm) == "Online":
        return Fate.KEEP
    if not names_claim(vm):
        return Fate.DROP
    if holds or machine is None or machine.status.phase != "Running":
        return Fate.KEEP
    return Fate.FORGET


def names_claim(vm: VirtualMachine) -> bool:
    """Whether the machines of a VirtualMachine are to go on from a memory."""
    return bool(vm.spec.template.metadata.annotations.get(RESTORE_FROM))
