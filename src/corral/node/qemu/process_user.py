"""The user of a machine's process, and the command that drops all other privileges."""

import os
from dataclasses import dataclass
from pathlib import Path

from corral.node.qemu import kvm_rights


@dataclass(frozen=True, slots=True)
class Account:
    """User and group of a machine's process."""

    uid: int
    gid: int


# A range that no distribution and no container runtime assigns (systemd's UIDS-GIDS).
_FIRST_UID = 0x70000000
_UIDS = 1 << 24
_NOBODY = 65534


def account(seed: str, *, device: Path | None = None) -> Account | None:
    """Return a user for each machine, derived from its uid; None unless we may change users.

    So machines cannot touch each other's files, nor those of system users.  In a user namespace
    without this range it is ``nobody``.  ``device`` is one that the machine must open: the group
    that may do so becomes the process's group.
    """
    if os.geteuid() != 0:
        return None
    uid = _FIRST_UID + int(seed.replace("-", "")[-6:] or "0", 16) % _UIDS
    if not _mapped(uid):
        uid = _NOBODY
    group = kvm_rights.group_of_machines(device.stat()) if device is not None else None
    return Account(uid, group if group is not None else uid)


def _mapped(uid: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = (int(field) for field in line.split())
        if first <= uid < first + count:
            return True
    return False


def privileges(user: Account | None) -> list[str]:
    """Return the command that drops privileges and then executes its arguments."""
    if user is None:
        return []
    return [
        "setpriv",
        f"--reuid={user.uid}",
        f"--regid={user.gid}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
        "--",
    ]
