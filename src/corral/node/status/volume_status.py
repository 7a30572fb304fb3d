"""The status of a VMI's hotplugged volumes.  Pure.

The VMI controller writes other volumes and the status of claims into the same list; its fields
are kept.
"""

from collections.abc import Iterable
from itertools import count

import msgspec

from corral.api.kinds.vmi.derived import current_pod_name
from corral.api.kinds.vmi.disks import Disk, letters
from corral.api.kinds.vmi.hotplug import READY, hotplug_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.node.state.facts import Facts, Plugged


def volume_status(vmi: VirtualMachineInstance, facts: Facts) -> list[Document]:
    """Return the list with an entry for each volume that is plugged in or being unplugged."""
    present: list[Document] = msgspec.to_builtins(vmi.status.volume_status)
    if facts.plugs is None:
        return present
    entries = {entry["name"]: entry for entry in present}
    desired = hotplug_disks(vmi.spec)
    targets = _Targets(entry.get("target", "") for entry in present)
    for name, plugged in facts.plugs.items():
        entry = entries[name] = _with(entries.get(name, {"name": name}), plugged, vmi)
        if name in desired and plugged.phase == READY and "target" not in entry:
            entry["target"] = targets.free(desired[name].disk)
    kept = desired.keys() | facts.plugs.keys()
    # Only hotplugged volumes have a phase.
    return [one for name, one in entries.items() if name in kept or "phase" not in one]


def _with(entry: Document, plugged: Plugged, vmi: VirtualMachineInstance) -> Document:
    """Add the state of a volume; its attachment pod is the machine's own: there is no other."""
    pod: Document = {"attachPodName": current_pod_name(vmi)}
    for uid in vmi.status.active_pods:
        pod["attachPodUID"] = uid
    how = {"phase": plugged.phase, "reason": plugged.reason, "message": plugged.message}
    kept = {name: value for name, value in entry.items() if name not in how}
    state = {name: value for name, value in how.items() if value}
    return {**kept, **state, "hotplugVolume": pod}


class _Targets:
    """Names of disks, as Linux assigns them: by bus, in the order of plugging."""

    def __init__(self, used: Iterable[str]) -> None:
        self._used = set(used)

    def free(self, disk: Disk) -> str:
        """Return the next free name."""
        target = disk.disk or disk.lun  # CD-ROM drives have names like SCSI disks
        bus = target.bus if target is not None else ""
        prefix = "vd" if bus == "virtio" else "sd"
        names = (prefix + letters(number) for number in count())
        name = next(name for name in names if name not in self._used)
        self._used.add(name)
        return name
