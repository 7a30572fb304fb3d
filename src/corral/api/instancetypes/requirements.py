"""Whether a VirtualMachine has what its preference needs; the words are KubeVirt's."""

from typing import NamedTuple

from corral.api.errors import Cause
from corral.api.instancetypes.fields import get
from corral.api.kinds.kubevirt import instancetype_topology
from corral.api.kinds.kubevirt.instancetype import InstancetypeSpec, PreferenceSpec
from corral.api.object import Document
from corral.api.quantity import amount


class _Lack(NamedTuple):
    """Of what there is too little: the fields that say how much, and the words for it."""

    fields: str
    message: str


_CPU = "spec.template.spec.domain.cpu"
_MEMORY = "spec.template.spec.domain.memory"
_ARCHITECTURE = "spec.template.spec.architecture"
_COUNTED = {
    "SocketsCores": ("sockets", "cores"),
    "CoresThreads": ("cores", "threads"),
    "SocketsCoresThreads": ("sockets", "cores", "threads"),
}


def lacking(
    spec: Document, instancetype: InstancetypeSpec | None, preference: PreferenceSpec | None
) -> list[Cause]:
    """What a machine's spec, with all defaults, and its instance type lack of what is needed.

    Only the first of it is told, as KubeVirt does: processors, memory, then the architecture.
    """
    if preference is None or preference.requirements is None:
        return []
    needed = preference.requirements
    found = (
        (needed.cpu is not None and _processors(spec, instancetype, preference, needed.cpu.guest))
        or (needed.memory is not None and _memory(spec, instancetype, str(needed.memory.guest)))
        or (needed.architecture and _architecture(spec, needed.architecture))
    )
    if not found:
        return []
    field, message = found
    told = f"failure checking preference requirements: {message}"
    return [Cause(field, told, "FieldValueNotFound")]


def _architecture(spec: Document, needed: str) -> _Lack | None:
    has = get(spec, "architecture") or ""
    if needed == has:
        return None
    message = f"preference requires architecture {needed} but {has} is being requested"
    return _Lack(_ARCHITECTURE, message)


def _processors(
    spec: Document, instancetype: InstancetypeSpec | None, preference: PreferenceSpec, needed: int
) -> _Lack | None:
    lacks = "insufficient CPU resources of"
    if instancetype is not None:
        if (has := instancetype.cpu.guest) >= needed:
            return None
        provided = f"{has} vCPU provided by instance type, preference requires {needed} vCPU"
        return _Lack("spec.instancetype", f"{lacks} {provided}")
    cpu = get(spec, "domain.cpu") or {}
    fields, told = _counted(preference)
    has = 1
    for field in fields:
        has *= cpu.get(field) or 0
    if has >= needed:
        return None
    provided = f"{has} vCPU provided by VirtualMachine, preference requires {needed} vCPU"
    where = ", ".join(f"{_CPU}.{field}" for field in fields)
    return _Lack(where, f"{lacks} {provided} provided as {told}")


def _counted(preference: PreferenceSpec) -> tuple[tuple[str, ...], str]:
    """Which fields' product counts, and what that is called."""
    match instancetype_topology.preferred(preference):
        case instancetype_topology.SPREAD:
            across = instancetype_topology.spread(preference).across
            return _COUNTED[across], across
        case instancetype_topology.ANY:
            return ("cores", "sockets", "threads"), "cores, sockets and threads"
        case unit:
            return (unit,), unit


def _memory(spec: Document, instancetype: InstancetypeSpec | None, needed: str) -> _Lack | None:
    has = get(spec, "domain.memory.guest")
    where, whose = _MEMORY, "VirtualMachine"
    if instancetype is not None:
        has = instancetype.memory.guest if has is None else has
        where, whose = "spec.instancetype", "instance type"
    has = "0" if has is None else has
    if amount(has) >= amount(needed):
        return None
    provided = f"{has} provided by {whose}, preference requires {needed}"
    return _Lack(where, f"insufficient Memory resources of {provided}")
