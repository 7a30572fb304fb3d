"""Changes of a VirtualMachine that reach its running VMI: sockets, memory, placement.  Pure.

The rules, their order and their messages are KubeVirt's (vm.go, handleCPUChangeRequest and
handleMemoryHotplugRequest), but that a VMI which cannot migrate gets memory, too: it is plugged in
where the VMI runs.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from corral.api.kinds.vmi.derived import guest_memory, processors
from corral.api.kinds.vmi.domain import Cpu, Domain, Memory, Resources
from corral.api.kinds.vmi.live_update import (
    VCPU_CHANGE,
    boot_memory,
    has_condition,
    max_memory_bytes,
    max_sockets,
    memory_fault,
)
from corral.api.kinds.vmi.vmi import Spec, VirtualMachineInstance
from corral.api.object import Document, Quantity
from corral.api.patch.merge import difference
from corral.api.quantity import NANO, Amount, Form, amount
from corral.controllers.vm.restart import (
    FEWER_SOCKETS,
    MORE_SOCKETS,
    TEMPLATE,
    template_reason,
)
from corral.reconcile.objects import is_being_deleted

NO_MEMORY_HOTPLUG: Final = (
    "memory updated in template spec. Memory-hotplug is not available for this VM configuration"
)
BELOW_BOOT: Final = "memory updated in template spec to a value lower than what the VM started with"
ABOVE_MAXIMUM: Final = "memory updated in template spec to a value higher than what's available"
UNSUPPORTED_MEMORY: Final = "memory hotplug not supported, "
_UNPLACED: Final = frozenset({"", "Pending", "Scheduling"})
_MILLI: Final = 10**6
"""Billionths of a thousandth."""


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """The outcome of a change: the reason to wait for a restart, or a patch of the VMI's spec.

    deferred: whether it waits until the VMI runs, has migrated, or has the sockets before.
    """

    restart: str = ""
    change: Document | None = None
    deferred: bool = False


def plan(
    started: Spec, desired: Spec, vmi: VirtualMachineInstance, *, cpu_ratio: int
) -> LiveUpdate:
    """Compare the specs that a VMI was created from and shall have, instance types applied.

    ``cpu_ratio``: virtual CPUs per CPU of the node, by which a CPU request grows.
    """
    reason = template_reason(_placed(started, desired), desired, live=True)
    reason = reason or _socket_reason(desired, vmi) or _memory_reason(desired, vmi)
    if reason:
        return LiveUpdate(restart=reason)
    new = _placed(vmi.spec, desired)
    new = replace(new, domain=_resized(vmi.spec.domain, desired.domain, cpu_ratio))
    change = difference(msgspec.to_builtins(vmi.spec), msgspec.to_builtins(new))
    if not change:
        return LiveUpdate()
    if vmi.status.phase in _UNPLACED:
        return LiveUpdate(
            restart=TEMPLATE
        )  # it may never run: its placement is what it starts with
    return LiveUpdate(deferred=True) if _is_busy(vmi) else LiveUpdate(change=change)


def _is_busy(vmi: VirtualMachineInstance) -> bool:
    """Report whether a VMI does not run yet or any more, migrates, or is getting sockets.

    Its node plugs in all sockets of the spec once some are granted (KubeVirt: "another CPU hotplug
    is in progress").
    """
    is_growing = has_condition(vmi, VCPU_CHANGE)
    return vmi.status.phase != "Running" or is_being_deleted(vmi) or vmi.is_migrating or is_growing


def _placed(spec: Spec, desired: Spec) -> Spec:
    """Return a spec with the placement of another, which counts when the VMI migrates."""
    return replace(
        spec,
        node_selector=desired.node_selector,
        affinity=desired.affinity,
        tolerations=desired.tolerations,
    )


def _socket_reason(desired: Spec, vmi: VirtualMachineInstance) -> str:
    before, after = processors(vmi.spec.domain), processors(desired.domain)
    if after.sockets > max_sockets(vmi.spec.domain):
        return MORE_SOCKETS
    if after.sockets < before.sockets:
        return FEWER_SOCKETS
    return "" if after[1:] == before[1:] else TEMPLATE


def _memory_reason(desired: Spec, vmi: VirtualMachineInstance) -> str:
    guest, largest = guest_memory(desired.domain), max_memory_bytes(vmi.spec.domain)
    if guest == guest_memory(vmi.spec.domain):
        return ""
    if not largest:
        return NO_MEMORY_HOTPLUG
    if guest < boot_memory(vmi):
        return BELOW_BOOT
    if guest.rounded_up() > largest:
        return ABOVE_MAXIMUM
    fault = memory_fault(desired, Amount(largest * NANO, Form.BINARY))
    return f"{UNSUPPORTED_MEMORY}{fault}" if fault else ""


def _resized(before: Domain, desired: Domain, cpu_ratio: int) -> Domain:
    """Return a VMI's domain with the desired sockets and memory.

    Requests and limits that are given grow, too (KubeVirt's VMICPUsPatch): by the ratio for each
    virtual CPU, and by the memory.
    """
    layout, after = processors(before), processors(desired)
    domain = before
    if after.sockets != layout.sockets:
        more = -(-(after.total - layout.total) * 1000 // max(cpu_ratio, 1)) * _MILLI
        cpu = replace(before.cpu or Cpu(), **after._asdict())
        domain = replace(domain, cpu=cpu, resources=_grown(domain.resources, "cpu", more))
    guest, has = guest_memory(desired), guest_memory(before)
    if guest != has:
        memory = replace(before.memory or Memory(), guest=str(guest))
        resources = _grown(domain.resources, "memory", guest.nanos - has.nanos)
        domain = replace(domain, memory=memory, resources=resources)
    return domain


def _grown(resources: Resources | None, name: str, nanos: int) -> Resources | None:
    """Return resources whose request and limit of a name, where they are given, are larger."""
    if resources is None:
        return None
    return replace(
        resources,
        requests=_added(resources.requests, name, nanos),
        limits=_added(resources.limits, name, nanos),
    )


def _added(values: dict[str, Quantity], name: str, nanos: int) -> dict[str, Quantity]:
    if name not in values:
        return values
    old = amount(values[name])
    return {**values, name: str(Amount(max(0, old.nanos + nanos), old.form))}
