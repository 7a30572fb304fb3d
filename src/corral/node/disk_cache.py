"""The cache mode of a disk, and the modes that it may have, with any hypervisor.  Pure.

A disk that must not be lost bypasses the host's cache where its file system supports O_DIRECT
(KubeVirt's default), else it is written through.
"""

from corral.api.kinds.vmi.disks import Disk
from corral.node.hypervisor import Drive

NONE, WRITETHROUGH = "none", "writethrough"
DIRECT = frozenset({NONE, "directsync"})
"""The modes that bypass the host's cache (O_DIRECT)."""
THROUGH = frozenset({WRITETHROUGH, "directsync"})
"""The modes in which a write completes only when it is on the host's storage."""


def mode(disk: Disk, drive: Drive) -> str:
    """Return the cache mode of a disk; empty where none is requested and nothing can be lost."""
    if drive.ephemeral:
        return disk.cache
    best = NONE if drive.direct else WRITETHROUGH
    return best if disk.shareable or not disk.cache else disk.cache


def fault(disk: Disk, drive: Drive) -> str:
    """Return why a disk cannot have the requested mode; empty if it can."""
    chosen = mode(disk, drive)
    if not drive.ephemeral and chosen in DIRECT and not drive.direct:
        return f"its cache mode is {chosen}, but its file system does not support direct I/O"
    if disk.io == "native" and chosen not in DIRECT:
        return f"its io mode is native, which needs cache none, and its cache mode is {chosen}"
    if disk.shareable and not drive.read_only and drive.format != "raw":
        return "it is shareable, but its volume was not made to be: use a claim with ReadWriteMany"
    return ""
