"""Applies an instance type and a preference to the template of a VMI.

A field of the instance type that the template sets, too, is a conflict.  A preference is a default
for fields that the template leaves open.  The order and the conflicting fields are KubeVirt's
(pkg/instancetype/apply).
"""

from collections.abc import Callable, Iterator, Mapping
from struct import Struct

import msgspec

from corral.api.errors import Cause
from corral.api.instancetypes.fields import get, put
from corral.api.instancetypes.preferred import prefer
from corral.api.kinds.kubevirt import instancetype_topology
from corral.api.kinds.kubevirt.instancetype import InstancetypeSpec, PreferenceSpec
from corral.api.object import Document
from corral.api.quantity import NANO, Amount, amount


def apply(
    template: Document,
    instancetype: InstancetypeSpec | None,
    preference: PreferenceSpec | None,
    path: str = "spec.template.spec",
) -> list[Cause]:
    """Change a template (``metadata`` and ``spec``) in place; return the conflicts.

    ``path`` is that of the spec in the object, for causes.  With conflicts the template is left
    half changed and must not be used.
    """
    spec = template["spec"]
    if instancetype is not None:
        document: Document = msgspec.to_builtins(instancetype)
        causes = [_conflict(f"{path}.{one}") for one in conflicts(document, spec)]
        causes += _annotate(template, instancetype.annotations)
        if (
            cause := instancetype_topology.divisibility_cause(instancetype.cpu.guest, preference)
        ) is not None:
            causes.append(cause)
        if causes:
            return causes
        for step in _STEPS:
            step(instancetype, preference, spec)
    if preference is not None:
        prefer(preference, spec)
        if preference.annotations:
            own = get(template, "metadata.annotations") or {}
            put(template, "metadata.annotations", {**preference.annotations, **own})
    return []


def conflicts(instancetype: Document, spec: Document) -> Iterator[str]:
    """Yield the fields of a spec that are set although the instance type sets them."""
    for field in _ALWAYS_SET:
        if get(spec, field):
            yield field
    for field, source in _OPTIONALLY_SET.items():
        if get(instancetype, source) is not None and get(spec, field):
            yield field


def _conflict(field: str) -> Cause:
    return Cause(field, f"VM field(s) {field} conflicts with selected instance type")


_FLOAT32 = Struct("f")
MAX_BYTES = (1 << 63) - 1
"""Kubernetes' maximum of an amount."""
_ALWAYS_SET = (
    "domain.resources.requests.cpu",
    "domain.resources.limits.cpu",
    "domain.cpu.sockets",
    "domain.cpu.cores",
    "domain.cpu.threads",
    "domain.memory.guest",
    "domain.resources.requests.memory",
    "domain.resources.limits.memory",
)
"""Fields that every instance type sets."""

_OPTIONALLY_SET: Mapping[str, str] = {
    "nodeSelector": "nodeSelector",
    "schedulerName": "schedulerName",
    "domain.cpu.model": "cpu.model",
    "domain.cpu.dedicatedCpuPlacement": "cpu.dedicatedCPUPlacement",
    "domain.cpu.isolateEmulatorThread": "cpu.isolateEmulatorThread",
    "domain.cpu.numa": "cpu.numa",
    "domain.cpu.realtime": "cpu.realtime",
    "domain.memory.hugepages": "memory.hugepages",
    "domain.memory.maxGuest": "memory.maxGuest",
    "domain.ioThreadsPolicy": "ioThreadsPolicy",
    "domain.launchSecurity": "launchSecurity",
    "domain.devices.gpus": "gpus",
    "domain.devices.hostDevices": "hostDevices",
}
"""Fields of a spec, and the optional field of an instance type that sets each."""

_COPIED: Mapping[str, str] = {
    **_OPTIONALLY_SET,
    "domain.cpu.maxSockets": "cpu.maxSockets",
    "domain.memory.guest": "memory.guest",
    "domain.ioThreads": "ioThreads",
}


def _copy(
    instancetype: InstancetypeSpec, _preference: PreferenceSpec | None, spec: Document
) -> None:
    document = msgspec.to_builtins(instancetype)
    for field, source in _COPIED.items():
        if (value := get(document, source)) is not None:
            put(spec, field, value)


def _lay_out(
    instancetype: InstancetypeSpec, preference: PreferenceSpec | None, spec: Document
) -> None:
    layout = instancetype_topology.cpu_topology(instancetype.cpu.guest, preference)
    put(spec, "domain.cpu", {**(get(spec, "domain.cpu") or {}), **layout._asdict()})


def _overcommit(
    instancetype: InstancetypeSpec, _preference: PreferenceSpec | None, spec: Document
) -> None:
    """Request less memory of the node than the guest has, by a percentage."""
    if percent := instancetype.memory.overcommit_percent:
        guest = amount(instancetype.memory.guest)
        share = float32(1 - float32(float32(percent) / 100))
        seen = float32(min(guest.rounded_up(), MAX_BYTES))
        whole_bytes = int(float32(seen * share))
        put(spec, "domain.resources.requests.memory", str(Amount(whole_bytes * NANO, guest.form)))


def float32(number: float) -> float:
    """Round a number to Go's float32, in which KubeVirt computes requests."""
    (rounded,) = _FLOAT32.unpack(_FLOAT32.pack(number))
    return float(rounded)


_STEPS: tuple[Callable[[InstancetypeSpec, PreferenceSpec | None, Document], None], ...] = (
    _copy,
    _lay_out,
    _overcommit,
)


def _annotate(template: Document, annotations: Mapping[str, str]) -> Iterator[Cause]:
    """Add the annotations of the type; one with another value in the template conflicts."""
    if not annotations:
        return
    own = get(template, "metadata.annotations") or {}
    for name, value in annotations.items():
        if own.get(name, value) != value:
            yield _conflict(f"annotations.{name}")
    put(template, "metadata.annotations", {**annotations, **own})
