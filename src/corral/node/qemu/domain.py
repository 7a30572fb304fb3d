"""What a QEMU command line is made from, once everything that needs I/O has been done.

``Domain`` is the instance; ``Handles`` are the descriptors that the process inherits.  QEMU opens
nothing by path: it runs as a user who may not enter the manager's directories, and a descriptor
that was opened for reading cannot be written, whatever becomes of the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Drive


class Accelerator(Enum):
    """What runs the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """Descriptors that QEMU inherits.

    ``files`` has those of the files behind each volume's drive, which are no other's: QEMU tells
    by them who has locked a file.  ``taps`` has one for each interface that has a network; the
    sockets are listening ones.
    """

    monitor: int
    serial: int
    serial_log: int
    agent: int
    files: Mapping[str, Mapping[Path, int]] = field(default_factory=dict)
    taps: Mapping[str, int] = field(default_factory=dict)

    def all(self) -> list[int]:
        sockets = [self.monitor, self.serial, self.serial_log, self.agent]
        files = (descriptor for each in self.files.values() for descriptor in each.values())
        return [*sockets, *files, *self.taps.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """An instance with its drives by volume name, on an accelerator.

    ``goes_on``: from a memory that it is given, instead of booting.
    """

    vmi: VirtualMachineInstance
    handles: Handles
    accelerator: Accelerator
    drives: Mapping[str, Drive] = field(default_factory=dict)
    goes_on: bool = False


def option(name: str, **values: Any) -> list[str]:
    """One option in JSON, where no value can be taken for another option's name or separator.

    Underscores in names become dashes; what is None is left out.
    """
    known = {key.replace("_", "-"): value for key, value in values.items() if value is not None}
    return [f"-{name}", msgspec.json.encode(known).decode()]


def device(driver: str, **values: Any) -> list[str]:
    """One ``-device``; its property names keep their underscores."""
    known = {key: value for key, value in values.items() if value is not None}
    return ["-device", msgspec.json.encode({"driver": driver, **known}).decode()]


def lent(descriptor: int, *, to: str) -> list[str]:
    """A descriptor as the only one of the set of its number; ``to`` is told to who asks for it."""
    return ["-add-fd", f"fd={descriptor},set={descriptor},opaque={to}"]


def quoted(value: str) -> str:
    """A value for an option that knows no JSON: a comma ends a value unless it is doubled."""
    return value.replace(",", ",,")
