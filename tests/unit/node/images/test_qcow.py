"""Foreign headers are read before QEMU does; our own are what QEMU expects."""

import json
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from corral.node.images import qcow
from corral.node.images.error import ImageError
from corral.node.images.limits import Limits


def run(*command):
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.fixture
def inspect(tmp_path):
    def look(content, limits=None):
        path = tmp_path / "disk"
        path.write_bytes(content)
        return qcow.inspect(path, "the disk", limits or Limits())

    return look


@pytest.fixture
def header(shapes):
    """A header in a file as long as it says."""
    return lambda tail=b"", **changes: (shapes.qcow2_header(**changes) + tail).ljust(5 << 16, b"\0")


def test_other_content_counts_as_raw(inspect):
    assert inspect(b"x" * 1024) == qcow.Disk("raw", 1024)


@pytest.mark.parametrize(
    "option",
    ["compat=1.1", "compat=0.10", "cluster_size=2M", "cluster_size=512", "extended_l2=on",
     "compression_type=zstd"],
)  # fmt: skip
def test_images_created_by_qemu_are_accepted(tmp_path, option):
    path = tmp_path / "disk"
    run("qemu-img", "create", "-q", "-f", "qcow2", "-o", option, path, "10G")
    assert qcow.inspect(path, "it", Limits()) == qcow.Disk("qcow2", 10 << 30)


def test_snapshots_inside_are_accepted(tmp_path):
    path = tmp_path / "disk"
    run("qemu-img", "create", "-q", "-f", "qcow2", path, "10M")
    run("qemu-img", "snapshot", "-c", "one", path)
    assert qcow.inspect(path, "it", Limits()).virtual_size == 10 << 20


@pytest.mark.parametrize("options", [("-F", "raw", "-b", "/etc/passwd"),
                                     ("-o", "data_file=other")])  # fmt: skip
def test_references_to_other_files_are_rejected(tmp_path, options):
    path = tmp_path / "disk"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", *options, path, "10M"],
        check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    with pytest.raises(ImageError, match=r"has (a backing|an external data) file"):
        qcow.inspect(path, "it", Limits())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backing": 512}, "has a backing file"),
        ({"backing": 1 << 63}, "has a backing file"),
        ({"incompatible": 4}, "external data file"),
        ({"incompatible": 2}, "marked corrupt"),
        ({"incompatible": 1 << 40}, "features that are unknown"),
        ({"crypt": 1}, "is encrypted"),
        ({"crypt": 2}, "is encrypted"),
        ({"version": 1}, "qcow version 1"),
        ({"version": 9}, "qcow version 9"),
        ({"bits": 8}, "cluster bits 8"),
        ({"bits": 63}, "cluster bits 63"),
        ({"size": 0}, "claims a size of 0"),
        ({"size": 1 << 62}, "claims a size of 4611686018427387904 bytes"),
        ({"l1_entries": 1 << 30}, "L1 entries"),
        ({"l1": 1 << 40}, "L1 table outside"),
        ({"l1": 5}, "L1 table outside"),
        ({"refcount_clusters": 1 << 20}, "refcount table outside"),
        ({"refcounts": 1 << 62}, "refcount table outside"),
        ({"snapshots": 1 << 31, "snapshot_table": 1 << 16}, "snapshot table outside"),
        ({"refcount_order": 7}, "refcount order 7"),
        ({"length": 1 << 31}, "header length"),
        ({"length": 8}, "header length"),
    ],
)
def test_inconsistent_headers_are_rejected(inspect, header, changes, message):
    with pytest.raises(ImageError, match=message) as caught:
        inspect(header(**changes))
    assert caught.value.reason == "InvalidDisk"


@pytest.mark.parametrize(
    ("kind", "message"), [(0x44415441, "external data file"), (0x0537BE77, "is encrypted")]
)
def test_inconsistent_header_extensions_are_rejected(inspect, header, kind, message):
    harmless = struct.pack(">II", 0x6803F857, 5) + bytes(8)
    with pytest.raises(ImageError, match=message):
        inspect(header(harmless + struct.pack(">II", kind, 8) + b"/etc/pas"))


