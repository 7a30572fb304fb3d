"""What the guest's disk holds, of packages that hold no more than a word each."""

import pytest

from corral.node.images.demo import contents
from corral.node.images.demo.errors import DemoError

BUSYBOX = b"code\0[\0[[\0awk\0busybox\0sh\0wc\0wget\0which\0\0rest\0wget\0"
RELEASE = "6.1.0-1-cloud-amd64"


def package(**more):
    paths = [*contents._PROGRAMS, *(f"usr/lib/{name}" for name in contents._LIBRARIES)]
    files = dict.fromkeys(paths, b"program")
    files |= {"bin/busybox": BUSYBOX, f"boot/vmlinuz-{RELEASE}": b"kernel"}
    files |= {
        f"lib/modules/{RELEASE}/kernel/{name}.ko": b"\0depends=\0alias=fs-" + name.encode() + b"\0"
        for name in ("isofs", "vfat")
    }
    return files | more


def test_the_root_holds_programs_links_modules_and_the_guests_own_files():
    root = {entry.path: entry for entry in contents.root(package())}
    assert root["sbin/dropbear"].content == b"program"
    assert root["bin/awk"].content == b"busybox"
    assert root["sbin/modprobe"].content == b"/bin/busybox"
    assert f"lib/modules/{RELEASE}/vfat.ko" in root
    assert b"alias fs-vfat vfat" in root[f"lib/modules/{RELEASE}/modules.alias"].content
    assert root["sbin/init"].mode == 0o100755
    assert root["usr/lib/demo/reseed"].mode == 0o100755
    assert root["usr/lib/demo/reseed"].content.startswith(b"\x7fELF")
    assert root["etc/shadow"].mode == 0o100600


def test_its_wget_is_the_script_that_knows_time_limits():
    root = {entry.path: entry for entry in contents.root(package())}
    assert b"\0wgeT\0which\0\0rest\0wget\0" in root["bin/busybox"].content
    assert root["bin/wget"].content.startswith(b"#!/bin/sh")


def test_the_initramfs_holds_only_modules_for_the_disk():
    archive = contents.boot(package(), "cloud-amd64").initramfs
    assert b"isofs.ko" in archive
    assert b"vfat.ko" not in archive
    assert b"switch_root" in archive


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("bin/busybox", "0 files bin/busybox"),
        ("usr/lib/libc.so.6", r"lack the library libc\.so\.6"),
    ],
)
def test_an_error_names_the_missing_file_of_a_package(missing, said):
    files = package()
    del files[missing]
    with pytest.raises(DemoError, match=said):
        contents.root(files)
