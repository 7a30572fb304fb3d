"""What stands between a disk and the host's storage: caches, flushes, ways to ask.  Pure.

Flushes of the guest reach the host's storage in every cache mode.  What may be lost with the host
is not flushed at all.
"""

from typing import Any

from corral.api.kinds.vmi.disks import Disk
from corral.node.disk_cache import DIRECT, THROUGH, mode
from corral.node.hypervisor import Drive

MATCHED_BLOCK = 4096
"""The block of the volumes' file system, as a disk shows it that shall match it."""


def of_file(disk: Disk, drive: Drive) -> dict[str, bool]:
    """The cache options of a disk's block nodes."""
    options = {}
    if mode(disk, drive) in DIRECT:
        options["direct"] = True
    if drive.ephemeral:
        options["no-flush"] = True
    return options


def of_device(disk: Disk, drive: Drive | None) -> dict[str, Any]:
    """What the device says to the guest of its cache and its blocks, and who else may write.

    Only a CD-ROM may have no drive behind it.
    """
    options: dict[str, Any] = {}
    if disk.cdrom is None and drive is not None:
        if mode(disk, drive) in THROUGH:
            options["write-cache"] = "off"
        if disk.shareable:
            options["share-rw"] = True
    return options | _block_size(disk)


def _block_size(disk: Disk) -> dict[str, int]:
    size = disk.block_size
    if size is None:
        return {}
    if size.custom is not None:
        sizes = {
            "logical_block_size": size.custom.logical,
            "physical_block_size": size.custom.physical,
        }
        if size.custom.discard_granularity is not None:
            sizes["discard_granularity"] = size.custom.discard_granularity
        return sizes
    if size.match_volume is None or size.match_volume.enabled is False:
        return {}
    target = disk.disk or disk.lun
    matched = {"physical_block_size": MATCHED_BLOCK}
    if target is None or target.bus != "sata":  # which knows no other logical size than 512
        matched["logical_block_size"] = MATCHED_BLOCK
    return matched