def test_header_extensions_are_read_within_the_first_cluster_only(inspect, header):
    assert inspect(header(struct.pack(">II", 1, 0xFFFFFFF0)))
    assert inspect(header(struct.pack(">II", 1, 0) * 8000))


def test_a_truncated_header_is_rejected(inspect, shapes):
    for length in (4, 71, 80):
        with pytest.raises(ImageError, match="ends in its header"):
            inspect(shapes.qcow2_header()[:length])


@pytest.mark.parametrize("content", [b"", b"hello", b"x" * 513])
def test_other_file_types_are_rejected(inspect, content):
    with pytest.raises(ImageError, match="is not a disk: its"):
        inspect(content)


@pytest.mark.parametrize(
    ("magic", "kind"), [(b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"\x1f\x8b", "gzip")]
)
def test_other_formats_are_named(inspect, magic, kind):
    with pytest.raises(ImageError, match=f"but {kind}") as caught:
        inspect(magic.ljust(512, b"\0"))
    assert "qemu-img convert" in caught.value.hint


def test_the_size_of_a_raw_disk_is_limited(inspect):
    with pytest.raises(ImageError, match="claims a size of 1024"):
        inspect(bytes(1024), Limits(virtual_bytes=512))


@pytest.mark.parametrize("size", [512, 1 << 20, (1 << 29) + 512, 5 << 30, 1 << 44, qcow.MAX_BYTES])
def test_written_images_are_accepted_by_qemu(tmp_path, size):
    path = tmp_path / "disk"
    qcow.create(path, size)
    report = json.loads(run("qemu-img", "check", "--output=json", "-f", "qcow2", path))
    assert (report["check-errors"], report.get("leaks", 0), report.get("corruptions", 0)) == (
        0,
        0,
        0,
    )
    assert json.loads(run("qemu-img", "info", "--output=json", path))["virtual-size"] == size
    assert qcow.inspect(path, "it", Limits(virtual_bytes=qcow.MAX_BYTES)).virtual_size == size
    assert [each.name for each in tmp_path.iterdir()] == ["disk"]


def test_written_images_can_be_resized(tmp_path):
    path = tmp_path / "disk"
    qcow.create(path, 3 << 30)
    run("qemu-io", "-f", "qcow2", "-c", "write -P 1 0 1M", "-c", "write -P 2 2900M 1M", path)
    run("qemu-io", "-f", "qcow2", "-c", "read -P 1 0 1M", "-c", "read -P 2 2900M 1M", path)
    run("qemu-img", "check", "-q", "-f", "qcow2", path)


def test_the_backing_file_of_an_overlay_is_relative(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "base").write_bytes(b"z" * (1 << 20))
    qcow.create(tmp_path / "one" / "top", 1 << 20, backing=Path("base"), backing_format="raw")
    (tmp_path / "one").rename(tmp_path / "two")
    run("qemu-io", "-r", "-f", "qcow2", "-c", "read -P 122 0 1M", tmp_path / "two" / "top")


def test_invalid_sizes_are_value_errors(tmp_path):
    for size in (0, -1, qcow.MAX_BYTES + 1):
        with pytest.raises(ValueError, match="out of qcow2's bounds"):
            qcow.create(tmp_path / "disk", size)


@settings(max_examples=100)
@given(changes=st.lists(st.tuples(st.integers(4, 199), st.integers(0, 255)), max_size=10))
def test_any_header_is_accepted_or_rejected(tmp_path_factory, shapes, changes):
    content = bytearray(shapes.qcow2_header().ljust(5 << 16, b"\0"))
    for position, value in changes:
        content[position] = value
    path = tmp_path_factory.mktemp("fuzz") / "disk"
    path.write_bytes(content)
    try:
        disk = qcow.inspect(path, "it", Limits())
    except ImageError:
        return
    assert disk.format == "qcow2"
    assert content[8:16] == bytes(8), "no backing file"
    assert not content[79] & 4, "no external data file"
