"""VMIs of which two must never run: they are not replaced while a node may run them."""

from typing import Final

from corral.api.kinds.vmi.vmi import GROUP, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import claims_of

_OWNER_KIND: Final = "VirtualMachine"


def is_exclusive(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI must never run twice.

    It belongs to a VirtualMachine, whose identity it has, or it uses a claim, whose data two
    machines would damage.  All others are members of sets, alike and without a state of their own.
    """
    return _belongs_to_vm(vmi) or bool(claims_of(vmi.spec.volumes))


def _belongs_to_vm(vmi: VirtualMachineInstance) -> bool:
    return any(
        owner.controller
        and owner.kind == _OWNER_KIND
        and owner.api_version.partition("/")[0] == GROUP
        for owner in vmi.metadata.owner_references
    )
