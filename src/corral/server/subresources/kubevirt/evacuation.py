"""What KubeVirt has to say to the eviction of a machine's pod, and how that is taken back.

A machine's ``evictionStrategy`` may ask that the machine moves, or that somebody else takes care of
it, rather than end.  Then the eviction is refused, in a way that makes clients try again, and the
machine is marked with the node that it is to leave (KubeVirt's eviction webhook).  The subresource
``evacuate/cancel`` takes the mark away.
"""

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from corral.api.conditions import get_condition
from corral.api.errors import MethodNotAllowed, TooManyRequests
from corral.api.kind import Kind, at
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.server.registry.rest import Rest
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, not_found, storage
from corral.server.subresources.kubevirt.virtual_machines import SERVER
from corral.store import Record

WEBHOOK: Final = "virt-launcher-eviction-interceptor.kubevirt.io"
CANCEL: Final = "evacuate/cancel"
_MACHINE = VIRTUAL_MACHINE_INSTANCE
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a pod is not evicted, and its machine as it is to be stored with the mark."""

    why: str
    marked: Document | None = None

    def error(self) -> TooManyRequests:
        return TooManyRequests(f'admission webhook "{WEBHOOK}" denied the request: {self.why}')


async def denial(rest: Rest, call: Call, pod: Document) -> Denial | None:
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
    if not _is_to_leave(machine, strategy):
        return None
    return await _evacuation(rest, call, pod, record)


async def _evacuation(rest: Rest, call: Call, pod: Document, record: Record) -> Denial:
    """The machine leaves its node before its pod may go: marks it, unless it is marked."""
    name, machine = record.key.name, record.document()
    triggered = f'Eviction triggered evacuation of VMI "{call.namespace}/{name}"'
    if at(machine, "status", "evacuationNodeName"):
        return Denial(f"Evacuation in progress: {triggered}")
    node = at(pod, "spec", "nodeName")
    if at(machine, "status", "nodeName") != node:
        return Denial("Eviction request for target Pod")
    machine["status"]["evacuationNodeName"] = node
    return Denial(triggered, await rest.evaluate_update(_ours(call, name), record, machine))


def _is_to_leave(machine: Document, strategy: str | None) -> bool:
    """Whether the machine leaves its node in a way other than by ending."""
    if strategy == "External":
        return True
    return strategy in ("LiveMigrate", "LiveMigrateIfPossible") and _is_migratable(machine)


def _is_migratable(machine: Document) -> bool:
    found = get_condition(at(machine, "status", "conditions"), "LiveMigratable")
    return found is not None and found.get("status") == "True"


# --------------------------------------------------------------------- cancel


class Options(msgspec.Struct, rename="camel"):
    """KubeVirt's EvacuateCancelOptions.

    evacuation_node_name: the node that the machine is thought to leave.
    dry_run: All to try it only.
    """

    evacuation_node_name: str = ""
    dry_run: list[str] | None = None


def find(kind: Kind, subresource: str) -> str | None:
    """The verb of a subresource, where it is this one."""
    return (
        "update" if kind.resource in kubevirt_options.SINGULAR and subresource == CANCEL else None
    )


async def cancel(rest: Rest, call: Call) -> Response:
    """Take a machine's mark away, if it has one.  Raises NotFound, BadRequest and Conflict."""
    if call.verb != "update":
        raise MethodNotAllowed(
            f'{call.verb} is not supported on {call.subresource} of resources of kind "VMI"'
        )
    options = kubevirt_options.options(call, Options)
    record = _machine_of(rest, call)
    machine = record.document()
    marked = at(machine, "status", "evacuationNodeName")
    if not marked:
        return Response()
    if options.evacuation_node_name not in ("", marked):
        why = f'VMI is to leave node "{marked}", not "{options.evacuation_node_name}"'
        raise kubevirt_options.conflict(_MACHINE, call.name, why)
    del machine["status"]["evacuationNodeName"]
    asked = replace(call, query=kubevirt_options.query(call, options.dry_run))
    changed = await rest.evaluate_update(_ours(asked, call.name), record, machine)
    if changed is not None and "All" not in (options.dry_run or ()):
        await rest.store.write(storage(_MACHINE), call.key, changed)
    return Response()


def _machine_of(rest: Rest, call: Call) -> Record:
    """The machine, which may be told by its VirtualMachine.  Raises NotFound."""
    asked = rest.store.latest(storage(call.kind), call.key)
    if asked is None:
        raise kubevirt_options.not_found(call.kind, call.name)
    machine = rest.store.latest(storage(_MACHINE), call.key)
    uid = asked.document()["metadata"]["uid"]
    if machine is None or uid not in _uids(machine.document()):
        raise kubevirt_options.not_found(_MACHINE, call.name)
    return machine


def _uids(machine: Document) -> list[str]:
    """Of a machine and of its owners."""
    metadata = machine["metadata"]
    return [metadata["uid"], *(each["uid"] for each in metadata.get("ownerReferences") or ())]


def _ours(call: Call, name: str) -> Call:
    """A change of a machine's status: its users may not change that themselves."""
    return replace(
        call, kind=_MACHINE, name=name, user=SERVER, group=_MACHINE.group, subresource=""
    )
