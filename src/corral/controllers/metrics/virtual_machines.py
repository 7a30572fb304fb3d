"""Metrics of each VirtualMachine (KubeVirt's vmstats_collector.go)."""

from collections.abc import Callable, Iterable, Mapping

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.volumes import claims_of
from corral.api.object import Key
from corral.api.quantity import NANO, parse
from corral.api.time import parse_rfc3339
from corral.controllers.metrics import labels
from corral.metrics import Family, Source, gauge
from corral.reconcile.context import ControllerContext

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "starting": ("Provisioning", "Starting", "WaitingForVolumeBinding"),
    "running": ("Running",),
    "migrating": ("Migrating",),
    "non_running": ("Stopped", "Paused", "Stopping", "Terminating"),
    "error": (
        *("CrashLoopBackOff", "Unknown", "ErrorUnschedulable", "ErrImagePull"),
        *("ImagePullBackOff", "ErrorPvcNotFound", "DataVolumeError"),
    ),
}
_UNKNOWN = "<unknown>"
_STATUS_CONDITIONS = frozenset({"Ready", "Failure", "Paused"})
"""Conditions whose transitions count as changes of the status."""

Claims = Callable[[Key], PersistentVolumeClaim | None]


def source(context: ControllerContext) -> Source:
    """Return the source of metrics of the cached VirtualMachines."""
    vms = context.informers.of(VirtualMachine)
    claims = context.informers.of(PersistentVolumeClaim)

    async def collect() -> Iterable[Family]:
        return families(vms.items(), claims.get)

    return collect


def families(vms: Iterable[VirtualMachine], claims: Claims) -> list[Family]:
    """Return the metric families of VirtualMachines and the claims of their volumes."""
    present = [(vm, {"name": vm.metadata.name, "namespace": vm.metadata.namespace}) for vm in vms]
    return [*_status(present), *_resources(present), *_devices(present, claims)]


_Named = Iterable[tuple[VirtualMachine, dict[str, str]]]
"""VirtualMachines with the labels that name them."""


def _status(vms: _Named) -> Iterable[Family]:
    info = gauge("kubevirt_vm_info", "Information about Virtual Machines.")
    created = gauge("kubevirt_vm_create_date_timestamp_seconds", "When it was created.")
    transitions = {
        group: gauge(
            f"kubevirt_vm_{group}_status_last_transition_timestamp_seconds",
            f"When the VM entered a status of the group {group}; 0 while it is in another.",
        )
        for group in _GROUPS
    }
    for vm, name in vms:
        status = vm.status.printable_status
        group = next((group for group, words in _GROUPS.items() if status in words), _UNKNOWN)
        info.add(1, name | _info_labels(vm) | {"status": status.lower(), "status_group": group})
        if vm.metadata.creation_timestamp:
            created.add(_seconds(vm.metadata.creation_timestamp), name)
        for each, family in transitions.items():
            present = each == ("error" if group == _UNKNOWN else group)
            family.add(_last_transition(vm) if present else 0, name)
    return info, created, *transitions.values()


def _info_labels(vm: VirtualMachine) -> dict[str, str]:
    spec = vm.spec
    domain = spec.template.spec.domain
    annotations = spec.template.metadata.annotations
    return labels.system(annotations) | {
        "machine_type": domain.machine.type if domain.machine else "",
        "instance_type": spec.instancetype.name if spec.instancetype else "",
        "preference": spec.preference.name if spec.preference else "",
    }


def _last_transition(vm: VirtualMachine) -> float:
    """Return the last transition of a counting condition; -1 without one."""
    times = (
        _seconds(one.last_transition_time)
        for one in vm.status.conditions
        if one.type in _STATUS_CONDITIONS and one.last_transition_time
    )
    return max(times, default=-1)


def _seconds(moment: str) -> float:
    return int(parse_rfc3339(moment).timestamp())


def _resources(vms: _Named) -> Iterable[Family]:
    """Yield requests and limits of the template, without those of an instance type."""
    requests = gauge("kubevirt_vm_resource_requests", "Resources requested by Virtual Machine.")
    limits = gauge("kubevirt_vm_resource_limits", "Resource limits set for a Virtual Machine.")
    for vm, name in vms:
        domain = vm.spec.template.spec.domain
        memory = name | {"resource": "memory", "unit": "bytes"}
        cpu = name | {"resource": "cpu", "unit": "cores"}
        requested = domain.resources.requests if domain.resources else {}
        limited = domain.resources.limits if domain.resources else {}
        if "memory" in requested:
            requests.add(_amount(requested["memory"]), memory | {"source": "domain"})
        if domain.memory is not None and domain.memory.guest is not None:
            requests.add(_amount(domain.memory.guest), memory | {"source": "guest"})
        if "cpu" in requested:
            requests.add(_amount(requested["cpu"]), cpu | {"source": "requests"})
        for unit, count in _topology(vm):
            source = "default" if domain.cpu is None else "domain"
            if domain.cpu is not None or not ("cpu" in requested or vm.spec.instancetype):
                requests.add(count, cpu | {"unit": unit, "source": source})
        for resource, resource_labels in (("memory", memory), ("cpu", cpu)):
            if resource in limited:
                limits.add(_amount(limited[resource]), resource_labels)
    return requests, limits


def _topology(vm: VirtualMachine) -> Iterable[tuple[str, int]]:
    cpu = vm.spec.template.spec.domain.cpu
    for unit in ("cores", "threads", "sockets"):
        if count := 1 if cpu is None else getattr(cpu, unit):
            yield unit, count


def _amount(quantity: str | float) -> float:
    return parse(quantity).nanos / NANO


def _devices(vms: _Named, claims: Claims) -> Iterable[Family]:
    sizes = gauge("kubevirt_vm_disk_allocated_size_bytes", "What its claims ask for.")
    vnics = gauge("kubevirt_vm_vnic_info", "Network cards of a Virtual Machine.")
    for vm, name in vms:
        spec = vm.spec.template.spec
        for disk, claimed in claims_of(spec.volumes).items():
            claim = claims(Key(vm.metadata.namespace, claimed))
            if claim is not None and (size := _size(claim)) is not None:
                mode = (claim.spec and claim.spec.volumeMode) or "<none>"
                volume = {"persistentvolumeclaim": claimed, "volume_mode": mode, "device": disk}
                sizes.add(size, name | volume)
        for interface in spec.domain.devices.interfaces:
            if (vnic := labels.vnic(interface, spec.networks)) is not None:
                vnics.add(1, name | vnic)
    return sizes, vnics


def _size(claim: PersistentVolumeClaim) -> float | None:
    resources = claim.spec.resources if claim.spec is not None else None
    requested = ((resources and resources.requests) or {}).get("storage")
    return None if requested is None else _amount(requested)
