"""Making qcow2 files plain: what stays as it is, what is written anew, what is refused."""

import random
import struct
import subprocess
import tracemalloc
from contextlib import suppress

import pytest

from corral.node.images import qcow, qcow_rewrite
from corral.node.images.error import ImageError
from corral.node.images.limits import Limits

MiB = 1 << 20
CLUSTER = 1 << 16


def qemu_img(*arguments):
    return subprocess.run(("qemu-img", *arguments), check=False, capture_output=True)


@pytest.fixture
def raw(tmp_path):
    """A disk of 1100 MiB, so that it has three tables, with a few clusters in each."""
    path = tmp_path / "disk.raw"
    letters = bytes(random.Random(2).choices(b"abc", k=3 * CLUSTER))
    with path.open("wb") as file:
        for position in (0, 5 * MiB, 600 * MiB, 1099 * MiB):
            file.seek(position)
            file.write(letters)
        file.truncate(1100 * MiB)
    return path


@pytest.fixture
def disk(raw, tmp_path):
    path = tmp_path / "disk.qcow2"
    assert not qemu_img("convert", "-O", "qcow2", raw, path).returncode
    return path


def is_sound(path):
    return not qemu_img("check", "-f", "qcow2", path).returncode


def is_the_same(path, raw):
    return not qemu_img("compare", "-f", "qcow2", "-F", "raw", path, raw).returncode


def test_a_disk_is_converted_in_place(disk, raw):
    before = disk.stat().st_ino
    qcow_rewrite.make_plain(disk, "disk")
    assert disk.stat().st_ino == before
    assert is_sound(disk)
    assert is_the_same(disk, raw)
    assert qcow.inspect(disk, "disk", Limits()).virtual_size == 1100 * MiB


def test_a_conversion_can_be_repeated(disk, raw):
    qcow_rewrite.make_plain(disk, "disk")
    qcow_rewrite.make_plain(disk, "disk")
    assert is_sound(disk)
    assert is_the_same(disk, raw)


def test_a_converted_disk_is_writable(disk, raw, tmp_path):
    qcow_rewrite.make_plain(disk, "disk")
    write = "write -P 7 100M 70M"
    done = subprocess.run(("qemu-io", "-c", write, disk), check=False, capture_output=True)
    assert not done.returncode
    assert is_sound(disk)


@pytest.mark.parametrize("options", ["compat=0.10", "lazy_refcounts=on", "preallocation=metadata"])
def test_other_qemu_images_are_converted(raw, tmp_path, options):
    path = tmp_path / "other.qcow2"
    assert not qemu_img("convert", "-O", "qcow2", "-o", options, raw, path).returncode
    qcow_rewrite.make_plain(path, "disk")
    assert is_sound(path)
    assert is_the_same(path, raw)


def test_wrong_refcounts_are_rebuilt(disk, raw):
    with disk.open("r+b") as file:
        file.seek(48)
        (table,) = struct.unpack(">Q", file.read(8))
        file.seek(table)
        (block,) = struct.unpack(">Q", file.read(8))
        file.seek(block)
        file.write(bytes(4096))  # QEMU would give a guest clusters that are another's
    assert not is_sound(disk)
    qcow_rewrite.make_plain(disk, "disk")
    assert is_sound(disk)
    assert is_the_same(disk, raw)


def test_the_original_header_is_replaced(disk):
    with disk.open("r+b") as file:
        file.seek(512)
        file.write(b"a stranger was here")
    qcow_rewrite.make_plain(disk, "disk")
    assert b"a stranger" not in disk.read_bytes()[:CLUSTER]


@pytest.mark.parametrize(
    "options",
    [("-c",), ("-o", "cluster_size=4k"), ("-o", "extended_l2=on")],
    ids=["compressed", "small clusters", "long entries"],
)
def test_unusual_images_are_left_to_qemu_img(raw, tmp_path, options):
    path = tmp_path / "other.qcow2"
    assert not qemu_img("convert", "-O", "qcow2", *options, raw, path).returncode
    before = path.read_bytes()
    with pytest.raises(qcow_rewrite.NotPlain):
        qcow_rewrite.make_plain(path, "disk")
    assert path.read_bytes() == before


def test_images_with_snapshots_are_left_to_qemu_img(disk):
    assert not qemu_img("snapshot", "-c", "one", disk).returncode
    with pytest.raises(qcow_rewrite.NotPlain):
        qcow_rewrite.make_plain(disk, "disk")


def test_images_with_shared_clusters_are_left_to_qemu_img(disk):
    first, second = second_table(disk)
    patch(disk, second, struct.pack(">QQ", first, first))
    with pytest.raises(qcow_rewrite.NotPlain):
        qcow_rewrite.make_plain(disk, "disk")


@pytest.mark.parametrize("options", [(), ("-c",)], ids=["plain", "compressed"])
def test_a_truncated_image_is_rejected(raw, tmp_path, options):
    path = tmp_path / "cut.qcow2"
    assert not qemu_img("convert", "-O", "qcow2", *options, raw, path).returncode
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3 * CLUSTER)
    with pytest.raises(ImageError, match="disk is a damaged qcow2 file: it is cut short"):
        qcow_rewrite.make_plain(path, "disk")


def test_incomplete_tables_are_rewritten(disk, raw):
    first, second = second_table(disk)
    patch(disk, second, struct.pack(">Q", first & ~qcow_rewrite._COPIED))
    assert not is_sound(disk)
    qcow_rewrite.make_plain(disk, "disk")
    assert is_sound(disk)
    assert is_the_same(disk, raw)


@pytest.mark.parametrize("cluster_bits", [9, 16, 21])
def test_large_tables_do_not_exhaust_memory(tmp_path, cluster_bits):
    """As a stranger may make them: in a file of next to nothing there is a hole for each."""
    cluster = 1 << cluster_bits
    entries = min(64 * MiB // cluster, cluster // 8)
    size = entries * cluster // 8 * cluster
    path = tmp_path / "vast.qcow2"
    tables = [(2 + number) * cluster for number in range(entries)]
    header = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, cluster_bits, size, 0, entries, cluster, 0, 0, 0, 0
    )
    parts = {0: header, cluster: struct.pack(f">{entries}Q", *tables)}
    with path.open("wb") as file:
        for position, content in parts.items():
            file.seek(position)
            file.write(content)
        file.truncate((2 + entries) * cluster)
    tracemalloc.start()
    with suppress(qcow_rewrite.NotPlain):
        qcow_rewrite.make_plain(path, "disk")
    assert tracemalloc.get_traced_memory()[1] < 16 * MiB
    tracemalloc.stop()


def second_table(disk):
    """The first cluster of the guest, and where the table is that says so."""
    with disk.open("rb") as file:
        file.seek(40)
        (first_table,) = struct.unpack(">Q", file.read(8))
        file.seek(first_table)
        offset = struct.unpack(">Q", file.read(8))[0] & qcow_rewrite._OFFSET
        file.seek(offset)
        return struct.unpack(">Q", file.read(8))[0], offset


def patch(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)
