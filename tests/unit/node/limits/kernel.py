"""A kernel's control groups in memory, with the rules that version 2 has (cgroup-v2.rst).

Unlike this, the machines that tests run on seldom have version 2 with the controllers that matter.
"""

import errno
import os
from pathlib import Path

CONTROLLED = {
    "cpu": {"cpu.max": "max 100000", "cpu.weight.nice": "0"},
    "memory": {
        "memory.max": "max",
        "memory.oom.group": "0",
        "memory.swap.max": "max",
        "memory.events": "low 0\noom 0\noom_kill 0\n",
        "memory.stat": "anon 0\nfile 4096\nshmem 0\n",
    },
}


def refuse(number, setting=""):
    raise OSError(number, os.strerror(number), setting)


class Kernel:
    """Where every process is; numbers below zero are made up, and live for ever.

    0 is a process that cannot be seen from here.
    """

    def __init__(self, *, is_delegated=True, writable=True):
        self.is_delegated = is_delegated
        self.writable = writable
        self.placed = {}

    def find(self, pid, name):
        """As ``MachineGroups`` looks for processes."""
        group = self.placed.get(pid)
        return group if group is not None and group.name == name else None


def _lives(pid):
    return pid <= 0 or Path(f"/proc/{pid}").exists()


class Group:
    """One group of version 2."""

    @property
    def path(self):
        above = self.above.path if self.above is not None else Path("/sys/fs/cgroup")
        return above / self.name

    def __init__(self, kernel, name, *, above=None, controllers=()):
        self.kernel = kernel
        self.name = name
        self.above = above
        self.own = set(controllers)
        self.switched = set()
        self.inside = {}
        self.values = {}

    @property
    def offered(self):
        return self.own if self.above is None else self.above.switched

    @property
    def processes(self):
        placed = self.kernel.placed.items()
        return [pid for pid, group in placed if group is self and _lives(pid)]

    @property
    def made(self):
        return self.above is None or self.above.inside.get(self.name) is self

    def parent(self):
        return self.above

    def is_delegated(self):
        return self.kernel.is_delegated

    def child(self, name):
        return self.inside.get(name) or Group(self.kernel, name, above=self)

    def children(self):
        return list(self.inside)

    def create(self):
        if not self.kernel.writable:
            refuse(errno.EACCES, self.name)
        self.above.inside.setdefault(self.name, self)

    def remove(self):
        if not self.made:
            return
        if self.processes or self.inside:
            refuse(errno.EBUSY, self.name)
        del self.above.inside[self.name]
        self.values.clear()

    def settings(self):
        return {name: value for one in self.offered for name, value in CONTROLLED[one].items()}

    def read(self, setting):
        if not self.made:
            refuse(errno.ENOENT, setting)
        if setting == "cgroup.controllers":
            return " ".join(sorted(self.offered))
        if setting == "cgroup.subtree_control":
            return " ".join(sorted(self.switched))
        if setting == "cgroup.procs":
            return "\n".join(map(str, self.processes))
        if setting not in self.settings():
            refuse(errno.ENOENT, setting)
        return self.values.get(setting, self.settings()[setting])

    def write(self, setting, value):
        if not self.made:
            refuse(errno.ENOENT, setting)
        if not self.kernel.writable:
            refuse(errno.EACCES, setting)
        if setting == "cgroup.procs":
            if self.switched:
                refuse(errno.EBUSY, setting)  # no processes beside groups with controllers
            self.kernel.placed[int(value)] = self
        elif setting == "cgroup.subtree_control":
            if self.processes:
                refuse(errno.EBUSY, setting)
            controllers = {name.removeprefix("+") for name in value.split()}
            if not controllers <= self.offered:
                refuse(errno.ENOENT, setting)
            self.switched |= controllers
        elif setting in self.settings():
            self.values[setting] = value
        else:
            refuse(errno.ENOENT, setting)
