"""Evictions on one node: candidates, conditions and events."""

from collections.abc import Awaitable, Callable, Iterator

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

_EVENT_REASONS = {
    (MEMORY_PRESSURE, True): "NodeHasInsufficientMemory",
    (MEMORY_PRESSURE, False): "NodeHasSufficientMemory",
    (DISK_PRESSURE, True): "NodeHasDiskPressure",
    (DISK_PRESSURE, False): "NodeHasNoDiskPressure",
    (PID_PRESSURE, True): "NodeHasInsufficientPID",
    (PID_PRESSURE, False): "NodeHasSufficientPID",
}
"""A kubelet's event reasons."""


class Evictions:
    """The evictions of one node.

    ``register_again`` updates its status; ``evict_checkpoint`` removes a checkpoint that is not
    needed, and reports whether there was one.
    """

    def __init__(
        self,
        index: MachineIndex,
        events: EventRecorder,
        node: Callable[[], Node | None],
        register_again: Callable[[], None],
        evict_checkpoint: Callable[[], Awaitable[bool]],
    ) -> None:
        self._index = index
        self._events = events
        self._node = node
        self._register_again = register_again
        self.evict_checkpoint = evict_checkpoint

    def candidates(self, resource: str) -> Iterator[Candidate]:
        """Return running machines with their usage of the resource."""
        for tenant in self._index.running_pods():
            if not tenant.machine.facts.evicted:
                yield Candidate(tenant.pod, _usage(tenant.machine, resource))

    def is_evicting(self) -> bool:
        """Report whether an evicted machine has not ended yet."""
        return any(tenant.machine.facts.evicted for tenant in self._index.running_pods())

    def evict(self, victim: Candidate, message: str) -> None:
        """Evict a machine, without a grace period."""
        machine = self._index.machine_of_pod(victim.key)
        if machine is not None:
            self._events.event(object_reference(victim.pod), "Warning", EVICTED, message)
            machine.evict(message)

    def report_reclaim(self, resource: str) -> None:
        """Record the event that a resource is being reclaimed."""
        text = f"Attempting to reclaim {resource}"
        self._record_event("Warning", "EvictionThresholdMet", text)

    def condition_changed(self, condition: str, *, active: bool) -> None:
        """Report a changed pressure condition."""
        self._register_again()
        if (node := self._node()) is not None and node.metadata is not None:
            word = _EVENT_REASONS[condition, active]
            self._record_event("Normal", word, f"Node {node.metadata.name} status is now: {word}")

    def _record_event(self, event_type: str, reason: str, text: str) -> None:
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
