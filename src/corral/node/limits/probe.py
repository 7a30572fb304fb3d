"""Finds the limiters that work on this host, by limiting a test process.

A mounted hierarchy proves nothing: it may be read-only, belong to another manager, or lack a
controller.  So a group is created where ours would be, with a limit, and a process is moved into
it.
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
from corral.node.limits.cgroup_methods import CpuCgroup1, CpuCgroup2, MemoryCgroup1, MemoryCgroup2
from corral.node.limits.cgroup_paths import FindGroup, MachineGroups, group_finder
from corral.node.limits.cgroup_root import Unusable, prepare_parent
from corral.node.limits.cpu_duty_cycle import DutyCycle
from corral.node.limits.memory_watch import ResidentSet
from corral.node.limits.methods import CpuLimiter, MemoryLimiter

_PROBE = "probe"
_TEST_NANOS = 10**9
_TEST_BYTES = 64 << 20

W = TypeVar("W", CpuLimiter, MemoryLimiter)


@dataclass(frozen=True, slots=True)
class Limiters:
    """The limiters of this host, and why these."""

    cpu: CpuLimiter
    memory: MemoryLimiter
    reason: str

    @property
    def description(self) -> str:
        if self.cpu.name == self.memory.name:
            return f"cpu and memory by {self.cpu.name}"
        return f"cpu by {self.cpu.name}, memory by {self.memory.name}"


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The cgroups of this process: ``v2`` in version 2, ``v1`` for a controller of version 1."""

    v2: Group | None
    v1: Callable[[str], Group | None]
    find: Callable[[str], FindGroup] = group_finder


def group_prefix(directory: Path) -> str:
    """Return the prefix of the names of a data directory's groups; other managers have others."""
    return f"corral-{hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:8]}-"


def find_limiters(
    name: str, hierarchies: Hierarchies | None = None, *, existing: Collection[str] = ()
) -> Limiters:
    """Test the methods of cgroups, version 2 first; group names begin with ``name``.

    It may take a moment.

    Groups of ended machines are removed, except those of ``existing`` ones (uids).
    """
    available = hierarchies or Hierarchies(v2=_own_group(""), v1=_own_group)
    failures: list[str] = []
    cpu: CpuLimiter | None = None
    memory: MemoryLimiter | None = None

    def groups(group: Group, controller: str) -> MachineGroups:
        machine_groups = MachineGroups(group, name, find=available.find(controller))
        machine_groups.sweep(existing)
        return machine_groups

    try:
        v2 = groups(prepare_parent(available.v2), "")
        cpu = _tested(v2, CpuCgroup2(v2), _limit_cpu, failures)
        memory = _tested(v2, MemoryCgroup2(v2), _limit_memory, failures)
    except Unusable as error:
        failures.append(f"cgroup v2: {error}")
    if cpu is None and (group := available.v1("cpu")) is not None:
        v1 = groups(group, "cpu")
        cpu = _tested(v1, CpuCgroup1(v1), _limit_cpu, failures)
    if memory is None and (group := available.v1("memory")) is not None:
        v1 = groups(group, "memory")
        memory = _tested(v1, MemoryCgroup1(v1), _limit_memory, failures)
    proved = cpu is not None and memory is not None
    reason = "a test process was bounded" if proved else "; ".join(dict.fromkeys(failures))
    return Limiters(cpu or DutyCycle(), memory or ResidentSet(), reason)


def _limit_cpu(limiter: CpuLimiter, pid: int) -> None:
    limiter.apply(_PROBE, pid, _TEST_NANOS)


def _limit_memory(limiter: MemoryLimiter, pid: int) -> None:
    limiter.apply(_PROBE, pid, _TEST_BYTES, used=0, on_exceeded=lambda: None)


def _tested(
    groups: MachineGroups, limiter: W, apply_limit: Callable[[W, int], None], failures: list[str]
) -> W | None:
    """Return the limiter, if it can limit a process; else add the reason to ``failures``."""
    try:
        with _test_process() as pid:
            apply_limit(limiter, pid)
            is_inside = groups.contains(_PROBE, pid)
    except OSError as error:
        file_name = Path(error.filename).name if isinstance(error.filename, str | Path) else ""
        failures.append(f"{limiter.name}: {error.strerror}{f' ({file_name})' if file_name else ''}")
        return None
    finally:
        limiter.remove(_PROBE)
    if not is_inside:
        failures.append(f"{limiter.name}: a process that was moved into a group is not found there")
        return None
    return limiter


@contextmanager
def _test_process() -> Iterator[int]:
    """A process to test limiters with."""
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
