"""Disks of a VMI, through which the guest sees its volumes: disks, CD-ROMs, LUNs, file systems."""

import msgspec

from corral.api.kinds.vmi.features import FeatureState
from corral.api.object import Struct


class DiskTarget(Struct, kw_only=True):
    """A hard disk.

    bus: virtio, sata, scsi or usb.
    readonly: whether the guest may only read it.
    pci_address: place on the guest's PCI bus.
    """

    bus: str = ""
    readonly: bool = False
    pci_address: str = ""


class LunTarget(Struct, kw_only=True):
    """A disk that passes the guest's SCSI commands through.

    bus: virtio, sata or scsi.
    readonly: whether the guest may only read it.
    reservation: whether persistent reservations work.
    """

    bus: str = ""
    readonly: bool = False
    reservation: bool = False


class CdromTarget(Struct, kw_only=True):
    """A CD-ROM drive.

    bus: sata, scsi or usb.
    readonly: true by default.
    tray: closed (the default) or open.
    """

    bus: str = ""
    readonly: bool | None = None
    tray: str = ""


class CustomBlockSize(Struct, kw_only=True):
    """Sizes in bytes that a disk reports.

    logical: smallest unit that can be addressed.
    physical: smallest unit that is written without reading first.
    discard_granularity: smallest unit that can be discarded.
    """

    logical: int = 0
    physical: int = 0
    discard_granularity: int | None = None


class BlockSize(Struct, kw_only=True):
    """The block size that a disk reports: one of the two.

    custom: sizes in bytes.
    match_volume: the sizes of the volume.
    """

    custom: CustomBlockSize | None = None
    match_volume: FeatureState | None = None


class Disk(Struct, kw_only=True):
    """A disk of the guest: a volume's name, and exactly one of disk, cdrom and lun.

    name: the volume that it shows.
    disk: a hard disk, the default.
    cdrom: a CD-ROM drive.
    lun: a disk that passes SCSI commands through.
    boot_order: place among the devices that firmware tries, from 1.
    serial: serial number that the guest reads.
    dedicated_io_thread: whether the disk has a thread of its own.
    cache: none, writethrough or writeback.
    io: native or threads.
    tag: shown to the guest through the config drive.
    block_size: the block size that the disk reports: one of the two.
    shareable: whether several machines may write it.
    error_policy: what an I/O error does: stop (the default), ignore, report or enospace.
    changed_block_tracking: whether changed blocks are tracked for backups.
    """

    name: str
    disk: DiskTarget | None = None
    cdrom: CdromTarget | None = None
    lun: LunTarget | None = None
    boot_order: int | None = None
    serial: str = ""
    dedicated_io_thread: bool | None = msgspec.field(default=None, name="dedicatedIOThread")
    cache: str = ""
    io: str = ""
    tag: str = ""
    block_size: BlockSize | None = None
    shareable: bool | None = None
    error_policy: str | None = None
    changed_block_tracking: bool | None = None


class Virtiofs(Struct, kw_only=True):
    """Shared by virtiofs."""


class Filesystem(Struct, kw_only=True):
    """A volume that the guest mounts as a file system.

    name: the volume that it shares.
    virtiofs: shared by virtiofs.
    """

    name: str
    virtiofs: Virtiofs


def letters(number: int) -> str:
    """Return the letters by which Linux names a disk, by its number from 0: a to z, aa, ab."""
    last = chr(ord("a") + number % 26)
    return last if number < 26 else letters(number // 26 - 1) + last
