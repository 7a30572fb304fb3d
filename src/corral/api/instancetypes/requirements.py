"""Whether a VirtualMachine has what its preference needs; the words are KubeVirt's."""

from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.instancetypes import topology
from corral.api.instancetypes.fields import get
from corral.api.kinds.instancetype import InstancetypeSpec, PreferenceSpec
from corral.api.object import Document
from corral.api.quantity import amount

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
    """What a machine's spec, as it was written, and its instance type lack of what is needed."""
    if preference is None or preference.requirements is None:
        return []
    needed = preference.requirements
    causes: list[Cause] = []
    if needed.cpu is not None:
        causes += _processors(spec, instancetype, preference, needed.cpu.guest)
    if needed.memory is not None:
        causes += _memory(spec, instancetype, str(needed.memory.guest))
    has = get(spec, "architecture") or "amd64"
    if needed.architecture and needed.architecture != has:
        message = (
            f"preference requires architecture {needed.architecture} but {has} is being requested"
        )
        causes.append(Cause(_ARCHITECTURE, message))
    return causes


def _processors(
    spec: Document, instancetype: InstancetypeSpec | None, preference: PreferenceSpec, needed: int
) -> Iterator[Cause]:
    lacks = "insufficient CPU resources of"
    if instancetype is not None:
        if (has := instancetype.cpu.guest) < needed:
            provided = f"{has} vCPU provided by instance type, preference requires {needed} vCPU"
            yield Cause("spec.instancetype", f"{lacks} {provided}")
        return
    cpu = get(spec, "domain.cpu")
    if cpu is None:
        message = f"no CPU resources provided by VirtualMachine, preference requires {needed} vCPU"
        yield Cause(_CPU, message)
        return
    fields, told = _counted(preference)
    has = 1
    for field in fields:
        has *= cpu.get(field) or 0
    if has < needed:
        provided = f"{has} vCPU provided by VirtualMachine, preference requires {needed} vCPU"
        for field in fields:
            yield Cause(f"{_CPU}.{field}", f"{lacks} {provided} provided as {told}")


def _counted(preference: PreferenceSpec) -> tuple[tuple[str, ...], str]:
    """Which fields' product counts, and what that is called."""
    match topology.preferred(preference):
        case topology.SPREAD:
            across = topology.spread(preference).across
            return _COUNTED[across], across
        case topology.ANY:
            return ("cores", "sockets", "threads"), "cores, sockets and threads"
        case unit:
            return (unit,), unit


def _memory(spec: Document, instancetype: InstancetypeSpec | None, needed: str) -> Iterator[Cause]:
    lacks = "insufficient Memory resources of"
    if instancetype is not None:
        has = str(instancetype.memory.guest)
        if amount(has) < amount(needed):
            provided = f"{has} provided by instance type, preference requires {needed}"
            yield Cause("spec.instancetype", f"{lacks} {provided}")
        return
    guest = get(spec, "domain.memory.guest")
    if guest is None:
        message = f"no Memory provided by VirtualMachine, preference requires {needed}"
        yield Cause(_MEMORY, message)
    elif amount(guest) < amount(needed):
        provided = f"{guest} provided by VirtualMachine, preference requires {needed}"
        yield Cause(_MEMORY, f"{lacks} {provided}")
