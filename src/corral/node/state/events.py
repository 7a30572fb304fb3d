"""What machines tell, and how the API is told of it: events about the instance and its pod."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change, Guest, GuestError
from corral.node.state.machine_record import Record
from corral.reconcile.events import EventRecorder

IO_ERROR = "IOerror"

EXPIRED = frozenset({Change.UNFED, Change.CUT_OFF})
WATCHDOG_EXPIRED = "WatchdogExpired"
RESET = "reset"
"""The action of a watchdog that does not name one (KubeVirt)."""

_DEEDS = {
    RESET: "it is reset",
    "shutdown": "it is asked to shut down",
    "poweroff": "it is powered off",
}


class Voice(Protocol):
    """Whom a machine tells what happens to it."""

    def changed(self) -> None:
        """Its facts are other ones now."""

    def of_instance(self, event_type: str, reason: str, message: str) -> None:
        """An event about the instance."""

    def of_pod(self, event_type: str, reason: str, message: str) -> None:
        """An event about its pod."""


class ApiVoice:
    """Tells the API what a machine tells: events about it, and that its pod is due."""

    def __init__(
        self,
        due: Callable[[], None],
        record: Record,
        *,
        handler: EventRecorder,
        kubelet: EventRecorder,
    ) -> None:
        self.changed = due
        self._handler = handler
        self._kubelet = kubelet
        self._record = record

    def of_instance(self, event_type: str, reason: str, message: str) -> None:
        record = self._record
        instance = {
            "apiVersion": VirtualMachineInstance.api_version,
            "kind": VirtualMachineInstance.kind,
            "namespace": record.namespace,
            "name": record.instance,
            "uid": record.uid,
        }
        self._handler.event(instance, event_type, reason, message)

    def of_pod(self, event_type: str, reason: str, message: str) -> None:
        record = self._record
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": record.namespace,
            "name": record.pod,
            "uid": record.pod_uid,
        }
        self._kubelet.event(pod, event_type, reason, message)


async def tell_io_errors(guest: Guest, vmi: VirtualMachineInstance | None, voice: Voice) -> None:
    """One event for each disk that could not be read or written, in the words of virt-launcher.

    The guest is paused until somebody lets it go on.
    """
    if vmi is None:
        return
    with suppress(GuestError):  # it has ended: that is told elsewhere
        for volume, is_full in (await guest.io_errors(vmi)).items():
            why = "not enough space on volume" if is_full else "IO error at the volume"
            voice.of_instance("Warning", IO_ERROR, f"VM Paused due to {why}: {volume}")


def action_of(vmi: VirtualMachineInstance) -> str:
    """What the watchdog of a machine does; empty where it has none."""
    wanted = vmi.spec.domain.devices.watchdog
    if wanted is None or wanted.i6300esb is None:
        return ""
    return wanted.i6300esb.action or RESET


def tell_watchdog(vmi: VirtualMachineInstance | None, voice: Voice) -> None:
    """A guest has stopped feeding its watchdog, and what that does to it.

    The device acts by itself; KubeVirt says nothing of it, so the words are ours.
    """
    if vmi is None:
        return
    deed = _DEEDS.get(action_of(vmi), "its watchdog acts")
    voice.of_instance(
        "Warning", WATCHDOG_EXPIRED, f"The guest no longer feeds its watchdog: {deed}."
    )
