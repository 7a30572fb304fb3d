"""Common parts of the operations on pools: client, event recorder, expectations."""

from dataclasses import dataclass

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.client.client import Client
from corral.reconcile.events import EventRecorder
from corral.reconcile.expectations import Expectations


@dataclass(frozen=True, slots=True)
class Tools:
    """Shared by the operations on all pools."""

    client: Client
    recorder: EventRecorder
    expectations: Expectations[str]
    """Keyed by the uid of the pool."""

    def record(self, pool: VirtualMachinePool, reason: str, message: str) -> None:
        """Record a Normal event about the pool."""
        self.recorder.event(pool, "Normal", reason, message)

    def warn(self, pool: VirtualMachinePool, reason: str, message: str) -> None:
        """Record a Warning event about the pool."""
        self.recorder.event(pool, "Warning", reason, message)
