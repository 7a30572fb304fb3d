"""Volumes: made, found, filled, grown and removed."""

import fcntl
import os

import pytest

from corral.node.images import qcow
from corral.node.storage import (
    InsufficientSpace,
    InUse,
    NoSuchVolume,
    Storage,
    StorageError,
    disk as disks,
)
from corral.node.storage.disk_space import Space

MiB = 1 << 20
GiB = 1 << 30


def files_of(storage, handle):
    return sorted(each.name for each in storage.find(handle).directory.iterdir())


def fill(storage, handle, content=b"data", kind="raw"):
    work = storage.work_directory(handle)
    file = work / "content"
    if kind == "raw":
        file.write_bytes(content)
        os.truncate(file, 8 * MiB)
    else:
        qcow.create(file, 8 * MiB)
    return storage.populate(handle, file, kind)


def writing(path):
    """What a machine does with the disk that it is to write."""
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def test_a_volume_is_a_blank_disk_of_its_capacity_without_blocks(storage):
    made = storage.provision("pvc-1", GiB)
    assert made == storage.find("pvc-1")
    assert made.disk.format == "raw"
    assert made.disk.path.stat().st_size == GiB
    assert made.disk.path.stat().st_blocks == 0
    assert made.layers == ()
    assert made.volume_mode == "Filesystem"
    assert files_of(storage, "pvc-1") == ["disk-0.raw", "volume.json"]


def test_volumes_are_private(storage):
    made = storage.provision("pvc-1", GiB)
    assert made.directory.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in made.directory.iterdir()} == {0o600}


def test_sizes_are_rounded_up_to_whole_blocks(storage):
    assert storage.provision("pvc-1", 4097).capacity_bytes == 8192


def test_provisioning_is_idempotent(storage):
    fill(storage, storage.provision("pvc-1", GiB).handle)
    again = storage.provision("pvc-1", 2 * GiB)
    assert again.capacity_bytes == GiB
    with again.disk.path.open("rb") as file:
        assert file.read(4) == b"data"


@pytest.mark.parametrize("handle", ["", "..", "a/b", "../pvc-1", "A", "a" * 101, "-a", "a\n"])
def test_handles_cannot_escape_the_storage(storage, handle):
    with pytest.raises(StorageError):
        storage.provision(handle, GiB)
    assert storage.find(handle) is None
    with pytest.raises(NoSuchVolume):
        storage.work_directory(handle)
    storage.remove(handle)
    assert storage.usage().provisioned_bytes == 0


def test_another_process_finds_the_same_volumes(storage, tmp_path):
    made = storage.provision("pvc-1", GiB, "Block")
    other = Storage(tmp_path / "storage")
    assert other.find("pvc-1") == made
    assert other.id == storage.id


def test_a_removed_volume_is_gone_completely(storage, tmp_path):
    storage.provision("pvc-1", GiB)
    storage.work_directory("pvc-1").joinpath("half").write_bytes(b"x")
    storage.remove("pvc-1")
    storage.remove("pvc-1")
    assert storage.find("pvc-1") is None
    left = [each for each in (tmp_path / "storage").rglob("*") if each.is_file()]
    assert [each.name for each in left] == [".lock"]


def test_a_volume_in_use_is_not_removed(storage):
    made = storage.provision("pvc-1", GiB)
    held = writing(made.disk.path)
    with pytest.raises(InUse):
        storage.remove("pvc-1")
    assert storage.find("pvc-1") == made
    os.close(held)
    storage.remove("pvc-1")


@pytest.mark.parametrize("lost", ["disk-0.raw", "volume.json"])
def test_a_volume_that_has_lost_a_file_can_be_removed(storage, lost):
    directory = storage.provision("pvc-1", GiB).directory
    (directory / lost).unlink()
    storage.remove("pvc-1")
    assert not directory.exists()


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_adopted_content_has_the_capacity_of_the_volume(storage, kind, judge):
    storage.provision("pvc-1", 64 * MiB)
    filled = fill(storage, "pvc-1", kind=kind)
    assert filled.disk.format == kind
    assert judge.info(filled.disk.path)["virtual-size"] == 64 * MiB
    assert files_of(storage, "pvc-1") == [f"disk-0.{kind}", "volume.json"]


def test_content_larger_than_its_volume_is_rejected(storage):
    storage.provision("pvc-1", MiB)
    with pytest.raises(StorageError, match="8388608 bytes, and the volume 1048576"):
        fill(storage, "pvc-1")
    assert files_of(storage, "pvc-1") == ["disk-0.raw", "volume.json"]


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_the_disk_size_is_reserved_during_an_adoption(storage, kind, judge, monkeypatch):
    storage.provision("pvc-1", GiB)
    sync = disks.sync

    def meanwhile(path):
        sync(path)
        storage.reserve("pvc-1", 2 * GiB)

    monkeypatch.setattr(disks, "sync", meanwhile)
    made = fill(storage, "pvc-1", kind=kind)
    assert judge.info(made.disk.path)["virtual-size"] == made.capacity_bytes == 2 * GiB


