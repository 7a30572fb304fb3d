"""What of a changed VirtualMachine waits for the next start (KubeVirt's RestartRequired).  Pure.

Of a machine that runs only disks can be changed: nodes are chosen once, and processors and memory
are not plugged in.
"""

from msgspec.structs import replace

from corral.api.kinds.kubevirt.virtualmachine import VirtualMachineSpec
from corral.api.kinds.vmi.domain import Cpu, Memory
from corral.api.kinds.vmi.hotplug import hotplug_cdroms, hotplug_disks
from corral.api.kinds.vmi.vmi import Spec
from corral.api.quantity import amount

TEMPLATE = "a non-live-updatable field was changed in the template spec"
INSTANCETYPE = "another instance type was named, which counts from the next start"
PREFERENCE = "another preference was named, which counts from the next start"
MORE_SOCKETS = "CPU sockets updated in template spec to a value higher than what's available"
FEWER_SOCKETS = "Reduction of CPU socket count requires a restart"
MEMORY = "memory updated in template spec. Memory-hotplug is only available for migratable VMs"


def restart_reason(started: VirtualMachineSpec, wanted: VirtualMachineSpec) -> str:
    """Why the machine has to start anew to be as is wanted; empty if it is as is wanted."""
    if started.instancetype != wanted.instancetype:
        return INSTANCETYPE
    if started.preference != wanted.preference:
        return PREFERENCE
    return _template_reason(started.template.spec, wanted.template.spec)


def _template_reason(started: Spec, wanted: Spec) -> str:
    before, after = hotplug_disks(started), hotplug_disks(wanted)
    if any(before[name].disk != after[name].disk for name in before.keys() & after.keys()):
        return TEMPLATE
    started, wanted = _without_plugs(started), _without_plugs(wanted)
    if started == wanted:
        return ""
    if _rest(started) != _rest(wanted):
        return TEMPLATE
    had, wants = _sockets(started), _sockets(wanted)
    if had != wants:
        return MORE_SOCKETS if wants > had else FEWER_SOCKETS
    return MEMORY if _guest(started) != _guest(wanted) else ""


def _without_plugs(spec: Spec) -> Spec:
    """The spec without what comes and goes while the machine runs: a CD-ROM's drive stays."""
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


def _rest(spec: Spec) -> Spec:
    """The spec without what has messages of its own."""
    domain = spec.domain
    cpu = replace(domain.cpu or Cpu(), sockets=0)
    memory = replace(domain.memory or Memory(), guest=None)
    return replace(spec, domain=replace(domain, cpu=cpu, memory=memory))


def _sockets(spec: Spec) -> int:
    return (spec.domain.cpu and spec.domain.cpu.sockets) or 1


def _guest(spec: Spec) -> int:
    guest = spec.domain.memory.guest if spec.domain.memory is not None else None
    return amount(guest).nanos
