"""Events of machines, about VMIs and their pods, and the recorder that writes them to the API."""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Change, Guest, GuestError
from corral.node.state.machine_record import Record
from corral.reconcile.events import EventRecorder

IO_ERROR = "IOerror"

EXPIRED = frozenset({Change.WATCHDOG_EXPIRED, Change.WATCHDOG_POWERED_OFF})
WATCHDOG_EXPIRED = "WatchdogExpired"
RESET = "reset"
"""The action of a watchdog that does not name one (KubeVirt)."""

_WATCHDOG_ACTIONS = {
    RESET: "it is reset",
    "shutdown": "it is asked to shut down",
    "poweroff": "it is powered off",
}


class MachineEvents(Protocol):
    """Records the events of one machine."""

    def changed(self) -> None:
        """Notify the pod's reconciler: the machine's facts have changed."""

    def vmi_event(self, event_type: str, reason: str, message: str) -> None:
        """Record an event about the VMI."""

    def pod_event(self, event_type: str, reason: str, message: str) -> None:
        """Record an event about the pod."""


class MachineEventRecorder:
    """Records events in the API as virt-handler and kubelet; ``due`` enqueues the pod."""

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

    def vmi_event(self, event_type: str, reason: str, message: str) -> None:
        record = self._record
        instance = {
            "apiVersion": VirtualMachineInstance.api_version,
            "kind": VirtualMachineInstance.kind,
            "namespace": record.namespace,
            "name": record.instance,
            "uid": record.uid,
        }
        self._handler.event(instance, event_type, reason, message)

    def pod_event(self, event_type: str, reason: str, message: str) -> None:
        record = self._record
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": record.namespace,
            "name": record.pod,
            "uid": record.pod_uid,
        }
        self._kubelet.event(pod, event_type, reason, message)


async def report_io_errors(
    guest: Guest, vmi: VirtualMachineInstance | None, recorder: MachineEvents
) -> None:
    """Record an event for each disk with an I/O error, in virt-launcher's words.

    The guest stays paused until a user resumes it.
    """
    if vmi is None:
        return
    with suppress(GuestError):  # it has ended, which is reported by others
        for volume, is_full in (await guest.io_errors(vmi)).items():
            why = "not enough space on volume" if is_full else "IO error at the volume"
            recorder.vmi_event("Warning", IO_ERROR, f"VM Paused due to {why}: {volume}")


def watchdog_action(vmi: VirtualMachineInstance) -> str:
    """Return the action of a VMI's watchdog; empty without a watchdog."""
    watchdog = vmi.spec.domain.devices.watchdog
    if watchdog is None or watchdog.i6300esb is None:
        return ""
    return watchdog.i6300esb.action or RESET


def report_watchdog(vmi: VirtualMachineInstance | None, recorder: MachineEvents) -> None:
    """Record an event that the guest's watchdog has expired, and what it does.

    The device acts by itself.  KubeVirt records no such event, so the wording is ours.
    """
    if vmi is None:
        return
    action = _WATCHDOG_ACTIONS.get(watchdog_action(vmi), "its watchdog acts")
    recorder.vmi_event(
        "Warning", WATCHDOG_EXPIRED, f"The guest no longer feeds its watchdog: {action}."
    )
