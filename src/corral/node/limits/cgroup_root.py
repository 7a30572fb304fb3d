"""Room for groups in version 2: a group of ours in which groups may have limits.

No group with such groups inside may have processes of its own (cgroups(7)), so those have to move,
which nobody may do to processes of others.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from corral.node.limits.cgroup import PROCESSES, Group

LEAF = "corral-manager"
"""The group of managers in version 2, where no group with groups inside may have processes."""
_SYSTEMD = Path("/run/systemd/system")
_SWITCH = "cgroup.subtree_control"
_ROUNDS = 10


class Unusable(Exception):
    """Why a hierarchy cannot be used."""


def make_room(group: Group | None) -> Group:
    """Let groups of version 2 have limits inside of ours.  Raises Unusable.

    The group has to be ours alone: its processes, which are ours or wait for us, move into a group
    of their own, and all limits that machines may have are switched on for what is inside.
    """
    if group is None:
        raise Unusable("it is not mounted here")
    if group.name == LEAF:
        group = group.parent()
    try:
        offered = {"cpu", "memory"} & set(group.read("cgroup.controllers").split())
        if not offered:
            raise Unusable("this group has neither the cpu nor the memory controller")
        if missing := offered - set(group.read(_SWITCH).split()):
            if not _is_ours(group):
                raise Unusable(f"this group is not delegated to us, try: {_delegating()}")
            _switch_on(group, missing)
    except OSError as error:
        raise Unusable(f"{error.strerror}, try: {_delegating()}") from error
    return group


def _delegating() -> str:
    """The command that starts a manager in a group of its own."""
    return "corral up --systemd"


def _is_ours(group: Group) -> bool:
    """Whether nobody else sees to what is inside, nor has anything there.

    systemd marks what it leaves to others.  Where that does not run, the processes tell.
    """
    if group.delegated():
        return True
    return not _SYSTEMD.exists() and all(map(_belongs, group.read(PROCESSES).split()))


def _belongs(pid: str) -> bool:
    """Whether a process is of our session, or a descendant of ours; 0 is one that we cannot see."""
    with suppress(OSError):  # it has ended meanwhile
        if pid == "0" or os.getsid(int(pid)) != os.getsid(0):
            return pid != "0" and os.getpid() in _ancestors(pid)
    return True


def _ancestors(pid: str) -> Iterator[int]:
    while int(pid) > 1:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        pid = text.rpartition(")")[2].split()[1]
        yield int(pid)


def _switch_on(group: Group, controllers: set[str]) -> None:
    wish = " ".join(f"+{name}" for name in sorted(controllers))
    try:
        group.write(_SWITCH, wish)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
    else:
        return
    leaf = group.child(LEAF)
    leaf.create()
    moved: list[str] = []
    try:
        moved = _empty(group, leaf)
        group.write(_SWITCH, wish)
    except OSError:
        for pid in moved:  # others that are in the leaf were there before
            with suppress(OSError):
                group.write(PROCESSES, pid)
        with suppress(OSError):
            leaf.remove()
        raise


def _empty(source: Group, target: Group) -> list[str]:
    """Move all processes elsewhere, those too that are born meanwhile; answers which they were."""
    moved: list[str] = []
    for _ in range(_ROUNDS):
        if not (found := source.read(PROCESSES).split()):
            break
        for pid in found:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                target.write(PROCESSES, pid)
                moved.append(pid)
    return moved
