"""The input of a QEMU command line, after everything that needs I/O.

``Domain`` is the VMI with its drives; ``Handles`` are the descriptors that the process inherits.
QEMU opens nothing by path but the memory of a fork, a descriptor of its own (ADR 0095): its user
cannot enter the manager's directories, and a descriptor that was opened for reading cannot be
written, even by a compromised process.
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
    """QEMU's accelerator."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """Descriptors that QEMU inherits.

    ``files`` has the files of each volume's drive, opened for that drive alone: QEMU's file locks
    belong to them.  ``taps`` has one for each interface with a network; the sockets listen.
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
    """A VMI with its drives by volume name, on an accelerator.

    ``resumes``: from a saved memory or another machine's, instead of booting; ``machine_type``: of
    that machine, instead of the VMI's; ``is_strict``: the host promises no more memory than it has;
    ``pages``: the
    path of a descriptor of a sealed file whose pages it starts with.
    """

    vmi: VirtualMachineInstance
    handles: Handles
    accelerator: Accelerator
    drives: Mapping[str, Drive] = field(default_factory=dict)
    resumes: bool = False
    machine_type: str = ""
    is_strict: bool = False
    pages: Path | None = None


def option(name: str, **values: Any) -> list[str]:
    """Return an option in JSON, where no value can be mistaken for another key or a separator.

    Underscores in names become dashes; None is left out.
    """
    given = {key.replace("_", "-"): value for key, value in values.items() if value is not None}
    return [f"-{name}", msgspec.json.encode(given).decode()]


def device(driver: str, **values: Any) -> list[str]:
    """Return a ``-device`` option; property names keep their underscores."""
    given = {key: value for key, value in values.items() if value is not None}
    return ["-device", msgspec.json.encode({"driver": driver, **given}).decode()]


def add_fd(descriptor: int, *, opaque: str) -> list[str]:
    """Return an option that adds a descriptor as the only one of the fdset of its number."""
    return ["-add-fd", f"fd={descriptor},set={descriptor},opaque={opaque}"]


def quoted(value: str) -> str:
    """Quote a value for an option without JSON: a comma ends a value unless it is doubled."""
    return value.replace(",", ",,")
