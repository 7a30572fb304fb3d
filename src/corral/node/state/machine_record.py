"""The record of a machine on disk, from which the next manager resumes its life.

One small file in the machine's directory, with one line of JSON for each state.  It need not
survive a crash of the host: no machine does.
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
from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.kinds.vmi.exclusive import is_exclusive
from corral.api.kinds.vmi.launcher import UNRECORDED
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.limits.bounds import Bounds, bounds_of
from corral.reconcile.objects import key_of, labels_of, uid_of

NAME = "machine.json"
MACHINES = "machines"
"""The subdirectory of a node's directory with a directory for each machine, named by its uid."""


class Stage(Enum):
    """The last stage that a machine had reached, as recorded before the step to the next one."""

    DEFINED = "Defined"  # its directory exists; its guest has not executed anything
    WAKING = "Waking"  # its guest resumes from a memory, once the seal of that is broken
    STARTED = "Started"  # its guest runs, or ran: if nothing runs now, it has crashed
    SAVING = "Saving"  # its guest runs, until its memory is sealed
    RECEIVING = "Receiving"  # its guest runs on the source of a migration, and has not run here
    ARRIVING = "Arriving"  # its guest is to run here: the source has handed it over
    SENDING = "Sending"  # its guest runs, until the target of a migration has all of it
    SENT = "Sent"  # the target runs the guest: it executes nothing here any more
    ENDED = "Ended"


class Outcome(Enum):
    """The final phase of the VMI and its pod."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a machine, and the stage that it has reached.

    addresses: the pod's; none behind QEMU's user network.
    started_at: when its guest started, in seconds since the epoch.
    claim: the claim that its memory is saved to, or restored from.
    memory: that claim's directory; paused: whether that guest was paused by its user.
    bounds: its resource limits; out_of_memory: whether it was ended for exceeding its memory limit.
    never_ran: whether it has ended, and its guest has executed nothing here.
    groups: the control groups that limit it, or were about to.
    unhealthy: why its liveness probe failed; evicted: why its node evicted it.
    exclusive: whether two of it must never run; fenced: why its node ended it for that.
    arrival: the uid of the migration that it came by.
    departure: the uid of the latest one that moves it away; departure_node: to this node.
    launcher: what it was started in; machine_type: the type of the emulated machine.
    stands_still: whether its guest is stopped for a checkpoint, and has to go on.
    paused_as_spare: whether its guest is stopped until it is handed out, or its clock stands since.
    fork_of: the VMI, namespace/name, whose identity the guest of a fork still has.
    fork, fork_message: how its start from a checkpoint went, for the condition Forked.
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
    never_ran: bool = False
    unhealthy: str = ""
    evicted: str = ""
    exclusive: bool = False
    fenced: str = ""
    arrival: str = ""
    departure: str = ""
    departure_node: str = ""
    launcher: str = UNRECORDED
    machine_type: str = ""
    stands_still: bool = False
    paused_as_spare: bool = False
    fork_of: str = ""
    fork: str = ""
    fork_message: str = ""

    @property
    def id(self) -> str:
        """The name of its directory, its network and its control groups.

        The uid of its VMI, or, since both sides of a migration may be on one host, that of the pod
        that it has migrated to.
        """
        return self.pod_uid if self.arrival else self.uid

    def started(self) -> "Record":
        """Return the record of the machine whose guest starts now."""
        return msgspec.structs.replace(self, stage=Stage.STARTED, started_at=time.time())

    def save_cancelled(self) -> "Record":
        """Return the record of the machine after a save that was cancelled."""
        return msgspec.structs.replace(self, stage=Stage.STARTED)


def new(pod: Pod, vmi: VirtualMachineInstance) -> Record:
    """Return the first record of a machine, from its VMI and pod.

    The pod of a migration's target is labelled with the migration's uid.
    """
    key = key_of(pod)
    return Record(
        namespace=key.namespace,
        instance=vmi.metadata.name,
        uid=vmi.metadata.uid,
        pod=key.name,
        pod_uid=uid_of(pod),
        bounds=bounds_of(pod),
        exclusive=is_exclusive(vmi),
        arrival=labels_of(pod).get(MIGRATION_UID, ""),
    )


def write(directory: Path, record: Record) -> None:
    """Write a record.  Raises OSError, for instance if the disk is full."""
    files.append_state(directory / NAME, msgspec.json.encode(record))


def read(directory: Path) -> Record | None:
    """Return the record in a directory; None if there is none, or none that can be read."""
    return files.read_state(directory / NAME, Record)


def scan(directory: Path) -> Iterator[tuple[Path, Record | None]]:
    """Iterate over the machines' directories, with their records."""
    for entry in sorted(directory.iterdir()):
        if entry.is_dir():
            yield entry, read(entry)


def unfinished(node_directory: Path) -> Iterator[tuple[Path, Record]]:
    """Iterate over the machines of a node's directory that have not ended."""
    for directory, record in scan(node_directory / MACHINES):
        if record is not None and record.stage is not Stage.ENDED:
            yield directory, record


def has_machines(node_directory: Path) -> bool:
    """Report whether a node's directory has machines, whatever their stage."""
    machines = node_directory / MACHINES
    return machines.is_dir() and any(entry.is_dir() for entry in machines.iterdir())


def own_bytes(directory: Path) -> int:
    """Return the disk usage of a machine, without images that others have hard links to."""
    total = 0
    for entry in directory.rglob("*"):
        with suppress(FileNotFoundError):
            status = entry.lstat()
            total += 0 if status.st_nlink > 1 else status.st_blocks * 512
    return total


def strip(directory: Path) -> None:
    """Remove the disks and sockets of a machine that has ended; its record and logs stay.

    A machine that was stopped early, such as while no address was free, may have no directory.
    """
    try:
        entries = [*os.scandir(directory)]
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name != NAME and ".log" not in entry.name:
            _remove(entry)


def erase(directory: Path) -> None:
    """Remove a machine's directory, if it exists.

    The record goes last: a directory without one has no known owner.
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
    except OSError:  # a file was added meanwhile
        shutil.rmtree(directory, ignore_errors=True)


def _remove(entry: "os.DirEntry[str]") -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry, ignore_errors=True)
    else:
        Path(entry).unlink(missing_ok=True)
