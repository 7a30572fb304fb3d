"""The bootable disk: an ISO 9660 image that also carries a master boot record.

The boot loader is in it twice, for firmware that sees a hard disk, and a CD-ROM. The guest's first
partition is that image; the second, empty at first, takes what the guest writes. The disk's
size is a multiple of 1 MiB, as disks want it.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
import subprocess
from typing import TYPE_CHECKING

import pycdlib

from corral.node.images.demo import loader
from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from corral.node.images.demo.cpio import Entry
    from corral.node.images.demo.loader import Image

_LABEL = "DEMO"
_DISK_ID = 0x636F7272
_MIB = 1024 * 1024
_SECTOR = 512
_DISK_BYTES = 64 * _MIB  # as large as the smallest claims
_LEAST_WRITABLE_BYTES = 8 * _MIB
_LOADER = "/LOADER.;1"
_DISK_ID_AT = 440
_ACTIVE, _IMAGE, _LINUX = 0x80, 0x17, 0x83
_MKE2FS_SECONDS = 60
# In blocks of a page; a small journal, and nothing left to do for the guest when it is mounted.
_MKE2FS = (
    "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-J", "size=4", "-O", "^metadata_csum",
    "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
)  # fmt: skip


def write_disk(target: Path, kernels: Sequence[Image], root: Sequence[Entry]) -> None:
    """Writes the disk to `target`.

    The boot loader finds both `kernels` on it; `root` becomes the directory `root`.
    """
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, vol_ident=_LABEL, rock_ridge="1.09")
    for path, content in [(_LOADER, bytes(loader.SIZE)), *_named(kernels)]:
        name = path.strip("/").partition(".")[0].lower()
        image.add_fp(io.BytesIO(content), len(content), path, rr_name=name)
    _add_tree(image, root)
    image.add_eltorito(
        _LOADER, "/BOOT.CAT;1", rr_bootcatname="boot.cat",
        boot_load_size=loader.SIZE // 512, boot_load_seg=loader.PLACE // 16,
    )  # fmt: skip
    image.write(str(target))
    blocks = [image.get_record(iso_path=path).extent_location() for path, _ in _named(kernels)]
    program = loader.program(*zip(kernels, blocks, strict=True))
    places = image.get_record(iso_path=_LOADER).extent_location() * loader.BLOCK, _SECTOR
    image.close()
    size = target.stat().st_size
    _add_writable_partition(target)
    with target.open("r+b") as disk:
        for place in places:
            disk.seek(place)
            disk.write(program)
        disk.seek(0)
        disk.write(_master_boot_record(size // _SECTOR))


def _named(kernels: Sequence[Image]) -> list[tuple[str, bytes]]:
    names = ("/KERNEL64.;1", "/KERNEL32.;1")
    return [(name, kernel.content) for name, kernel in zip(names, kernels, strict=True)]


def _add_tree(image: pycdlib.PyCdlib, root: Sequence[Entry]) -> None:
    """ISO 9660's own names count only: those that people see are Rock Ridge's."""
    image.add_directory("/ROOT", rr_name="root", file_mode=stat.S_IFDIR | 0o755)
    places = {"": "/ROOT"}
    for number, entry in enumerate(root):
        folder, _, name = entry.path.rpartition("/")
        place = f"{places[folder]}/{number}"
        if stat.S_ISDIR(entry.mode):
            image.add_directory(place, rr_name=name, file_mode=entry.mode)
            places[entry.path] = place
        elif stat.S_ISLNK(entry.mode):
            image.add_symlink(f"{place}.;1", rr_symlink_name=name, rr_path=entry.content.decode())
        else:
            image.add_fp(
                io.BytesIO(entry.content), len(entry.content), f"{place}.;1",
                rr_name=name, file_mode=entry.mode,
            )  # fmt: skip


def _add_writable_partition(target: Path) -> None:
    place = _writable(target.stat().st_size)
    os.truncate(target, place.stop)
    _make_file_system(target, place)


def _writable(image_bytes: int) -> range:
    """The second partition: what the image leaves of the disk."""
    start = -(-image_bytes // _MIB) * _MIB
    return range(start, max(_DISK_BYTES, start + _LEAST_WRITABLE_BYTES))


def _master_boot_record(image_sectors: int) -> bytes:
    writable = _writable(image_sectors * _SECTOR)
    return b"".join(
        (
            loader.BOOT_SECTOR.ljust(_DISK_ID_AT, b"\0") + struct.pack("<IH", _DISK_ID, 0),
            _partition(_ACTIVE, _IMAGE, 0, image_sectors),
            _partition(0, _LINUX, writable.start // _SECTOR, len(writable) // _SECTOR),
            bytes(32) + b"\x55\xaa",
        )
    )


def _partition(status: int, kind: int, start: int, sectors: int) -> bytes:
    """Its place in cylinders is nowhere looked at: all ones, which says that."""
    return struct.pack("<B3sB3sII", status, b"\xff" * 3, kind, b"\xff" * 3, start, sectors)


def _make_file_system(target: Path, place: range) -> None:
    """An empty ext4 file system in the last part of `target`."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    program = shutil.which("mke2fs", path=places)
    if program is None:
        raise DemoError("mke2fs is not on this machine", "install the package e2fsprogs")
    options = (*_MKE2FS[:-1], f"{_MKE2FS[-1]},offset={place.start}")
    done = subprocess.run(
        [program, *options, str(target), f"{len(place) // 1024}k"],
        capture_output=True, text=True, check=False, timeout=_MKE2FS_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise DemoError(f"mke2fs failed: {done.stderr.strip()}", "please report it")