def test_blocks_of_an_image_are_reserved_as_if_copied(storage):
    storage.provision("pvc-1", 8 * MiB)
    file = storage.work_directory("pvc-1") / "content"
    file.write_bytes(os.urandom(8 * MiB))
    storage.populate("pvc-1", file, "raw", shares_blocks=True)
    assert storage.usage().growth_bytes == 8 * MiB


def test_a_disk_with_a_backing_file_is_not_adopted(storage, tmp_path):
    storage.provision("pvc-1", 64 * MiB)
    file = storage.work_directory("pvc-1") / "content"
    qcow.create(file, MiB, backing=tmp_path / "secret", backing_format="raw")
    with pytest.raises(StorageError, match="backing file"):
        storage.populate("pvc-1", file, "qcow2")


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_a_volume_grows_with_its_content(storage, kind, judge):
    storage.provision("pvc-1", 64 * MiB)
    fill(storage, "pvc-1", kind=kind)
    grown = storage.resize("pvc-1", 128 * MiB)
    assert grown.capacity_bytes == 128 * MiB
    assert judge.info(grown.disk.path)["virtual-size"] == 128 * MiB
    assert storage.resize("pvc-1", MiB).capacity_bytes == 128 * MiB


def test_expansion_of_a_volume_in_use_is_reserved_and_left_to_its_machine(storage):
    made = storage.provision("pvc-1", 64 * MiB)
    held = writing(made.disk.path)
    with pytest.raises(InUse):
        storage.resize("pvc-1", 128 * MiB)
    assert storage.find("pvc-1").capacity_bytes == 128 * MiB
    assert made.disk.path.stat().st_size == 64 * MiB
    os.close(held)
    storage.resize("pvc-1", 128 * MiB)
    assert made.disk.path.stat().st_size == 128 * MiB


def test_reservations_are_limited_to_the_free_space(storage, space):
    space["free"] = 10 * GiB
    storage.provision("pvc-1", 6 * GiB)
    with pytest.raises(InsufficientSpace, match="pvc-2"):
        storage.provision("pvc-2", 6 * GiB)
    assert storage.find("pvc-2") is None
    with pytest.raises(InsufficientSpace):
        storage.reserve("pvc-1", 12 * GiB)
    storage.provision("pvc-2", 2 * GiB)


def test_an_overcommitted_storage_has_no_capacity_left(storage, space):
    space["free"] = 10 * GiB
    storage.provision("pvc-1", 6 * GiB)
    space["free"] = GiB
    with pytest.raises(InsufficientSpace, match=r"needs .*, and 0\S* .*left for new volumes"):
        storage.provision("pvc-2", MiB)


def test_a_symlink_in_place_of_a_disk_is_not_followed(storage, tmp_path):
    path = storage.provision("pvc-1", MiB).disk.path
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        storage.resize("pvc-1", 2 * MiB)
    assert elsewhere.stat().st_size == MiB


def test_occupied_blocks_are_not_reserved_twice(storage, space):
    made = storage.provision("pvc-1", 6 * MiB)
    with made.disk.path.open("r+b") as file:
        file.write(bytes(range(256)) * 4096 * 4)
    room = storage.usage()
    assert room.used_bytes >= 4 * MiB
    assert room.growth_bytes == 6 * MiB - made.disk.path.stat().st_blocks * 512
    assert room.provisioned_bytes == 6 * MiB


def test_overcommit_is_configurable(storage, space):
    space |= {"total": 0, "free": 10 * GiB}
    storage.provision("pvc-1", 15 * GiB, overcommit_percent=50)
    with pytest.raises(InsufficientSpace):
        storage.provision("pvc-2", GiB, overcommit_percent=50)


@pytest.mark.parametrize(("total", "available"), [(100 * GiB, 98 * GiB), (20 * GiB, 19 * GiB)])
def test_a_part_of_the_file_system_is_never_reserved(total, available):
    assert Space(total=total, free=total).available == available
    assert Space(total=total, free=0).available == 0


def test_foreign_files_in_a_volume_stay(storage):
    made = storage.provision("pvc-1", 8 * MiB)
    (made.directory / "memory").write_bytes(b"m" * MiB)
    storage.sweep()
    assert (made.directory / "memory").exists()
    assert not storage.is_blank("pvc-1")
    assert storage.usage().used_bytes >= MiB
