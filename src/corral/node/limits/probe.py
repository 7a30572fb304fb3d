"""Which ways to bound machines work here: proved by bounding a process, and giving it up again.

That a hierarchy is mounted proves nothing: it may be read-only, belong to somebody else, or lack a
controller.  So a group is made where ours would be, with a limit, and a process is moved into it.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from corral.node.limits.cgroup import Directory, Group, group_of, mount_of
from corral.node.limits.cgroup_methods import CpuGroups1, CpuGroups2, MemoryGroups1, MemoryGroups2
from corral.node.limits.cgroup_paths import Find, Site, find_in
from corral.node.limits.cgroup_root import Unusable, make_room
from corral.node.limits.cpu_duty_cycle import DutyCycle
from corral.node.limits.memory_watch import ResidentSet
from corral.node.limits.methods import CpuWay, MemoryWay

_PROBE = "probe"
_PROBED_NANOS = 10**9
_PROBED_BYTES = 64 << 20

W = TypeVar("W", CpuWay, MemoryWay)


@dataclass(frozen=True, slots=True)
class Ways:
    """How machines are bounded here, and why so."""

    cpu: CpuWay
    memory: MemoryWay
    reason: str

    @property
    def told(self) -> str:
        if self.cpu.name == self.memory.name:
            return f"cpu and memory by {self.cpu.name}"
        return f"cpu by {self.cpu.name}, memory by {self.memory.name}"


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The groups that this process is in, and where others are: what there is to be tried.

    ``two`` is that of version 2, ``one`` tells that of a controller of version 1.
    """

    two: Group | None
    one: Callable[[str], Group | None]
    find: Callable[[str], Find] = find_in


def prefix(directory: Path) -> str:
    """What the groups of a data directory's machines begin with: other managers have others."""
    return f"corral-{hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:8]}-"


def find_ways(
    name: str, hierarchies: Hierarchies | None = None, *, known: Collection[str] = ()
) -> Ways:
    """Try the kernel's ways, version 2 first; groups begin with ``name``.  It may take a moment.

    What ended machines have left is removed, except that of those that are ``known`` by their uids.
    """
    there = hierarchies or Hierarchies(two=_own_group(""), one=_own_group)
    wrong: list[str] = []
    cpu: CpuWay | None = None
    memory: MemoryWay | None = None

    def site(group: Group, controller: str) -> Site:
        made = Site(group, name, find=there.find(controller))
        made.sweep(known)
        return made

    try:
        two = site(make_room(there.two), "")
        cpu = _proved(two, CpuGroups2(two), _bound_cpu, wrong)
        memory = _proved(two, MemoryGroups2(two), _bound_memory, wrong)
    except Unusable as error:
        wrong.append(f"cgroup v2: {error}")
    if cpu is None and (group := there.one("cpu")) is not None:
        one = site(group, "cpu")
        cpu = _proved(one, CpuGroups1(one), _bound_cpu, wrong)
    if memory is None and (group := there.one("memory")) is not None:
        one = site(group, "memory")
        memory = _proved(one, MemoryGroups1(one), _bound_memory, wrong)
    proved = cpu is not None and memory is not None
    reason = "a test process was bounded" if proved else "; ".join(dict.fromkeys(wrong))
    return Ways(cpu or DutyCycle(), memory or ResidentSet(), reason)


def _bound_cpu(way: CpuWay, pid: int) -> None:
    way.hold(_PROBE, pid, _PROBED_NANOS)


def _bound_memory(way: MemoryWay, pid: int) -> None:
    way.hold(_PROBE, pid, _PROBED_BYTES, held=0, over=lambda: None)


def _proved(site: Site, way: W, bound: Callable[[W, int], None], wrong: list[str]) -> W | None:
    """The way, if a process can be bounded by it; else ``wrong`` says why not."""
    try:
        with _victim() as pid:
            bound(way, pid)
            inside = site.recall(_PROBE, pid)
    except OSError as error:
        named = Path(error.filename).name if isinstance(error.filename, str | Path) else ""
        wrong.append(f"{way.name}: {error.strerror}{f' ({named})' if named else ''}")
        return None
    finally:
        way.clear(_PROBE)
    if not inside:
        wrong.append(f"{way.name}: a process that was moved into a group is not found there")
        return None
    return way


@contextmanager
def _victim() -> Iterator[int]:
    """A process to be bounded."""
    process = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _own_group(controller: str) -> Group | None:
    path, mount = group_of("self", controller), mount_of(controller)
    directory = mount.directory(path) if path is not None and mount is not None else None
    return Directory(directory) if directory is not None else None
