"""What a spare of a warm pool is kept as: running, or paused until it is handed out.  No I/O.

The pool writes what it wants into an annotation of the spare, and the spare's node does it.  A
machine that its node has paused says so by the reason of KubeVirt's condition Paused; one that a
user has paused has another reason, and stays paused when it is handed out.
"""

from typing import Final

from corral.api.kinds.corral.warm_pool import TEMPLATE_HASH_LABEL, WARM_POOL_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance

SPARE_STATE: Final = "corral.dev/spare-state"
"""Annotation of a spare: the ``spec.state`` of its warm pool, unless that is Running."""
PAUSED: Final = "Paused"
"""Value of ``spec.state`` and of the annotation; the type of KubeVirt's condition, too."""
PAUSED_AS_SPARE: Final = "PausedAsSpare"
"""Reason of the condition Paused of a spare that its node has paused."""


def is_kept_paused(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI is a spare that is paused as soon as it is ready."""
    metadata = vmi.metadata
    return (
        metadata.annotations.get(SPARE_STATE) == PAUSED
        and WARM_POOL_LABEL in metadata.labels
        and TEMPLATE_HASH_LABEL in metadata.labels
    )


def is_paused_spare(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI was ready as a spare, and has been paused by its node since."""
    return any(
        each.type == PAUSED and each.status == "True" and each.reason == PAUSED_AS_SPARE
        for each in vmi.status.conditions
    )
