"""The machine of a VirtualMachine, and what is kept of what it was made from.  Pure."""

from typing import Any

import msgspec

from corral.api.kinds.kubevirt.virtualmachine import FINALIZER, GENERATION, VirtualMachine
from corral.api.object import Document
from corral.controllers.vm.state_change_requests import is_paused_start
from corral.reconcile.objects import owner_reference


def machine(vm: VirtualMachine) -> Document:
    """The VirtualMachineInstance that a VirtualMachine makes: its template, under its own name."""
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


def revision(vm: VirtualMachine) -> Document:
    """The ControllerRevision that keeps what a machine was made from."""
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
    return f"{revision_stem(vm)}{vm.metadata.generation}"


def revision_stem(vm: VirtualMachine) -> str:
    """What the names of all revisions of a VirtualMachine's machines begin with."""
    return f"revision-start-vm-{vm.metadata.uid}-"
