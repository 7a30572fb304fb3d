"""Defaults of VirtualMachines: KubeVirt's mutating webhook.

Only fields that must be the same at every start; the others are defaulted in each VMI.
"""

from corral.api.kind import at
from corral.api.kinds.vmi.defaults import ARCHITECTURE, MACHINE, PCI_TOPOLOGY
from corral.api.object import Document
from corral.api.uid import random_uuid

IDENTITY = ("uuid", "serial")
"""Fields of the firmware by which the guest, and its licences, identify the machine."""


def default_new_vm(document: Document) -> None:
    """Default a new VirtualMachine, in place."""
    template = document["spec"]["template"]
    spec = template["spec"]
    firmware = _firmware(spec)
    for name in IDENTITY:
        if not firmware.get(name):
            firmware[name] = random_uuid()
    if document["spec"].get("preference") is None:  # a preference may set another type
        default_machine_type(spec)
    metadata = template["metadata"] = template.get("metadata") or {}
    annotations = metadata["annotations"] = metadata.get("annotations") or {}
    annotations[PCI_TOPOLOGY] = "v3"


def default_machine_type(spec: Document) -> None:
    """Default architecture and machine type of a VMI's spec, in place."""
    if not spec.get("architecture"):
        spec["architecture"] = ARCHITECTURE
    machine = spec["domain"].get("machine") or {}
    if not machine.get("type"):
        spec["domain"]["machine"] = {**machine, "type": MACHINE}


def keep_identity(document: Document, old: Document, _user: str) -> None:
    """Keep the stored UUID and serial number on an update that leaves them out."""
    path = ("spec", "template", "spec", "domain", "firmware")
    stored = at(old, *path) or {}
    missing = [name for name in IDENTITY if stored.get(name) and not at(document, *path, name)]
    if missing:
        firmware = _firmware(document["spec"]["template"]["spec"])
        firmware.update((name, stored[name]) for name in missing)


def _firmware(spec: Document) -> Document:
    """Return the firmware of a VMI's spec, which is added if missing."""
    firmware: Document = spec["domain"].get("firmware") or {}
    spec["domain"]["firmware"] = firmware
    return firmware
