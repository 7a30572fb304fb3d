"""The condition Forked of a VMI that is to start from a checkpoint.  No I/O.

It is absent until the guest runs.  Whoever has the memory of another machine answers by that one's
name until its guest agent has given it an identity of its own.
"""

from typing import Final

from corral.api.kinds.vmi.saved_memory import starts_from
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Condition

FORKED: Final = "Forked"
"""The type of the condition."""
RENEWED: Final = "IdentityRenewed"
"""Reason while it is True: the guest has started from the checkpoint, as a machine of its own."""
PENDING: Final = "IdentityPending"
SHARED: Final = "IdentityShared"
FAILED: Final = "ForkFailed"
"""Reasons while it is False: the identity is about to be renewed; it could not be; the guest has
booted instead."""


def forked(vmi: VirtualMachineInstance) -> Condition | None:
    """Return the condition Forked."""
    return next((each for each in vmi.status.conditions if each.type == FORKED), None)


def has_own_identity(vmi: VirtualMachineInstance) -> bool:
    """Report whether the guest of a VMI that runs is no other's: it has booted, or was renewed."""
    if not starts_from(vmi):
        return True
    condition = forked(vmi)
    return condition is not None and condition.reason in {RENEWED, FAILED}


def has_started_from(vmi: VirtualMachineInstance) -> bool:
    """Report whether the guest of a VMI has gone on from its checkpoint."""
    condition = forked(vmi)
    return condition is not None and condition.reason != FAILED


def has_booted_instead(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI could not start from its checkpoint."""
    condition = forked(vmi)
    return condition is not None and condition.reason == FAILED
