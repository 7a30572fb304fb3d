"""The account that a machine's process runs as, and the command that sheds all other rights."""

import os
from dataclasses import dataclass
from pathlib import Path

from corral.node.qemu import kvm_rights


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group that a VM's process runs as."""

    uid: int
    gid: int


# A range that no distribution and no container runtime hands out (systemd's UIDS-GIDS).
_FIRST_UID = 0x70000000
_UIDS = 1 << 24
_NOBODY = 65534


def account(seed: str, *, device: Path | None = None) -> Account | None:
    """An account of its own for each VM, made from its uid; None unless we may change users.

    VMs cannot touch each other then, and none can touch what a system account owns.  In a user
    namespace without so many users it is ``nobody``.  ``device`` is one that the VM must open: the
    group that may becomes the process's group.
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
    """The command that sheds privileges and then becomes the one that follows."""
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
