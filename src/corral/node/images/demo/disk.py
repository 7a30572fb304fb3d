"""The bootable disk: an ISO 9660 image that also carries a master boot record ("isohybrid").

ISOLINUX loads the kernel from it, whether the firmware sees a hard disk or a CD-ROM. The guest's
first partition is that image; the second, empty at first, takes what the guest writes. The disk's
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

from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from corral.node.images.demo.cpio import Entry

_LABEL = "DEMO"
_DISK_ID = 0x636F7272
_LOADER = "isolinux.bin"
_MIB = 1024 * 1024
_SECTOR = 512
_WRITABLE_BYTES = 32 * _MIB
_SECOND_PARTITION = 446 + 16
_LINUX = 0x83
_MKE2FS_SECONDS = 60
# In blocks of a page; a small journal, and nothing left to do for the guest when it is mounted.
_MKE2FS = (
    "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-J", "size=4", "-O", "^metadata_csum",
    "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
)  # fmt: skip


def write_disk(target: Path, files: Mapping[str, bytes], root: Sequence[Entry]) -> None:
    """Writes the disk to `target`.

    `files` are those of its top directory, by name, the boot loader isolinux.bin among them;
    `root` becomes the directory `root`.
    """
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, vol_ident=_LABEL, rock_ridge="1.09")
    for number, (name, content) in enumerate(files.items()):
        path = "/ISOLINUX.BIN;1" if name == _LOADER else f"/F{number}.;1"
        image.add_fp(io.BytesIO(content), len(content), path, rr_name=name)
    _add_tree(image, root)
    image.add_eltorito(
        "/ISOLINUX.BIN;1", "/BOOT.CAT;1", rr_bootcatname="boot.cat",
        boot_load_size=4, boot_info_table=True,
    )  # fmt: skip
    image.add_isohybrid(mbr_id=_DISK_ID)
    image.write(str(target))
    image.close()
    _add_writable_partition(target)


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
    start = -(-target.stat().st_size // _MIB) * _MIB
    os.truncate(target, start + _WRITABLE_BYTES)
    _make_file_system(target, start)
    with target.open("r+b") as disk:
        disk.seek(_SECOND_PARTITION)
        # Its place in cylinders is nowhere looked at: all ones, which says that.
        entry = struct.pack("<B3sB3s", 0, b"\xff" * 3, _LINUX, b"\xff" * 3)
        disk.write(entry + struct.pack("<II", start // _SECTOR, _WRITABLE_BYTES // _SECTOR))


def _make_file_system(target: Path, start: int) -> None:
    """An empty ext4 file system in the last part of `target`."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    program = shutil.which("mke2fs", path=places)
    if program is None:
        raise DemoError("mke2fs is not on this machine", "install the package e2fsprogs")
    options = (*_MKE2FS[:-1], f"{_MKE2FS[-1]},offset={start}")
    done = subprocess.run(
        [program, *options, str(target), f"{_WRITABLE_BYTES // 1024}k"],
        capture_output=True, text=True, check=False, timeout=_MKE2FS_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise DemoError(f"mke2fs failed: {done.stderr.strip()}", "please report it")
