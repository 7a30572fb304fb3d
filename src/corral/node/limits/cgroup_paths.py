"""Where the groups of machines are in one hierarchy, and which machine is in which."""

from collections.abc import Callable, Collection
from contextlib import suppress

from corral.node.limits.cgroup import PROCESSES, Directory, Group, group_of, mount_of

Find = Callable[[int, str], Group | None]
"""The group that a process is in, if it has this name."""


class Site:
    """The groups inside of ``parent``, one a machine: named by a prefix and the machine's uid.

    A machine that an earlier manager has put somewhere else stays there: what it holds is counted
    in that group.
    """

    def __init__(self, parent: Group, prefix: str, *, find: Find) -> None:
        self._parent = parent
        self._prefix = prefix
        self._find = find
        self._groups: dict[str, Group] = {}

    def sweep(self, known: Collection[str]) -> None:
        """Remove what earlier managers have left: groups without processes.

        Those of the machines that are ``known`` by their uids stay: they tell how these ended.
        """
        with suppress(OSError):
            for name in self._parent.children():
                if name.startswith(self._prefix) and name.removeprefix(self._prefix) not in known:
                    with suppress(OSError):
                        self._parent.child(name).remove()

    def group(self, uid: str) -> Group:
        """A machine's group, whether it is there or not."""
        return self._groups.get(uid) or self._parent.child(self._prefix + uid)

    def make(self, uid: str) -> Group:
        """A new group for a machine, without what an earlier start has set and counted there."""
        group = self.group(uid)
        with suppress(OSError):
            group.remove()
        group.create()
        return group

    def recall(self, uid: str, pid: int) -> bool:
        """Whether a process is in its machine's group already."""
        found = self._find(pid, self._prefix + uid)
        if found is not None:
            self._groups[uid] = found
        return found is not None

    def put(self, uid: str, pid: int) -> None:
        """Move a process into its machine's group.  Raises OSError."""
        self.group(uid).write(PROCESSES, str(pid))

    def clear(self, uid: str) -> None:
        """Remove a machine's group; one whose processes are about to go is swept later."""
        with suppress(OSError):
            self.group(uid).remove()
        self._groups.pop(uid, None)


def find_in(controller: str) -> Find:
    """Looks for processes in the kernel's hierarchy of a controller; ``""`` is version 2."""

    def find(pid: int, name: str) -> Group | None:
        path, mount = group_of(pid, controller), mount_of(controller)
        if path is None or mount is None or path.name != name:
            return None
        directory = mount.directory(path)
        return Directory(directory) if directory is not None else None

    return find
