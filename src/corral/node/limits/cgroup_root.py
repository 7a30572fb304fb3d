"""The cgroup v2 parent of machines: a group of ours whose children may have limits.

A group whose children have controllers may not have processes itself (cgroups(7)), so those have to
move, which is not allowed for processes of others.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from corral.node.limits.cgroup import PROCESSES, Group

LEAF = "corral-manager"
"""The group of the manager's processes in version 2."""
_SYSTEMD = Path("/run/systemd/system")
_SUBTREE_CONTROL = "cgroup.subtree_control"
_MAX_ROUNDS = 10


class Unusable(Exception):
    """A hierarchy that cannot be used, and why."""


def prepare_parent(group: Group | None) -> Group:
    """Enable controllers for the children of our group.  Raises Unusable.

    The group must be exclusively ours: its processes, which are ours or our parents, move into a
    child group, and the available ones of the controllers cpu and memory are enabled.
    """
    if group is None:
        raise Unusable("it is not mounted here")
    if group.name == LEAF:
        group = group.parent()
    try:
        available = {"cpu", "memory"} & set(group.read("cgroup.controllers").split())
        if not available:
            raise Unusable("this group has neither the cpu nor the memory controller")
        if missing := available - set(group.read(_SUBTREE_CONTROL).split()):
            if not _is_exclusive(group):
                raise Unusable(f"this group is not delegated to us, try: {_delegation_hint()}")
            _enable_controllers(group, missing)
    except OSError as error:
        raise Unusable(f"{error.strerror}, try: {_delegation_hint()}") from error
    return group


def _delegation_hint() -> str:
    """Return the command that starts a manager in a group of its own."""
    return "corral up --systemd"


def _is_exclusive(group: Group) -> bool:
    """Report whether the group has no other manager and no foreign processes.

    systemd marks groups that it delegates.  Without systemd the processes decide.
    """
    if group.is_delegated():
        return True
    return not _SYSTEMD.exists() and all(map(_is_own_process, group.read(PROCESSES).split()))


def _is_own_process(pid: str) -> bool:
    """Report whether a process is of our session, or our ancestor; pid 0: of another namespace."""
    with suppress(OSError):  # it has ended meanwhile
        if pid == "0" or os.getsid(int(pid)) != os.getsid(0):
            return pid != "0" and os.getpid() in _ancestors(pid)
    return True


def _ancestors(pid: str) -> Iterator[int]:
    while int(pid) > 1:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        pid = text.rpartition(")")[2].split()[1]
        yield int(pid)


def _enable_controllers(group: Group, controllers: set[str]) -> None:
    controllers_on = " ".join(f"+{name}" for name in sorted(controllers))
    try:
        group.write(_SUBTREE_CONTROL, controllers_on)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
    else:
        return
    leaf = group.child(LEAF)
    leaf.create()
    moved: list[str] = []
    try:
        moved = _move_processes(group, leaf)
        group.write(_SUBTREE_CONTROL, controllers_on)
    except OSError:
        for pid in moved:  # others that are in the leaf were there before
            with suppress(OSError):
                group.write(PROCESSES, pid)
        with suppress(OSError):
            leaf.remove()
        raise


def _move_processes(source: Group, target: Group) -> list[str]:
    """Move all processes, including those forked meanwhile; return their pids."""
    moved: list[str] = []
    for _ in range(_MAX_ROUNDS):
        if not (pids := source.read(PROCESSES).split()):
            break
        for pid in pids:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                target.write(PROCESSES, pid)
                moved.append(pid)
    return moved
