"""The bootable disk: an ISO 9660 image that also carries a master boot record.

It boots as a hard disk and as a CD-ROM. The first partition is that image; the second, empty at
first, is the guest's writable file system. The disk's size is a multiple of 1 MiB.
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
_MIN_WRITABLE_BYTES = 8 * _MIB
_LOADER = "/LOADER.;1"
_DISK_ID_AT = 440
_ACTIVE, _IMAGE, _LINUX = 0x80, 0x17, 0x83
_MKE2FS_SECONDS = 60
# Blocks of a page, a small journal, and no lazy initialization in the guest.
_MKE2FS = (
    "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-J", "size=4", "-O", "^metadata_csum",
    "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
)  # fmt: skip


def write_disk(target: Path, kernels: Sequence[Image], root: Sequence[Entry]) -> None:
    """Write the disk to `target`, with both `kernels`, and `root` as the directory `root`."""
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, vol_ident=_LABEL, rock_ridge="1.09")
    for path, content in [(_LOADER, bytes(loader.SIZE)), *_named(kernels)]:
        name = path.strip("/").partition(".")[0].lower()
        image.add_fp(io.BytesIO(content), len(content), path, rr_name=name)
    _add_tree(image, root)
    image.add_eltorito(
        _LOADER, "/BOOT.CAT;1", rr_bootcatname="boot.cat",
        boot_load_size=loader.SIZE // 512, boot_load_seg=loader.ADDRESS // 16,
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
    """Add the entries, with numbers as ISO 9660 names; the guest reads the Rock Ridge names."""
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
    """Return the byte range of the second partition, behind the image."""
    start = -(-image_bytes // _MIB) * _MIB
    return range(start, max(_DISK_BYTES, start + _MIN_WRITABLE_BYTES))


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
    """Return an entry of the partition table; CHS addresses are all ones, which means unused."""
    return struct.pack("<B3sB3sII", status, b"\xff" * 3, kind, b"\xff" * 3, start, sectors)


def _make_file_system(target: Path, place: range) -> None:
    """Create an empty ext4 file system in a range of `target`."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    program = shutil.which("mke2fs", path=places)
    if program is None:
        raise DemoError("mke2fs is not installed", "install the package e2fsprogs")
    options = (*_MKE2FS[:-1], f"{_MKE2FS[-1]},offset={place.start}")
    done = subprocess.run(
        [program, *options, str(target), f"{len(place) // 1024}k"],
        capture_output=True, text=True, check=False, timeout=_MKE2FS_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise DemoError(f"mke2fs failed: {done.stderr.strip()}", "please report it")
