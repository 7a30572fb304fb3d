"""Changes of a VirtualMachine that wait for the next start (KubeVirt's RestartRequired). Pure.

With the rollout strategy Stage only disks of a running VMI can be changed; ``live_update`` has
what can be changed besides by LiveUpdate, the default.
"""

from msgspec.structs import replace

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachineSpec
from corral.api.kinds.vmi.hotplug import hotplug_cdroms, hotplug_disks
from corral.api.kinds.vmi.live_update import without_size
from corral.api.kinds.vmi.vmi import Spec
from corral.api.quantity import amount

TEMPLATE = "a non-live-updatable field was changed in the template spec"
INSTANCETYPE = "another instance type was named, which counts from the next start"
PREFERENCE = "another preference was named, which counts from the next start"
MORE_SOCKETS = "CPU sockets updated in template spec to a value higher than what's available"
FEWER_SOCKETS = "Reduction of CPU socket count requires a restart"
MEMORY = "memory updated in template spec. Memory-hotplug is only available for migratable VMs"


def restart_reason(started: VirtualMachineSpec, desired: VirtualMachineSpec) -> str:
    """Return why the VMI needs a restart to match the spec; empty if it matches."""
    if started.instancetype != desired.instancetype:
        return INSTANCETYPE
    if started.preference != desired.preference:
        return PREFERENCE
    return template_reason(started.template.spec, desired.template.spec)


def template_reason(started: Spec, desired: Spec, *, live: bool = False) -> str:
    """Return why a VMI needs a restart to match a spec; empty if it matches.

    ``live``: sockets and memory are not compared, as they can be plugged in.
    """
    old, new = hotplug_disks(started), hotplug_disks(desired)
    if any(old[name].disk != new[name].disk for name in old.keys() & new.keys()):
        return TEMPLATE
    started, desired = _without_plugs(started), _without_plugs(desired)
    if started == desired:
        return ""
    if without_size(started) != without_size(desired):
        return TEMPLATE
    if live:
        return ""
    before, after = _sockets(started), _sockets(desired)
    if before != after:
        return MORE_SOCKETS if after > before else FEWER_SOCKETS
    return MEMORY if _guest(started) != _guest(desired) else ""


def _without_plugs(spec: Spec) -> Spec:
    """Return the spec without hotpluggable volumes; a CD-ROM drive stays."""
    plugs = hotplug_disks(spec)
    if not plugs:
        return spec
    trays = hotplug_cdroms(spec)
    disks = [
        disk for disk in spec.domain.devices.disks if disk.name not in plugs or disk.name in trays
    ]
    devices = replace(spec.domain.devices, disks=disks)
    volumes = [volume for volume in spec.volumes if volume.name not in plugs]
    return replace(spec, volumes=volumes, domain=replace(spec.domain, devices=devices))


def _sockets(spec: Spec) -> int:
    return (spec.domain.cpu and spec.domain.cpu.sockets) or 1


def _guest(spec: Spec) -> int:
    guest = spec.domain.memory.guest if spec.domain.memory is not None else None
    return amount(guest).nanos
