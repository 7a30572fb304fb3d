"""What a VirtualMachine gets when its maker did not say: KubeVirt's mutating webhook.

Only what must be the same each time its machine is made; the rest is settled then.
"""

from corral.api.kind import at
from corral.api.kinds.vmi.defaults import ARCHITECTURE, MACHINE, PCI_TOPOLOGY
from corral.api.object import Document
from corral.api.uid import random_uuid

IDENTITY = ("uuid", "serial")
"""By which the guest, and what is licensed to it, knows the machine again."""


def default_new_vm(document: Document) -> None:
    """Complete a VirtualMachine that is being made, in place."""
    template = document["spec"]["template"]
    spec = template["spec"]
    firmware = _firmware(spec)
    for name in IDENTITY:
        if not firmware.get(name):
            firmware[name] = random_uuid()
    if document["spec"].get("preference") is None:  # which may like others
        default_board(spec)
    metadata = template["metadata"] = template.get("metadata") or {}
    annotations = metadata["annotations"] = metadata.get("annotations") or {}
    annotations[PCI_TOPOLOGY] = "v3"


def default_board(spec: Document) -> None:
    """Settle on which board a machine will run, in its spec, in place."""
    if not spec.get("architecture"):
        spec["architecture"] = ARCHITECTURE
    machine = spec["domain"].get("machine") or {}
    if not machine.get("type"):
        spec["domain"]["machine"] = {**machine, "type": MACHINE}


def keep_identity(document: Document, old: Document, _user: str) -> None:
    """A manifest that does not speak of the machine's identity does not change it."""
    path = ("spec", "template", "spec", "domain", "firmware")
    known = at(old, *path) or {}
    missing = [name for name in IDENTITY if known.get(name) and not at(document, *path, name)]
    if missing:
        firmware = _firmware(document["spec"]["template"]["spec"])
        firmware.update((name, known[name]) for name in missing)


def _firmware(spec: Document) -> Document:
    """The firmware of a machine's spec, made if there is none."""
    firmware: Document = spec["domain"].get("firmware") or {}
    spec["domain"]["firmware"] = firmware
    return firmware
