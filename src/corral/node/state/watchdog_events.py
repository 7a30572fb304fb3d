"""Tells people that a guest has stopped feeding its watchdog, and what that does to it.

The device acts by itself; KubeVirt says nothing of it, so the words are ours.
"""

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change
from corral.node.state.events import Voice

EXPIRED = frozenset({Change.UNFED, Change.CUT_OFF})
REASON = "WatchdogExpired"
RESET = "reset"
"""The action of a watchdog that does not name one (KubeVirt)."""

_DEEDS = {
    RESET: "it is reset",
    "shutdown": "it is asked to shut down",
    "poweroff": "it is powered off",
}


def action_of(vmi: VirtualMachineInstance) -> str:
    """What the watchdog of a machine does; empty where it has none."""
    wanted = vmi.spec.domain.devices.watchdog
    if wanted is None or wanted.i6300esb is None:
        return ""
    return wanted.i6300esb.action or RESET


def tell(vmi: VirtualMachineInstance | None, voice: Voice) -> None:
    if vmi is None:
        return
    deed = _DEEDS.get(action_of(vmi), "its watchdog acts")
    voice.of_instance("Warning", REASON, f"The guest no longer feeds its watchdog: {deed}.")
