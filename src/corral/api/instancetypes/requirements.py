"""Requirements of a preference, checked for a VirtualMachine, with KubeVirt's messages."""

from typing import NamedTuple

from corral.api.errors import Cause
from corral.api.instancetypes.fields import get
from corral.api.kinds.kubevirt import instancetype_topology
from corral.api.kinds.kubevirt.instancetype import InstancetypeSpec, PreferenceSpec
from corral.api.object import Document
from corral.api.quantity import amount


class _Unmet(NamedTuple):
    """An unmet requirement: the fields with the amount, and the message."""

    fields: str
    message: str


_CPU = "spec.template.spec.domain.cpu"
_MEMORY = "spec.template.spec.domain.memory"
_ARCHITECTURE = "spec.template.spec.architecture"
_SPREAD_FIELDS = {
    "SocketsCores": ("sockets", "cores"),
    "CoresThreads": ("cores", "threads"),
    "SocketsCoresThreads": ("sockets", "cores", "threads"),
}


def unmet(
    spec: Document, instancetype: InstancetypeSpec | None, preference: PreferenceSpec | None
) -> list[Cause]:
    """Return the first requirement that a spec, with defaults, and its instance type do not meet.

    The order is KubeVirt's: processors, memory, architecture.
    """
    if preference is None or preference.requirements is None:
        return []
    required = preference.requirements
    found = (
        (
            required.cpu is not None
            and _processors(spec, instancetype, preference, required.cpu.guest)
        )
        or (required.memory is not None and _memory(spec, instancetype, str(required.memory.guest)))
        or (required.architecture and _architecture(spec, required.architecture))
    )
    if not found:
        return []
    field, message = found
    text = f"failure checking preference requirements: {message}"
    return [Cause(field, text, "FieldValueNotFound")]


def _architecture(spec: Document, required: str) -> _Unmet | None:
    actual = get(spec, "architecture") or ""
    if required == actual:
        return None
    message = f"preference requires architecture {required} but {actual} is being requested"
    return _Unmet(_ARCHITECTURE, message)


def _processors(
    spec: Document, instancetype: InstancetypeSpec | None, preference: PreferenceSpec, required: int
) -> _Unmet | None:
    prefix = "insufficient CPU resources of"
    if instancetype is not None:
        if (actual := instancetype.cpu.guest) >= required:
            return None
        provided = f"{actual} vCPU provided by instance type, preference requires {required} vCPU"
        return _Unmet("spec.instancetype", f"{prefix} {provided}")
    cpu = get(spec, "domain.cpu") or {}
    fields, description = _topology_fields(preference)
    actual = 1
    for field in fields:
        actual *= cpu.get(field) or 0
    if actual >= required:
        return None
    provided = f"{actual} vCPU provided by VirtualMachine, preference requires {required} vCPU"
    where = ", ".join(f"{_CPU}.{field}" for field in fields)
    return _Unmet(where, f"{prefix} {provided} provided as {description}")


def _topology_fields(preference: PreferenceSpec) -> tuple[tuple[str, ...], str]:
    """Return the fields whose product is the number of CPUs, and their name in messages."""
    match instancetype_topology.preferred(preference):
        case instancetype_topology.SPREAD:
            across = instancetype_topology.spread(preference).across
            return _SPREAD_FIELDS[across], across
        case instancetype_topology.ANY:
            return ("cores", "sockets", "threads"), "cores, sockets and threads"
        case unit:
            return (unit,), unit


def _memory(spec: Document, instancetype: InstancetypeSpec | None, required: str) -> _Unmet | None:
    actual = get(spec, "domain.memory.guest")
    where, provider = _MEMORY, "VirtualMachine"
    if instancetype is not None:
        actual = instancetype.memory.guest if actual is None else actual
        where, provider = "spec.instancetype", "instance type"
    actual = "0" if actual is None else actual
    if amount(actual) >= amount(required):
        return None
    provided = f"{actual} provided by {provider}, preference requires {required}"
    return _Unmet(where, f"insufficient Memory resources of {provided}")
