"""What the firmware, the boot loader and the guest look for on the disk is there."""

import io
import struct

import pycdlib
import pytest

from corral.node.images.demo import cpio, disk
from corral.node.images.demo.disk import write_disk
from corral.node.images.demo.errors import DemoError

# isohybrid wants to find its signature in the boot loader
LOADER = (bytes(64) + b"\xfb\xc0\x78\x70").ljust(4096, b"\0")
ROOT = cpio.complete(
    [cpio.file("bin/busybox", b"code", 0o755), cpio.link("bin/sh", "busybox"),
     cpio.directory("root", 0o700)]
)  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    target = tmp_path_factory.mktemp("disk") / "disk"
    write_disk(target, {"isolinux.bin": LOADER, "isolinux.cfg": b"settings"}, ROOT)
    return target.read_bytes()


def test_the_disk_boots_from_its_first_sector(written):
    assert len(written) % 2**20 == 0
    assert written[510:512] == b"\x55\xaa"
    assert written[32808:32812] == b"DEMO"


def test_it_holds_the_loaders_files_and_the_root_directory(written):
    image = pycdlib.PyCdlib()
    image.open_fp(io.BytesIO(written))

    def content(path):
        out = io.BytesIO()
        image.get_file_from_iso_fp(out, rr_path=path)
        return out.getvalue()

    assert content("/isolinux.cfg") == b"settings"
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


def test_a_machine_without_the_program_that_makes_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.shutil, "which", lambda *_, **__: None)
    with pytest.raises(DemoError, match="install the package e2fsprogs"):
        write_disk(tmp_path / "disk", {"isolinux.bin": LOADER}, ROOT)
