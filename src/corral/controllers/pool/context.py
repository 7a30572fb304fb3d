"""What every act on a pool needs: a client, a voice, and what the cache has yet to show."""

from dataclasses import dataclass

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.client.client import Client
from corral.reconcile.events import EventRecorder
from corral.reconcile.expectations import Expectations


@dataclass(frozen=True, slots=True)
class Tools:
    """Shared by the acts on all pools."""

    client: Client
    recorder: EventRecorder
    expectations: Expectations[str]
    """By the uids of pools."""

    def tell(self, pool: VirtualMachinePool, reason: str, message: str) -> None:
        """A Normal event about the pool."""
        self.recorder.event(pool, "Normal", reason, message)

    def warn(self, pool: VirtualMachinePool, reason: str, message: str) -> None:
        """A Warning event about the pool."""
        self.recorder.event(pool, "Warning", reason, message)
