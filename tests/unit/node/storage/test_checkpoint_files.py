"""A checkpoint on disk: what is linked, what is copied, and what shows that it was changed."""

import os

import pytest

from corral.node.hypervisor import MemoryMisfitError
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles, copied_bytes

MADE = Checkpoint(instance="default/vm", identity="uid", shape=("QEMU 7.2",))


@pytest.fixture
def folder(tmp_path):
    """The disks of a machine."""
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "root.image.qcow2").write_bytes(b"the image")
    (folder / "root.qcow2").write_bytes(b"the overlay")
    return folder


@pytest.fixture
def files(tmp_path, folder):
    files = CheckpointFiles(tmp_path / "checkpoints" / "uid")
    files.begin()
    return files


@pytest.fixture
def sealed(files, folder):
    return write(files, folder)


def write(files, folder):
    files.memory.write_bytes(b"all of its memory")
    descriptor = files.open_devices()
    os.write(descriptor, b"its devices")
    os.close(descriptor)
    files.copy_disks(sorted(folder.iterdir()))
    return files.seal(MADE)


def test_a_checkpoint_without_a_record_is_none(files):
    assert files.read() is None


def test_a_checkpoint_reads_back_as_written(files, sealed):
    assert files.read() == sealed
    assert set(sealed.disks) == {"root.image.qcow2", "root.qcow2"}
    files.check(sealed)
    assert not files.writer.exists()


def test_only_its_owner_reaches_the_files(files, sealed):
    assert files.directory.stat().st_mode & 0o777 == 0o700


def test_a_fork_has_copies_of_the_disks_and_shares_the_image(files, sealed, folder, tmp_path):
    own = tmp_path / "fork"
    files.place_disks(sealed, own)
    files.place_disks(sealed, own)
    (own / "root.qcow2").write_bytes(b"changed by the fork")
    files.check(sealed)
    assert (folder / "root.qcow2").read_bytes() == b"the overlay"
    assert (own / "root.image.qcow2").samefile(folder / "root.image.qcow2")


def test_images_are_not_counted_as_copied(folder):
    with (folder / "big.image.raw").open("wb") as file:
        file.write(b"x" * (1 << 20))
    assert copied_bytes(folder.iterdir()) < 1 << 20


@pytest.mark.parametrize("name", ["memory", "devices", "disks/root.qcow2"])
@pytest.mark.parametrize("damage", ["cut", "changed", "removed"])
def test_damage_is_found(files, sealed, name, damage):
    file = files.directory / name
    match damage:
        case "cut":
            os.truncate(file, 3)
        case "changed":
            file.write_bytes(b"x" * file.stat().st_size)
        case "removed":
            file.unlink()
    with pytest.raises(MemoryMisfitError):
        files.check(sealed)


def test_a_new_attempt_removes_what_an_earlier_one_has_left(files, sealed):
    files.begin()
    assert files.read() is None
    assert not files.devices.exists()
    assert files.memory.stat().st_size == 0


def test_a_removed_checkpoint_leaves_nothing(files, sealed):
    files.remove()
    assert not files.directory.exists()
    assert files.read() is None
    files.remove()
