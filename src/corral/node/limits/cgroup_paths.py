"""The groups of machines in one hierarchy."""

from collections.abc import Callable, Collection
from contextlib import suppress

from corral.node.limits.cgroup import PROCESSES, Directory, Group, group_of, mount_of

FindGroup = Callable[[int, str], Group | None]
"""Returns the group of a process, if it has the given name."""


class MachineGroups:
    """The groups below ``parent``, one for each machine, named by a prefix and the machine's uid.

    A machine that an earlier manager has put into another group stays there: its memory is charged
    to that group.
    """

    def __init__(self, parent: Group, prefix: str, *, find: FindGroup) -> None:
        self._parent = parent
        self._prefix = prefix
        self._find_group = find
        self._groups: dict[str, Group] = {}

    def sweep(self, existing: Collection[str]) -> None:
        """Remove groups of earlier managers that have no processes.

        Those of ``existing`` machines (uids) stay: they hold the cause of their end.
        """
        with suppress(OSError):
            for name in self._parent.children():
                if (
                    name.startswith(self._prefix)
                    and name.removeprefix(self._prefix) not in existing
                ):
                    with suppress(OSError):
                        self._parent.child(name).remove()

    def group(self, uid: str) -> Group:
        """Return a machine's group, which need not exist."""
        return self._groups.get(uid) or self._parent.child(self._prefix + uid)

    def recreate(self, uid: str) -> Group:
        """Create a machine's group, without settings and counters of an earlier start."""
        group = self.group(uid)
        with suppress(OSError):
            group.remove()
        group.create()
        return group

    def contains(self, uid: str, pid: int) -> bool:
        """Report whether a process is in its machine's group already."""
        found = self._find_group(pid, self._prefix + uid)
        if found is not None:
            self._groups[uid] = found
        return found is not None

    def add(self, uid: str, pid: int) -> None:
        """Move a process into its machine's group.  Raises OSError."""
        self.group(uid).write(PROCESSES, str(pid))

    def remove(self, uid: str) -> None:
        """Remove a machine's group; one whose processes are about to end is swept later."""
        with suppress(OSError):
            self.group(uid).remove()
        self._groups.pop(uid, None)


def group_finder(controller: str) -> FindGroup:
    """Return a function that finds groups in a controller's hierarchy; ``""`` is version 2."""

    def find(pid: int, name: str) -> Group | None:
        path, mount = group_of(pid, controller), mount_of(controller)
        if path is None or mount is None or path.name != name:
            return None
        directory = mount.directory(path)
        return Directory(directory) if directory is not None else None

    return find
