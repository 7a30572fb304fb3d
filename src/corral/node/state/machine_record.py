"""What is written down of a machine, so that the next manager knows what this one was doing.

One small file in the machine's directory, a line for each state.  It need not survive the host: no
machine does.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

import msgspec
from lightkube.models.core_v1 import Pod

from corral import files
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.limits.bounds import Bounds, bounds_of
from corral.reconcile.objects import key_of, uid_of

NAME = "machine.json"
MACHINES = "machines"
"""The part of a node's directory that holds a directory for each machine, named by its uid."""


class Stage(Enum):
    """How far a machine had come."""

    DEFINED = "Defined"  # its directory is there; its guest has not executed anything
    WAKING = "Waking"  # its guest goes on from a memory, once the seal of that is broken
    STARTED = "Started"  # its guest runs, or ran: if nothing runs now, it has crashed
    SAVING = "Saving"  # its guest runs, until its memory is sealed
    ENDED = "Ended"


class Outcome(Enum):
    """How a machine ended: KubeVirt's final phases, which are also a pod's."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Whose machine it is, and how far it has come.

    addresses: its pod's; none where it is behind QEMU's user network.
    started_at: when its guest was let go, in seconds of the epoch.
    claim: whose volume its memory is saved to, or was to be restored from.
    memory: that volume's directory; paused: whether that guest was paused by its user.
    bounds: what it may take of its node; out_of_memory: whether it ended for wanting more.
    groups: the control groups that bound it, or were about to.
    unhealthy: why its guest is made to end, if that is so.
    evicted: why it had to go for its node's sake, if it had.
    """

    namespace: str
    instance: str
    uid: str
    pod: str
    pod_uid: str
    addresses: tuple[str, ...] = ()
    stage: Stage = Stage.DEFINED
    started_at: float = 0.0
    outcome: Outcome | None = None
    message: str = ""
    claim: str = ""
    memory: str = ""
    paused: bool = False
    bounds: Bounds = Bounds()
    groups: tuple[str, ...] = ()
    out_of_memory: bool = False
    unhealthy: str = ""
    evicted: str = ""

    def started(self) -> "Record":
        """The same machine once its guest runs, which is now."""
        return msgspec.structs.replace(self, stage=Stage.STARTED, started_at=time.time())

    def going_on(self) -> "Record":
        """The same machine when it is not saved after all."""
        return msgspec.structs.replace(self, stage=Stage.STARTED)


def new(pod: Pod, vmi: VirtualMachineInstance) -> Record:
    """What is written down first, of an instance and its pod."""
    key = key_of(pod)
    return Record(
        namespace=key.namespace,
        instance=vmi.metadata.name,
        uid=vmi.metadata.uid,
        pod=key.name,
        pod_uid=uid_of(pod),
        bounds=bounds_of(pod),
    )


def write(directory: Path, record: Record) -> None:
    """Raises OSError, for instance where the disk is full."""
    files.note(directory / NAME, msgspec.json.encode(record))


def read(directory: Path) -> Record | None:
    """The record of a directory; None where there is none that can be read."""
    return files.noted(directory / NAME, Record)


def scan(directory: Path) -> Iterator[tuple[Path, Record | None]]:
    """Every machine's directory with its record."""
    for entry in sorted(directory.iterdir()):
        if entry.is_dir():
            yield entry, read(entry)


def unfinished(node_directory: Path) -> Iterator[tuple[Path, Record]]:
    """The machines of a node's directory of which it is not on record that they have ended."""
    for directory, record in scan(node_directory / MACHINES):
        if record is not None and record.stage is not Stage.ENDED:
            yield directory, record


def has_machines(node_directory: Path) -> bool:
    """Whether a node's directory holds a machine, whatever has become of it."""
    machines = node_directory / MACHINES
    return machines.is_dir() and any(entry.is_dir() for entry in machines.iterdir())


def own_bytes(directory: Path) -> int:
    """What a machine takes of the disk for itself; images that others link to are not its own."""
    total = 0
    for entry in directory.rglob("*"):
        with suppress(FileNotFoundError):
            status = entry.lstat()
            total += 0 if status.st_nlink > 1 else status.st_blocks * 512
    return total


def strip(directory: Path) -> None:
    """Remove what only a machine that runs needs: its disks, say.  Its record and its logs stay."""
    for entry in [*os.scandir(directory)]:
        if entry.name != NAME and ".log" not in entry.name:
            _remove(entry)


def erase(directory: Path) -> None:
    """Remove a machine's directory.  The record goes last, lest a rest of it have no owner.

    One that is missing was erased already.
    """
    try:
        rests = [entry for entry in os.scandir(directory) if entry.name != NAME]
    except FileNotFoundError:
        return
    for entry in rests:
        _remove(entry)
    try:
        (directory / NAME).unlink(missing_ok=True)
        directory.rmdir()
    except OSError:  # something has come meanwhile
        shutil.rmtree(directory, ignore_errors=True)


def _remove(entry: "os.DirEntry[str]") -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry, ignore_errors=True)
    else:
        Path(entry).unlink(missing_ok=True)
