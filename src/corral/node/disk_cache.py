"""The cache mode of a disk, whichever hypervisor runs it: what it has, and may have.  Pure.

A disk that must not be lost is written past the host's cache where its file system lets that be
(KubeVirt's default), else through it.
"""

from corral.api.kinds.vmi.disks import Disk
from corral.node.hypervisor import Drive

NONE, WRITETHROUGH = "none", "writethrough"
DIRECT = frozenset({NONE, "directsync"})
"""The modes that go past the host's cache."""
THROUGH = frozenset({WRITETHROUGH, "directsync"})
"""The modes in which a write has ended only when the host's storage has it."""


def mode(disk: Disk, drive: Drive) -> str:
    """The cache mode of a disk; empty where nothing is asked for and nothing is at stake."""
    if drive.ephemeral:
        return disk.cache
    best = NONE if drive.direct else WRITETHROUGH
    return best if disk.shareable or not disk.cache else disk.cache


def fault(disk: Disk, drive: Drive) -> str:
    """Why a disk cannot have what it asks for; empty where it can."""
    chosen = mode(disk, drive)
    if not drive.ephemeral and chosen in DIRECT and not drive.direct:
        return f"its cache mode is {chosen}, but its file system does not support direct I/O"
    if disk.io == "native" and chosen not in DIRECT:
        return f"its io mode is native, which needs cache none, and its cache mode is {chosen}"
    if disk.shareable and not drive.read_only and drive.format != "raw":
        return "it is shareable, but its volume was not made to be: use a claim with ReadWriteMany"
    return ""
