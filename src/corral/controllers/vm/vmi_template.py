"""The VMI of a VirtualMachine, and the ControllerRevision of the spec it was created from. Pure."""

from typing import Any

import msgspec

from corral.api.kinds.kubevirt.virtualmachine import FINALIZER, GENERATION, VirtualMachine
from corral.api.kinds.vmi.saved_memory import RESTORE_FROM, START_FROM
from corral.api.object import Document
from corral.controllers.vm.state_change_requests import is_paused_start
from corral.reconcile.objects import owner_reference


def new_vmi(vm: VirtualMachine) -> Document:
    """Return the VMI of a VirtualMachine: its template, with the VM's name."""
    template = vm.spec.template
    spec: dict[str, Any] = msgspec.to_builtins(template.spec)
    if is_paused_start(vm):
        spec["startStrategy"] = "Paused"
    return {
        "metadata": {
            "name": vm.metadata.name,
            "namespace": vm.metadata.namespace,
            "labels": dict(template.metadata.labels),
            "annotations": {
                **template.metadata.annotations,
                GENERATION: str(vm.metadata.generation),
            },
            "ownerReferences": [owner_reference(vm)],
            "finalizers": [FINALIZER],
        },
        "spec": spec,
        "status": {"virtualMachineRevisionName": revision_name(vm)},
    }


def may_fork(vm: VirtualMachine, vmi: Document) -> bool:
    """Report whether a new VMI may start from a checkpoint of a warm pool, in place of booting.

    One that starts paused shows its boot; one that names saved memory, or a checkpoint, has it from
    its user.  After a start that failed the guest boots: the checkpoint may be the cause.
    """
    annotations = vmi["metadata"]["annotations"]
    named = any(each in annotations for each in (START_FROM, RESTORE_FROM))
    return not (named or vm.status.start_failure or is_paused_start(vm))


def revision(vm: VirtualMachine) -> Document:
    """Return the ControllerRevision that stores the spec of a VirtualMachine."""
    return {
        "metadata": {
            "name": revision_name(vm),
            "namespace": vm.metadata.namespace,
            "ownerReferences": [owner_reference(vm)],
        },
        "data": {"spec": msgspec.to_builtins(vm.spec)},
        "revision": vm.metadata.generation,
    }


def revision_name(vm: VirtualMachine) -> str:
    return f"{revision_prefix(vm)}{vm.metadata.generation}"


def revision_prefix(vm: VirtualMachine) -> str:
    """Return the common prefix of the names of a VirtualMachine's revisions."""
    return f"revision-start-vm-{vm.metadata.uid}-"
