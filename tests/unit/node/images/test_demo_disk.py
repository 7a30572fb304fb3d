"""What the firmware, the boot loader and the guest look for on the disk is there."""

import io

import pycdlib

from corral.node.images.demo.disk import write_disk


def test_the_disk_boots_from_its_first_sector_and_holds_the_system(tmp_path):
    target = tmp_path / "disk"
    write_disk(
        target,
        # isohybrid wants to find its signature in the boot loader
        loader=(bytes(64) + b"\xfb\xc0\x78\x70").ljust(4096, b"\0"),
        library=b"library",
        kernel=b"kernel",
        initramfs=b"initramfs",
        command_line="console=ttyS0",
        system={"program": b"code"},
    )
    disk = target.read_bytes()
    assert len(disk) % 2**20 == 0
    assert disk[510:512] == b"\x55\xaa"
    assert disk[32808:32812] == b"DEMO"
    image = pycdlib.PyCdlib()
    image.open_fp(io.BytesIO(disk))

    def content(path):
        out = io.BytesIO()
        image.get_file_from_iso_fp(out, rr_path=path)
        return out.getvalue()

    assert content("/vmlinuz") == b"kernel"
    assert content("/initrd") == b"initramfs"
    assert content("/system/program") == b"code"
    assert b"LINUX /vmlinuz\n" in content("/isolinux.cfg")
    assert b"APPEND console=ttyS0\n" in content("/isolinux.cfg")
    assert image.get_record(rr_path="/system/program").rock_ridge.get_file_mode() == 0o100755
