"""Clones: what they hold, what they cost, and what they leave alone."""

import errno
import os
import shutil
import subprocess

import pytest
from tests.unit.node.storage.test_storage import GiB, MiB, files_of, writing

from corral.node.images import qcow
from corral.node.storage import InsufficientSpace, InUse, NoSuchVolume, StorageError, clone

SIZE = 2 * MiB


def write(volume, offset, text):
    """What a guest does with its disk."""
    if volume.disk.format == "raw":
        with volume.disk.path.open("r+b") as file:
            file.seek(offset)
            file.write(text.encode() * 65536)
        return
    commands = f"write -P {ord(text)} {offset} 65536", "flush"
    subprocess.run(
        ("qemu-io", "-f", "qcow2", "-c", commands[0], "-c", commands[1], volume.disk.path),
        check=True,
        capture_output=True,
    )


def content(volume, tmp_path):
    """The disk as its guest sees it: one letter for each 64 KiB that somebody wrote."""
    disk = volume.disk.path
    if volume.disk.format != "raw":
        disk = tmp_path / "seen"
        clone.copy(volume, disk)
    seen = disk.read_bytes()
    return {at // 65536: chr(seen[at]) for at in range(0, len(seen), 65536) if seen[at]}


@pytest.fixture
def golden(storage):
    storage.provision("golden", SIZE)
    write(storage.find("golden"), 0, "g")
    return storage.find("golden")


def cloned(storage, source, target, size=SIZE):
    storage.provision(target, size)
    return storage.clone(source, target)


def test_a_clone_has_the_content_of_its_source(storage, golden, tmp_path):
    made = cloned(storage, "golden", "pvc-1")
    assert made == storage.find("pvc-1")
    assert content(made, tmp_path) == {0: "g"}


def test_source_and_clone_are_independent(storage, golden, tmp_path):
    made = cloned(storage, "golden", "pvc-1")
    write(made, 65536, "c")
    write(storage.find("golden"), 2 * 65536, "s")
    assert content(storage.find("pvc-1"), tmp_path) == {0: "g", 1: "c"}
    assert content(storage.find("golden"), tmp_path) == {0: "g", 2: "s"}


def test_clones_of_one_source_share_a_layer(storage, golden):
    volumes = [cloned(storage, "golden", f"pvc-{number}") for number in range(5)]
    assert files_of(storage, "golden") == ["disk-1.qcow2", "layer-0.raw", "volume.json"]
    inodes = {each.layers[0].path.stat().st_ino for each in (storage.find("golden"), *volumes)}
    assert len(inodes) == 1
    assert all(len(each.layers) == 1 for each in volumes)


def test_a_layer_is_counted_once(storage):
    storage.provision("golden", 64 * MiB)
    disk = storage.find("golden").disk.path
    disk.write_bytes(os.urandom(32 * MiB))
    os.truncate(disk, 64 * MiB)
    before = storage.usage().used_bytes
    for number in range(10):
        cloned(storage, "golden", f"pvc-{number}", 64 * MiB)
    assert storage.usage().used_bytes - before <= 10 * MiB


def test_a_clone_may_be_larger_than_its_source(storage, golden, tmp_path, judge):
    made = cloned(storage, "golden", "pvc-1", 2 * SIZE)
    assert judge.info(made.disk.path)["virtual-size"] == 2 * SIZE
    write(made, SIZE, "b")
    assert content(made, tmp_path) == {0: "g", SIZE // 65536: "b"}


def test_a_smaller_clone_is_rejected(storage, golden):
    storage.provision("pvc-1", SIZE // 2)
    with pytest.raises(StorageError, match="as much storage as the source"):
        storage.clone("golden", "pvc-1")


def test_missing_volumes_cannot_be_cloned(storage, golden):
    with pytest.raises(NoSuchVolume):
        storage.clone("golden", "pvc-1")
    with pytest.raises(NoSuchVolume):
        storage.clone("pvc-1", "golden")


def test_a_source_in_use_is_not_cloned(storage, golden):
    storage.provision("pvc-1", SIZE)
    held = writing(golden.disk.path)
    with pytest.raises(InUse, match="golden"):
        storage.clone("golden", "pvc-1")
    assert storage.find("golden") == golden
    os.close(held)
    storage.clone("golden", "pvc-1")


def test_a_layer_has_another_name_than_the_disk_had(storage, golden):
    cloned(storage, "golden", "pvc-1")
    assert not golden.disk.path.exists()


def test_a_clone_outlives_its_source(storage, golden, tmp_path):
    made = cloned(storage, "golden", "pvc-1")
    storage.remove("golden")
    assert content(made, tmp_path) == {0: "g"}
    storage.remove("pvc-1")
    assert storage.usage().used_bytes == 0


def test_a_repeated_clone_has_the_current_content(storage, golden, tmp_path):
    write(cloned(storage, "golden", "pvc-1"), 0, "x")
    write(storage.find("golden"), 65536, "h")
    made = storage.clone("golden", "pvc-1")
    assert content(made, tmp_path) == {0: "g", 1: "h"}
    assert files_of(storage, "pvc-1") == [
        "disk-2.qcow2", "layer-0.raw", "layer-1.qcow2", "volume.json",
    ]  # fmt: skip


def test_the_number_of_layers_is_limited(storage, golden, tmp_path):
    source, expected = "golden", {0: "g"}
    for number in range(1, clone.MAX_LAYERS + 3):
        write(cloned(storage, source, f"pvc-{number}"), number * 65536, "c")
        source, expected = f"pvc-{number}", expected | {number: "c"}
        assert len(storage.find(source).layers) <= clone.MAX_LAYERS
        assert content(storage.find(source), tmp_path) == expected


def test_without_hard_links_a_clone_is_a_copy(storage, golden, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no hard links here")

    real = os.link
    monkeypatch.setattr(os, "link", lambda a, b: refuse() if "layer" in str(b) else real(a, b))
    made = cloned(storage, "golden", "pvc-1")
    assert content(made, tmp_path) == {0: "g"}
    assert files_of(storage, "golden") == ["disk-0.raw", "volume.json"]


def reflinks(monkeypatch):
    """A file system that has them: a copy of few bytes is as good."""

    def reflink(source, target):
        shutil.copyfile(source, target)
        return True

    monkeypatch.setattr(clone, "reflink", reflink)


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_with_reflinks_a_clone_has_no_layers(storage, kind, tmp_path, monkeypatch):
    storage.provision("golden", SIZE)
    if kind == "qcow2":
        file = storage.work_directory("golden") / "file"
        qcow.create(file, SIZE)
        storage.populate("golden", file, "qcow2")
    write(storage.find("golden"), 0, "g")
    reflinks(monkeypatch)
    made = cloned(storage, "golden", "pvc-1", 2 * SIZE)
    write(made, 65536, "c")
    assert content(made, tmp_path) == {0: "g", 1: "c"}
    assert content(storage.find("golden"), tmp_path) == {0: "g"}
    assert files_of(storage, "pvc-1") == [f"disk-0.{kind}", "volume.json"]


def test_shared_blocks_are_reserved_as_if_copied(storage, golden, monkeypatch):
    reflinks(monkeypatch)
    cloned(storage, "golden", "pvc-1")
    assert storage.usage().growth_bytes == 2 * SIZE


def test_a_source_is_not_frozen_if_a_new_overlay_fails(storage, space):
    storage.provision("golden", GiB)
    with storage.find("golden").disk.path.open("r+b") as file:
        file.write(os.urandom(4 * MiB))
    storage.provision("pvc-1", GiB)
    space |= {"total": 0, "free": storage.usage().growth_bytes + MiB}
    with pytest.raises(InsufficientSpace):
        storage.clone("golden", "pvc-1")
    assert storage.find("golden").layers == ()


def test_a_blank_source_is_unchanged(storage, tmp_path):
    storage.provision("golden", SIZE)
    made = cloned(storage, "golden", "pvc-1")
    assert (
        files_of(storage, "golden") == files_of(storage, "pvc-1") == ["disk-0.raw", "volume.json"]
    )
    assert made.populated
    write(made, 0, "x")
    storage.provision("blank", SIZE)
    assert content(storage.clone("blank", "pvc-1"), tmp_path) == {}


@pytest.mark.parametrize("shared", ["golden", "pvc-1"])
def test_shared_volumes_stay_raw(storage, shared, tmp_path):
    for handle in ("golden", "pvc-1"):
        storage.provision(handle, SIZE, shareable=handle == shared)
    write(storage.find("golden"), 0, "g")
    storage.clone("golden", "pvc-1")
    assert content(storage.find("pvc-1"), tmp_path) == {0: "g"}
    assert storage.find(shared).disk.format == "raw"
    assert storage.find(shared).layers == ()


def test_a_qcow2_disk_is_not_reflinked_into_a_shared_volume(storage, monkeypatch):
    storage.provision("golden", SIZE)
    file = storage.work_directory("golden") / "file"
    qcow.create(file, SIZE)
    write(storage.populate("golden", file, "qcow2"), 0, "g")
    reflinks(monkeypatch)
    storage.provision("pvc-1", SIZE, shareable=True)
    assert storage.clone("golden", "pvc-1").disk.format == "raw"


def test_a_qcow2_file_becomes_raw_in_a_shared_volume(storage):
    storage.provision("pvc-1", SIZE, shareable=True)
    file = storage.work_directory("pvc-1") / "file"
    qcow.create(file, SIZE)
    assert storage.populate("pvc-1", file, "qcow2").disk.format == "raw"
