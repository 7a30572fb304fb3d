"""A checkpoint on disk: what is linked, what is copied, and what shows that it was changed."""

import ctypes
import mmap
import os

import pytest

from corral.node.hypervisor import MemoryDamagedError
from corral.node.storage.checkpoint_files import Checkpoint, CheckpointFiles, copied_bytes

MADE = Checkpoint(
    key="default/base",
    instance="default/vm",
    identity="uid",
    taken_at="2026-01-01T00:00:00Z",
    shape=("QEMU 7.2",),
)


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


def write(files, folder, memory=b"all of its memory"):
    files.memory.write_bytes(memory)
    files.devices.write_bytes(b"its devices")
    files.copy_disks(sorted(folder.iterdir()))
    return files.seal(MADE)


def test_a_checkpoint_without_a_record_is_none(files):
    assert files.read() is None


def test_a_checkpoint_reads_back_as_written(files, sealed):
    assert files.read() == sealed
    assert set(sealed.disks) == {"root.image.qcow2", "root.qcow2"}
    files.check(sealed)
    assert not files.saved.exists()


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
    with pytest.raises(MemoryDamagedError):
        files.check(sealed)


def test_a_new_attempt_removes_what_an_earlier_one_has_left(files, sealed):
    files.begin()
    assert files.read() is None
    assert not files.devices.exists()
    assert not files.memory.exists()


def test_a_saved_guest_has_its_room_on_the_disk_until_it_is_trimmed(files):
    descriptor = files.open_saved(3 << 20)
    assert os.fstat(descriptor).st_blocks * 512 >= 3 << 20
    os.write(descriptor, b"the guest")
    files.trim(descriptor)
    os.close(descriptor)
    assert files.saved.read_bytes() == b"the guest"


def test_a_byte_that_has_flipped_on_the_disk_is_found_before_a_fork_starts(files, sealed):
    before = files.memory.stat()
    content = bytearray(files.memory.read_bytes())
    content[5] ^= 1
    files.memory.write_bytes(content)
    os.utime(files.memory, ns=(before.st_atime_ns, before.st_mtime_ns))
    files.check(sealed)
    with pytest.raises(MemoryDamagedError, match="checksum"):
        files.open_pages(sealed)


def test_forks_map_private_copies_of_a_memory_that_nobody_can_change(files, folder):
    page, other = b"a" * 4096, b"b" * 4096
    sealed = write(files, folder, page + bytes(3 << 20) + other)
    shared = files.open_pages(sealed)
    second = files.open_pages(sealed)
    assert os.path.sameopenfile(shared, second), "one copy for all"
    os.close(second)
    own = os.open(f"/proc/self/fd/{shared}", os.O_RDWR)
    for change in (
        lambda: os.pwrite(own, b"x", 0),
        lambda: os.ftruncate(own, 0),
        lambda: punch_hole(own, 4096),
        lambda: mmap.mmap(own, 4096),
    ):
        with pytest.raises(PermissionError):
            change()
    with mmap.mmap(own, 0, flags=mmap.MAP_PRIVATE) as mapped:
        mapped[0:1] = b"x"
        assert mapped[-4096:] == other
    assert os.pread(shared, 4096, 0) == page
    assert os.fstat(shared).st_blocks * 512 == 8192, "zeros take no memory"
    files.close()
    assert os.pread(shared, 4096, 0) == page, "a fork that starts has it until then"
    os.close(own)
    os.close(shared)


def punch_hole(file, length):
    """As QEMU does for memory that a guest gives back."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(file, 0x01 | 0x02, ctypes.c_long(0), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def test_a_removed_checkpoint_leaves_nothing(files, sealed):
    files.remove()
    assert not files.directory.exists()
    assert files.read() is None
    files.remove()
