"""What machines tell, and how the API is told of it: events about the instance and its pod."""

from collections.abc import Callable
from typing import Protocol

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.state.machine_record import Record
from corral.reconcile.events import Recorder


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
        self, due: Callable[[], None], record: Record, *, handler: Recorder, kubelet: Recorder
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
