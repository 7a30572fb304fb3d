"""Access to ``/dev/kvm``: who may open it, and how root can permit it."""

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

_GROUP_OPENS = 0o060
_ALL_OPEN = 0o006


def group_of_machines(device: os.stat_result) -> int | None:
    """Return the group that a machine needs to open a device; None without one, or for root's.

    Root's group is no option: its members may read root's files elsewhere.
    """
    has = device.st_mode & _GROUP_OPENS == _GROUP_OPENS
    return device.st_gid if has and device.st_gid else None


def opens_for_machines(device: os.stat_result) -> bool:
    """Report whether machines, which run as users of their own, may open a device."""
    return group_of_machines(device) is not None or device.st_mode & _ALL_OPEN == _ALL_OPEN


def refused_to_us(path: Path, found: os.stat_result) -> str:
    """Return why we may not open the device, and what its owner can do about that.

    In a user namespace of ours only our own group has a name; all others look alike.
    """
    group = group_of_machines(found)
    if group == _unknown():
        given = f"chgrp kvm {path}, if it has another group (ls -l {path})"
        why = f"a group may open it. As root: {given}; {_join('kvm')}"
    elif group is None:
        why = f"it belongs to {_owners(found)}. As root: {_chgrp(path)}; {_join('kvm')}"
    elif _user() in _members(group):
        why = f"you were put into its group {_group(group)} after you logged in"
    else:
        why = f"it is for the group {_group(group)}. As root: {_join(_group(group))}"
    return f"{path} may not be opened: {why}. Then log in again"


def refused_to_machines(path: Path, found: os.stat_result) -> str:
    """Return what root can do so that machines may open the device."""
    return f"only root may open {path}, which belongs to {_owners(found)}: {_chgrp(path)}"


def _owners(found: os.stat_result) -> str:
    mode = stat.S_IMODE(found.st_mode)
    if found.st_gid == _unknown():
        return f"others and has mode {mode:o}"
    return f"{_name(found.st_uid)}:{_group(found.st_gid)} with mode {mode:o}"


def _unknown() -> int:
    """Return the overflow group, as which groups without a name in this namespace appear."""
    return int(Path("/proc/sys/kernel/overflowgid").read_text(encoding="ascii"))


def _chgrp(path: Path) -> str:
    return f"chgrp kvm {path}; chmod 660 {path}"


def _join(group: str) -> str:
    return f"usermod -aG {group} {_user()}"


def _user() -> str:
    return _name(os.geteuid())


def _name(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _group(gid: int) -> str:
    with suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)


def _members(gid: int) -> list[str]:
    with suppress(KeyError):
        return grp.getgrgid(gid).gr_mem
    return []
