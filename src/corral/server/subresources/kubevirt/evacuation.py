"""Evictions of VMIs' pods, as KubeVirt's eviction webhook handles them; ``evacuate/cancel``.

A VMI's ``evictionStrategy``, or that of the KubeVirt object for those without one, may ask for a
migration, or for an external controller, rather than for its end.
Then the eviction is refused with 429, so clients retry, and the VMI is marked with the
node that it is to leave: ``status.evacuationNodeName``.  ``evacuate/cancel`` removes the mark.
An annotation says where the descheduler asked, whose migrations come after those of drains.
"""

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from corral.api.conditions import is_condition_true
from corral.api.errors import MethodNotAllowed, TooManyRequests
from corral.api.kind import Kind, at
from corral.api.kinds.kubevirt.installation import EVICTION_FIELD, KEY, KUBEVIRT_KIND
from corral.api.kinds.kubevirt.kinds import REPLICA_SET, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.kubevirt.migration import (
    DESCHEDULER,
    DESCHEDULER_NAME,
    EVACUATION_TRIGGERED,
    EVICTION_SOURCE,
    REQUESTED_BY,
)
from corral.api.kinds.vmi import live_migration
from corral.api.kinds.vmi.replacement import REPLACEMENT_REQUESTED, replaces_after_ready
from corral.api.object import Document, Key
from corral.api.request import Response
from corral.server.registry.rest import Updates
from corral.server.request import kubevirt_options
from corral.server.request.call import Call, not_found, storage
from corral.server.subresources.kubevirt.virtual_machines import SERVER
from corral.store import Record

WEBHOOK: Final = "virt-launcher-eviction-interceptor.kubevirt.io"
CANCEL: Final = "evacuate/cancel"
_VMI = VIRTUAL_MACHINE_INSTANCE
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Denial:
    """The message of a refused eviction, and the VMI with the mark, to be stored."""

    why: str
    marked: Document | None = None

    def error(self) -> TooManyRequests:
        return TooManyRequests(f'admission webhook "{WEBHOOK}" denied the request: {self.why}')


async def denial(rest: Updates, call: Call, pod: Document, eviction: Document) -> Denial | None:
    """Return the refusal to evict a VMI's pod; None where it may be evicted, and for other pods."""
    name = at(pod, "metadata", "annotations", "kubevirt.io/domain")
    of_vmi = at(pod, "metadata", "labels", "kubevirt.io") == "virt-launcher"
    if not (of_vmi and name) or at(pod, "status", "phase") in _ENDED:
        return None
    record = rest.store.latest(storage(_VMI), Key(call.namespace, name))
    if record is None:
        return Denial(f"kubevirt failed getting the vmi: {not_found(_VMI, name)}")
    vmi = record.document()
    strategy = at(vmi, "spec", "evictionStrategy") or _default_strategy(rest)
    if strategy == "LiveMigrate" and not _is_migratable(vmi):
        why = f"VMI {name} is configured with an eviction strategy but is not live-migratable"
        return Denial(why, await requested_replacement(rest, call, pod))
    if not _is_to_be_evacuated(vmi, strategy):
        return None
    by_descheduler = at(eviction, "metadata", "annotations", REQUESTED_BY) == DESCHEDULER_NAME
    return await _evacuation(rest, call, pod, record, by_descheduler=by_descheduler)


async def requested_replacement(rest: Updates, call: Call, pod: Document) -> Document | None:
    """Return the VMI of a pod with the mark that its set shall replace it first.

    None where its set does not ask for it, where it has the mark, and for other pods.
    """
    name = at(pod, "metadata", "annotations", "kubevirt.io/domain")
    record = rest.store.latest(storage(_VMI), Key(call.namespace, name)) if name else None
    node = at(pod, "spec", "nodeName")
    if record is None or not node:
        return None
    vmi = record.document()
    metadata = vmi["metadata"]
    annotations = metadata.get("annotations") or {}
    if at(vmi, "status", "nodeName") != node or annotations.get(REPLACEMENT_REQUESTED) == node:
        return None
    if not any(_asks(rest, call, owner) for owner in metadata.get("ownerReferences") or ()):
        return None
    metadata["annotations"] = {**annotations, REPLACEMENT_REQUESTED: node}
    return await rest.evaluate_update(_ours(call, record.key.name), record, vmi)


async def store_marked(rest: Updates, call: Call, marked: Document | None) -> None:
    """Store the VMI that an eviction has marked, if it has marked one."""
    if marked is not None:
        await rest.put(_ours(call, marked["metadata"]["name"]), marked)


