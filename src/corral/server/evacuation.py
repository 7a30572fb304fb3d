"""What KubeVirt has to say to the eviction of a machine's pod (its eviction webhook).

A machine's ``evictionStrategy`` may ask that the machine moves, or that somebody else takes care of
it, rather than end.  Then the eviction is refused, in a way that makes clients try again, and the
machine is marked with the node that it is to leave.
"""

from dataclasses import dataclass, replace
from typing import Final

from corral.api.conditions import get_condition
from corral.api.errors import TooManyRequests
from corral.api.kind import at
from corral.api.kinds.kubevirt import VIRTUAL_MACHINE_INSTANCE
from corral.api.object import Document, Key
from corral.server.call import Call, not_found, storage
from corral.server.rest import Rest
from corral.server.virtual_machines import SERVER
from corral.store import Record

WEBHOOK: Final = "virt-launcher-eviction-interceptor.kubevirt.io"
_MACHINE = VIRTUAL_MACHINE_INSTANCE
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a pod is not evicted, and its machine as it is to be stored with the mark."""

    why: str
    marked: Document | None = None

    def error(self) -> TooManyRequests:
        return TooManyRequests(f'admission webhook "{WEBHOOK}" denied the request: {self.why}')


def denial(rest: Rest, call: Call, pod: Document) -> Denial | None:
    """The refusal to evict a machine's pod; None where it may go, and for all other pods."""
    name = at(pod, "metadata", "annotations", "kubevirt.io/domain")
    of_machine = at(pod, "metadata", "labels", "kubevirt.io") == "virt-launcher"
    if not (of_machine and name) or at(pod, "status", "phase") in _ENDED:
        return None
    record = rest.store.latest(storage(_MACHINE), Key(call.namespace, name))
    if record is None:
        return Denial(f"kubevirt failed getting the vmi: {not_found(_MACHINE, name)}")
    machine = record.document()
    strategy = at(machine, "spec", "evictionStrategy")
    if strategy == "LiveMigrate" and not _is_migratable(machine):
        why = f"VMI {name} is configured with an eviction strategy but is not live-migratable"
        return Denial(why)
    return _evacuation(rest, call, pod, record) if _is_to_leave(machine, strategy) else None


def _evacuation(rest: Rest, call: Call, pod: Document, record: Record) -> Denial:
    """The machine leaves its node before its pod may go: marks it, unless it is marked."""
    name, machine = record.key.name, record.document()
    triggered = f'Eviction triggered evacuation of VMI "{call.namespace}/{name}"'
    if at(machine, "status", "evacuationNodeName"):
        return Denial(f"Evacuation in progress: {triggered}")
    node = at(pod, "spec", "nodeName")
    if at(machine, "status", "nodeName") != node:
        return Denial("Eviction request for target Pod")
    machine["status"]["evacuationNodeName"] = node
    ours = replace(
        call, kind=_MACHINE, name=name, user=SERVER, group=_MACHINE.group, subresource=""
    )
    return Denial(triggered, rest.updated(ours, record, machine))


def _is_to_leave(machine: Document, strategy: str | None) -> bool:
    """Whether the machine leaves its node in a way other than by ending."""
    if strategy == "External":
        return True
    return strategy in ("LiveMigrate", "LiveMigrateIfPossible") and _is_migratable(machine)


def _is_migratable(machine: Document) -> bool:
    found = get_condition(at(machine, "status", "conditions"), "LiveMigratable")
    return found is not None and found.get("status") == "True"
