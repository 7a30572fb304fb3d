"""What the look at the host asks of one node: who could go, and to let one of them go."""

from collections.abc import Callable, Iterator

from lightkube.models.core_v1 import Node

from corral.api.kinds.core.node_pressure import (
    DISK_PRESSURE,
    EVICTED,
    MEMORY_PRESSURE,
    PID_PRESSURE,
)
from corral.node.hypervisor import GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.machine_index import MachineIndex
from corral.node.pressure.ranking import Candidate
from corral.node.state import machine_record as records
from corral.reconcile.events import EventRecorder
from corral.reconcile.objects import object_reference

_TOLD = {
    (MEMORY_PRESSURE, True): "NodeHasInsufficientMemory",
    (MEMORY_PRESSURE, False): "NodeHasSufficientMemory",
    (DISK_PRESSURE, True): "NodeHasDiskPressure",
    (DISK_PRESSURE, False): "NodeHasNoDiskPressure",
    (PID_PRESSURE, True): "NodeHasInsufficientPID",
    (PID_PRESSURE, False): "NodeHasSufficientPID",
}
"""A kubelet's events."""


class Evictions:
    """One node of the host.  ``register_again`` has the node say anew how it is."""

    def __init__(
        self,
        index: MachineIndex,
        events: EventRecorder,
        node: Callable[[], Node | None],
        register_again: Callable[[], None],
    ) -> None:
        self._index = index
        self._events = events
        self._node = node
        self._register_again = register_again

    def candidates(self, resource: str) -> Iterator[Candidate]:
        """The machines that run on, and what they take of what is short."""
        for tenant in self._index.running_pods():
            if not tenant.machine.facts.evicted:
                yield Candidate(tenant.pod, _usage(tenant.machine, resource))

    def is_busy(self) -> bool:
        """Whether a machine has yet to end that was told to go."""
        return any(tenant.machine.facts.evicted for tenant in self._index.running_pods())

    def evict(self, victim: Candidate, why: str) -> None:
        """End a machine at once."""
        machine = self._index.machine_of_pod(victim.key)
        if machine is not None:
            self._events.event(object_reference(victim.pod), "Warning", EVICTED, why)
            machine.evict(why)

    def attempt(self, resource: str) -> None:
        """Tell that something is done about a shortage."""
        text = f"Attempting to reclaim {resource}"
        self._tell("Warning", "EvictionThresholdMet", text)

    def turned(self, condition: str, *, holds: bool) -> None:
        """A pressure is there, or over."""
        self._register_again()
        if (node := self._node()) is not None and node.metadata is not None:
            word = _TOLD[condition, holds]
            self._tell("Normal", word, f"Node {node.metadata.name} status is now: {word}")

    def _tell(self, event_type: str, reason: str, text: str) -> None:
        if (node := self._node()) is not None:
            self._events.event(object_reference(node), event_type, reason, text)


def _usage(machine: Machine, resource: str) -> int | None:
    if resource == "ephemeral-storage":
        return records.own_bytes(machine.directory)
    try:
        usage = machine.guest.usage()
    except GuestError:
        return None
    return usage.memory_bytes if usage is not None and resource == "memory" else None
