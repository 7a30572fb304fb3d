"""Cache, flush and block size options of disks.  Pure.

Flushes of the guest reach the host's storage in every cache mode, except for ephemeral disks,
which are not flushed at all.
"""

from typing import Any

from corral.api.kinds.vmi.disks import Disk
from corral.node.disk_cache import DIRECT, THROUGH, mode
from corral.node.hypervisor import Drive

MATCHED_BLOCK = 4096
"""The block size of a disk that is to match its volume: that of the file system."""


def of_file(disk: Disk, drive: Drive) -> dict[str, bool]:
    """Return the cache options of a disk's block nodes."""
    options = {}
    if mode(disk, drive) in DIRECT:
        options["direct"] = True
    if drive.ephemeral:
        options["no-flush"] = True
    return options


def of_device(disk: Disk, drive: Drive | None) -> dict[str, Any]:
    """Return the device's options for its cache, block sizes, and shared writes.

    Only a CD-ROM may have no drive.
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
    if target is None or target.bus != "sata":  # SATA has logical blocks of 512 bytes only
        matched["logical_block_size"] = MATCHED_BLOCK
    return matched
