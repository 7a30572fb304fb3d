"""Control groups: the group of a process, and its directory.

Both versions have directories for groups and files for their settings (cgroups(7)).
``/proc/PID/cgroup`` names a process's group in each hierarchy; ``/proc/self/mountinfo`` has the
mount point and the root group of each: in a container the mount need not be the whole hierarchy.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

PROCESSES = "cgroup.procs"


class Group(Protocol):
    """A control group.  Its methods raise OSError as the kernel's file system does."""

    @property
    def path(self) -> Path: ...

    @property
    def name(self) -> str: ...

    def child(self, name: str) -> "Group":
        """Return a group inside, which need not exist."""

    def parent(self) -> "Group":
        """Return the group around it."""

    def children(self) -> list[str]:
        """Return the names of the groups inside."""

    def is_delegated(self) -> bool:
        """Report whether systemd has delegated this group (Delegate=)."""

    def create(self) -> None:
        """Create the group, if it does not exist."""

    def remove(self) -> None:
        """Remove the group, if it exists; fails while it has processes."""

    def write(self, setting: str, value: str) -> None: ...

    def read(self, setting: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Directory:
    """A group in the file system of the kernel."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def child(self, name: str) -> "Directory":
        return Directory(self.path / name)

    def parent(self) -> "Directory":
        return Directory(self.path.parent)

    def is_delegated(self) -> bool:
        for attribute in ("trusted.delegate", "user.delegate"):
            with suppress(OSError):
                return os.getxattr(self.path, attribute) == b"1"
        return False

    def children(self) -> list[str]:
        return [entry.name for entry in self.path.iterdir() if entry.is_dir()]

    def create(self) -> None:
        self.path.mkdir(exist_ok=True)

    def remove(self) -> None:
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return

    def write(self, setting: str, value: str) -> None:
        """Set a value, without O_CREAT; in one piece, since each write is a command."""
        descriptor = os.open(self.path / setting, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def read(self, setting: str) -> str:
        return (self.path / setting).read_text(encoding="ascii")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted hierarchy: mount point, root group, and controllers (none for version 2)."""

    point: Path
    root: PurePosixPath
    controllers: frozenset[str]

    def directory(self, group: PurePosixPath) -> Path | None:
        """Return the directory of a group; None if it is outside of the mount."""
        try:
            return self.point / group.relative_to(self.root)
        except ValueError:
            return None


def mounts(mountinfo: str) -> list[Mount]:
    """Parse a mountinfo file for hierarchies (proc_pid_mountinfo(5))."""
    hierarchies = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), (*after.split(), "", "", "")[:3]
        if kind in {"cgroup", "cgroup2"} and len(fields) > 4:
            controllers = frozenset(options.split(",")) if kind == "cgroup" else frozenset[str]()
            root, point = _unescape(fields[3]), _unescape(fields[4])
            hierarchies.append(Mount(Path(point), PurePosixPath(root), controllers))
    return hierarchies


def _unescape(field: str) -> str:
    """Decode a field of mountinfo, whose blanks are octal escapes."""
    return field.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\134", "\\")


def group_in(text: str, controller: str) -> PurePosixPath | None:
    """Return the group for a controller in a ``/proc/PID/cgroup``; ``""`` is version 2."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") and (controller or number == "0"):
            return PurePosixPath(path)
    return None


def group_of(pid: int | str, controller: str) -> PurePosixPath | None:
    """Return the group of a process; None if there is none, or no such process."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return group_in(text, controller)


def mount_of(controller: str) -> Mount | None:
    """Return the mount of a controller's hierarchy; ``""`` is version 2."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    for mount in mounts(text):
        if controller in mount.controllers or not (controller or mount.controllers):
            return mount
    return None