def _asks(rest: Updates, call: Call, owner: Document) -> bool:
    """Return whether the owner of a VMI is a set that replaces after another one is ready."""
    if not owner.get("controller") or owner.get("kind") != REPLICA_SET.name:
        return False
    found = rest.store.latest(storage(REPLICA_SET), Key(call.namespace, owner["name"]))
    if found is None:
        return False
    metadata = found.document()["metadata"]
    return metadata["uid"] == owner.get("uid") and replaces_after_ready(metadata.get("annotations"))


def _default_strategy(rest: Updates) -> str | None:
    """Return the strategy of VMIs that have none of their own."""
    record = rest.store.latest(storage(KUBEVIRT_KIND), KEY)
    return at(record.document(), *EVICTION_FIELD.split(".")) if record is not None else None


async def _evacuation(
    rest: Updates, call: Call, pod: Document, record: Record, *, by_descheduler: bool
) -> Denial:
    """Mark the VMI with the node to leave, unless it is marked; return the refusal."""
    name, vmi = record.key.name, record.document()
    triggered = f'{EVACUATION_TRIGGERED} of VMI "{call.namespace}/{name}"'
    if at(vmi, "status", "evacuationNodeName"):
        return Denial(f"Evacuation in progress: {triggered}")
    node = at(pod, "spec", "nodeName")
    if at(vmi, "status", "nodeName") != node:
        return Denial("Eviction request for target Pod")
    vmi["status"]["evacuationNodeName"] = node
    if by_descheduler:
        annotations = vmi["metadata"].get("annotations") or {}
        vmi["metadata"]["annotations"] = {**annotations, EVICTION_SOURCE: DESCHEDULER}
    return Denial(triggered, await rest.evaluate_update(_ours(call, name), record, vmi))


def _is_to_be_evacuated(vmi: Document, strategy: str | None) -> bool:
    """Return whether the VMI is to leave its node alive: by migration or an external controller."""
    if strategy == "External":
        return True
    return strategy in live_migration.BY_MIGRATION and _is_migratable(vmi)


def _is_migratable(vmi: Document) -> bool:
    return is_condition_true(vmi, live_migration.CONDITION)


# --------------------------------------------------------------------- cancel


class Options(msgspec.Struct, rename="camel"):
    """KubeVirt's EvacuateCancelOptions.

    evacuation_node_name: precondition: the node that the VMI is to leave.
    dry_run: All to validate only.
    """

    evacuation_node_name: str = ""
    dry_run: list[str] | None = None


def find(kind: Kind, subresource: str) -> str | None:
    """Return the verb of a subresource; None for any but ``evacuate/cancel``."""
    return (
        "update" if kind.resource in kubevirt_options.SINGULAR and subresource == CANCEL else None
    )


async def cancel(rest: Updates, call: Call) -> Response:
    """Remove a VMI's mark, if it has one.  Raises NotFound, BadRequest and Conflict."""
    if call.verb != "update":
        raise MethodNotAllowed(
            f'{call.verb} is not supported on {call.subresource} of resources of kind "VMI"'
        )
    options = kubevirt_options.options(call, Options)
    record = _vmi_record(rest, call)
    vmi = record.document()
    marked = at(vmi, "status", "evacuationNodeName")
    if not marked:
        return Response()
    if options.evacuation_node_name not in ("", marked):
        why = f'VMI is to leave node "{marked}", not "{options.evacuation_node_name}"'
        raise kubevirt_options.conflict(_VMI, call.name, why)
    del vmi["status"]["evacuationNodeName"]
    (vmi["metadata"].get("annotations") or {}).pop(EVICTION_SOURCE, None)
    with_options = replace(call, query=kubevirt_options.query(call, options.dry_run))
    ours = _ours(with_options, call.name)
    changed = await rest.evaluate_update(ours, record, vmi)
    if changed is not None and "All" not in (options.dry_run or ()):
        await rest.put(ours, changed)
    return Response()


def _vmi_record(rest: Updates, call: Call) -> Record:
    """Return the VMI that a call names, itself or by its VirtualMachine.  Raises NotFound."""
    named = rest.store.latest(storage(call.kind), call.key)
    if named is None:
        raise kubevirt_options.not_found(call.kind, call.name)
    vmi = rest.store.latest(storage(_VMI), call.key)
    uid = named.document()["metadata"]["uid"]
    if vmi is None or uid not in _uids(vmi.document()):
        raise kubevirt_options.not_found(_VMI, call.name)
    return vmi


def _uids(vmi: Document) -> list[str]:
    """Return the uids of a VMI and of its owners."""
    metadata = vmi["metadata"]
    return [metadata["uid"], *(each["uid"] for each in metadata.get("ownerReferences") or ())]


def _ours(call: Call, name: str) -> Call:
    """Return a call that updates a VMI as virt-api: users may not write its status."""
    return replace(call, kind=_VMI, name=name, user=SERVER, group=_VMI.group, subresource="")
