"""Tells people whose storage has let a guest down: it is paused until somebody lets it go on.

The words are those of KubeVirt's launcher.
"""

from contextlib import suppress

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Guest, GuestError
from corral.node.state.events import Voice

REASON = "IOerror"


async def tell(guest: Guest, vmi: VirtualMachineInstance | None, voice: Voice) -> None:
    """One event for each disk that could not be read or written."""
    if vmi is None:
        return
    with suppress(GuestError):  # it has ended: that is told elsewhere
        for volume, is_full in (await guest.io_errors(vmi)).items():
            why = "not enough space on volume" if is_full else "IO error at the volume"
            voice.of_instance("Warning", REASON, f"VM Paused due to {why}: {volume}")
