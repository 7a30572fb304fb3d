"""Control groups: which one a process is in, and where that one lies in the file system.

Both versions have directories for groups and files for their settings (cgroups(7)).
``/proc/PID/cgroup`` names a process's group in each hierarchy, and ``/proc/self/mountinfo`` says
where, and from which group on, a hierarchy is mounted: in a container it need not be the whole.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

PROCESSES = "cgroup.procs"


class Group(Protocol):
    """One control group.  Its verbs raise OSError as the kernel's file system does."""

    @property
    def path(self) -> Path: ...

    @property
    def name(self) -> str: ...

    def child(self, name: str) -> "Group":
        """A group inside, whether it is there or not."""

    def parent(self) -> "Group":
        """The group that it is inside of."""

    def children(self) -> list[str]:
        """The names of the groups inside."""

    def delegated(self) -> bool:
        """Whether systemd says that it leaves this group to who runs in it."""

    def create(self) -> None:
        """Make it, unless it is there."""

    def remove(self) -> None:
        """Remove it, which a group with processes refuses; one that is gone is removed."""

    def write(self, setting: str, value: str) -> None: ...

    def read(self, setting: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Directory:
    """A group of the kernel's."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def child(self, name: str) -> "Directory":
        return Directory(self.path / name)

    def parent(self) -> "Directory":
        return Directory(self.path.parent)

    def delegated(self) -> bool:
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
        """One write, since each is a command; nothing is made where the kernel has no such file."""
        descriptor = os.open(self.path / setting, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def read(self, setting: str) -> str:
        return (self.path / setting).read_text(encoding="ascii")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted hierarchy: where, from which group on, and whose (empty for version 2)."""

    point: Path
    root: PurePosixPath
    controllers: frozenset[str]

    def directory(self, group: PurePosixPath) -> Path | None:
        """Where a group is seen; None where it is outside of what is mounted."""
        try:
            return self.point / group.relative_to(self.root)
        except ValueError:
            return None


def mounts(mountinfo: str) -> list[Mount]:
    """The hierarchies in the text of a mountinfo file (proc_pid_mountinfo(5))."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), (*after.split(), "", "", "")[:3]
        if kind in {"cgroup", "cgroup2"} and len(fields) > 4:
            controllers = frozenset(options.split(",")) if kind == "cgroup" else frozenset[str]()
            root, point = _plain(fields[3]), _plain(fields[4])
            found.append(Mount(Path(point), PurePosixPath(root), controllers))
    return found


def _plain(field: str) -> str:
    """A field of mountinfo, whose blanks are written in octal."""
    return field.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\134", "\\")


def group_in(text: str, controller: str) -> PurePosixPath | None:
    """The group that a ``/proc/PID/cgroup`` names for a controller; ``""`` is version 2."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") and (controller or number == "0"):
            return PurePosixPath(path)
    return None


def group_of(pid: int | str, controller: str) -> PurePosixPath | None:
    """The group of a process; None where there is none, or no such process."""
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return group_in(text, controller)


def mount_of(controller: str) -> Mount | None:
    """Where the hierarchy of a controller is mounted; ``""`` is version 2."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    for mount in mounts(text):
        if controller in mount.controllers or not (controller or mount.controllers):
            return mount
    return None
