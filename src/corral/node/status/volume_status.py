"""What an instance's status tells of the volumes that come and go.  Pure.

The VMI controller writes of the other volumes into the same list, and what each claim is like; what
it has written stays.
"""

from collections.abc import Iterable
from itertools import count

import msgspec

from corral.api.kinds.vmi.derived import pod_name
from corral.api.kinds.vmi.disks import Disk, letters
from corral.api.kinds.vmi.hotplug import READY, hotplug_disks
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document
from corral.node.state.facts import Facts, Plugged


def volume_status(vmi: VirtualMachineInstance, facts: Facts) -> list[Document]:
    """The list with an entry for each volume that is plugged in, or still being taken out."""
    told: list[Document] = msgspec.to_builtins(vmi.status.volume_status)
    if facts.plugs is None:
        return told
    entries = {entry["name"]: entry for entry in told}
    wanted = hotplug_disks(vmi.spec)
    targets = _Targets(entry.get("target", "") for entry in told)
    for name, plugged in facts.plugs.items():
        entry = entries[name] = _with(entries.get(name, {"name": name}), plugged, vmi)
        if name in wanted and plugged.phase == READY and "target" not in entry:
            entry["target"] = targets.free(wanted[name].disk)
    kept = wanted.keys() | facts.plugs.keys()
    # Only what comes and goes has a phase.
    return [one for name, one in entries.items() if name in kept or "phase" not in one]


def _with(entry: Document, plugged: Plugged, vmi: VirtualMachineInstance) -> Document:
    """There is no pod but the machine's own that could have brought the volume to the node."""
    pod: Document = {"attachPodName": pod_name(vmi)}
    for uid in vmi.status.active_pods:
        pod["attachPodUID"] = uid
    how = {"phase": plugged.phase, "reason": plugged.reason, "message": plugged.message}
    kept = {name: value for name, value in entry.items() if name not in how}
    said = {name: value for name, value in how.items() if value}
    return {**kept, **said, "hotplugVolume": pod}


class _Targets:
    """Names of disks, as Linux would give them: by the bus, in the order of their coming."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def free(self, disk: Disk) -> str:
        """The next name that no other disk has."""
        target = disk.disk or disk.lun  # CD-ROM drives have names like SCSI disks
        bus = target.bus if target is not None else ""
        prefix = "vd" if bus == "virtio" else "sd"
        names = (prefix + letters(number) for number in count())
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name
