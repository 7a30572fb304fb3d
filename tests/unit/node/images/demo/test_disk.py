"""What the firmware, the boot loader and the guest look for on the disk is there."""

import io
import struct

import pycdlib
import pytest

from corral.node.images.demo import cpio, disk, loader
from corral.node.images.demo.disk import write_disk
from corral.node.images.demo.errors import DemoError
from corral.node.images.demo.kernel import Kernel, Part

KERNELS = [
    loader.image(Kernel(bytes(1024), (Part(0x100000, content),), 0), ["console=ttyS0"])
    for content in (b"wide" * 1000, b"other")
]
ROOT = cpio.complete(
    [cpio.file("bin/busybox", b"code", 0o755), cpio.link("bin/sh", "busybox"),
     cpio.directory("root", 0o700)]
)  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    target = tmp_path_factory.mktemp("disk") / "disk"
    write_disk(target, KERNELS, ROOT)
    return target.read_bytes()


def test_the_disk_boots_from_its_first_sector(written):
    assert len(written) % 2**20 == 0
    assert written[510:512] == b"\x55\xaa"
    assert written[32808:32812] == b"DEMO"
    assert written.startswith(loader.BOOT_SECTOR)
    status, kind, start, sectors = struct.unpack_from("<B3xB3xII", written, 446)
    assert (status, kind, start) == (0x80, 0x17, 0)
    assert sectors * 512 <= struct.unpack_from("<I", written, 446 + 16 + 8)[0] * 512


def test_the_loader_follows_the_first_sector_and_boots_from_a_cd_rom_too(written):
    program = written[512 : 512 + loader.SIZE]
    assert program.count(loader.BOOT_SECTOR) == 0
    assert program.startswith(loader.program((KERNELS[0], 0), (KERNELS[1], 0))[:0x200])
    (catalog,) = struct.unpack_from("<I", written, 17 * 2048 + 0x47)
    entry = written[catalog * 2048 + 32 :][:32]
    bootable, segment, sectors, place = struct.unpack_from("<BxHxxHI", entry)
    assert (bootable, segment * 16, sectors * 512) == (0x88, loader.ADDRESS, loader.SIZE)
    assert written[place * 2048 :].startswith(program)
    # Its tables say where the kernels are.
    for at, text in ((0x280 + 24, b"wide" * 1000), (0x540 + 24, b"other")):
        block, _, address = struct.unpack_from("<III", program, at)
        assert (address, written[block * 2048 :][: len(text)]) == (0x100000, text)


def test_it_holds_the_loaders_files_and_the_root_directory(written):
    image = pycdlib.PyCdlib()
    image.open_fp(io.BytesIO(written))

    def content(path):
        out = io.BytesIO()
        image.get_file_from_iso_fp(out, rr_path=path)
        return out.getvalue()

    assert content("/kernel64") == KERNELS[0].content
    assert content("/root/bin/busybox") == b"code"
    found = {
        path: image.get_record(rr_path=path).rock_ridge
        for path in ("/root/bin/busybox", "/root/bin/sh", "/root/root")
    }
    assert found["/root/bin/busybox"].get_file_mode() == 0o100755
    assert found["/root/root"].get_file_mode() == 0o040700
    assert found["/root/bin/sh"].symlink_path() == b"busybox"


def test_its_second_partition_is_an_empty_file_system_that_reaches_to_its_end(written):
    status, kind, start, sectors = struct.unpack_from("<B3xB3xII", written, 446 + 16)
    assert (status, kind) == (0, 0x83)
    assert (start + sectors) * 512 == len(written)
    magic = written[start * 512 + 1024 + 56 : start * 512 + 1024 + 58]
    assert magic == b"\x53\xef"


def test_a_missing_mkfs_is_an_error_that_names_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.shutil, "which", lambda *_, **__: None)
    with pytest.raises(DemoError, match="install the package e2fsprogs"):
        write_disk(tmp_path / "disk", KERNELS, ROOT)
