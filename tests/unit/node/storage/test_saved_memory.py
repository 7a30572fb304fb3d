"""A saved machine on disk: sealed, gone on from once, and distrusted where it was touched."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from corral import files
from corral.node.hypervisor import MemoryMisfitError
from corral.node.storage.disk_space import Space, allocated_bytes, growth_of, measure
from corral.node.storage.saved_memory import (
    SavedMachine,
    SavedMemory,
    require_unchanged,
    state,
    states,
)
from corral.node.storage.volume import Record, StoredVolume

SAVED = SavedMachine(
    volume="", identity="uid", instance="default/vm", saved_at=7.0, shape=("QEMU 7.2", "-m 64M")
)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "pvc-1").mkdir()
    return SavedMemory(tmp_path / "pvc-1")


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "volumes"
    folder.mkdir()
    (folder / "root.qcow2").write_bytes(b"the overlay")
    return folder / "root.qcow2"


@pytest.fixture
def data(tmp_path):
    (tmp_path / "pvc-2").mkdir()
    (tmp_path / "pvc-2" / "disk-0.raw").write_bytes(b"kept anyway")
    return tmp_path / "pvc-2" / "disk-0.raw"


def write(place, content=b"all of its memory"):
    descriptor = place.open()
    os.write(descriptor, content)
    os.close(descriptor)


@pytest.fixture
def sealed(place, disk, data):
    write(place)
    return place.seal(SAVED, [disk], [data])


def test_sealed_memory_reads_back_as_written(place, sealed, disk, data):
    assert place.read() == sealed
    assert sealed.volume == "pvc-1"
    assert sealed.memory_bytes == len(b"all of its memory")
    assert sealed.disks == {"root.qcow2": state(disk)}
    assert sealed.others == {"pvc-2/disk-0.raw": state(data)}
    place.check(sealed)


def test_disks_are_synced_before_their_times_are_recorded(place, data, monkeypatch):
    def sync(path):
        synced.append(path)
        os.utime(path, ns=(0, len(synced)))

    synced = []
    write(place)
    monkeypatch.setattr(files, "sync_file", sync)
    sealed = place.seal(SAVED, [], [data, data.with_name("missing")])
    assert synced == [place.memory, data]
    assert sealed.others["pvc-2/disk-0.raw"].changed_ns == 2


def test_saved_memory_is_private(place, sealed):
    for file in (place.memory, place.memory.with_name("machine.json")):
        assert file.stat().st_mode & 0o777 == 0o600
    assert place.memory.parent.stat().st_mode & 0o077 == 0


def test_unsealed_memory_counts_as_missing(place):
    assert place.read() is None
    write(place)
    assert place.read() is None


def test_a_seal_of_another_place_is_invalid(place, sealed, tmp_path):
    other = SavedMemory(tmp_path / "pvc-9")
    place.directory.rename(other.directory)
    assert other.read() is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"volume": 3}'])
def test_an_unreadable_seal_is_invalid(place, sealed, content):
    place.memory.with_name("machine.json").write_bytes(content)
    assert place.read() is None


def test_one_machine_only_can_break_the_seal(place, sealed):
    assert place.break_seal("first")
    assert not place.break_seal("second")
    assert place.break_seal("first"), "who was killed after breaking it breaks it again"
    assert place.read() is None


def test_cleared_memory_is_gone(place, sealed, disk):
    place.clear()
    assert list(place.directory.iterdir()) == []
    assert disk.read_bytes() == b"the overlay"
    place.clear()


def test_new_memory_replaces_earlier_memory(place, sealed, disk):
    write(place, b"newer")
    assert place.read() is None
    again = place.seal(SAVED, [disk], [])
    assert (again.memory_bytes, again.others) == (5, {})


def test_ephemeral_disks_are_saved_with_the_memory(place, sealed, tmp_path):
    folder = tmp_path / "another" / "volumes"
    place.restore_disks(sealed, folder)
    place.restore_disks(sealed, folder)
    assert (folder / "root.qcow2").read_bytes() == b"the overlay"
    place.clear()
    assert (folder / "root.qcow2").read_bytes() == b"the overlay"


def test_ephemeral_disks_on_another_file_system_cannot_be_saved(place, sealed):
    with (
        TemporaryDirectory(dir="/dev/shm") as elsewhere,
        pytest.raises(MemoryMisfitError, match="another file system"),
    ):
        place.restore_disks(sealed, Path(elsewhere))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda place: place.memory.write_bytes(b"all of my memory!"), "does not match its"),
        (lambda place: place.memory.write_bytes(b"short"), "does not have the size"),
        (lambda place: place.memory.unlink(), "memory file is missing"),
        (
            lambda place: (place._disks / "root.qcow2").write_bytes(b"x"),
            "root.qcow2 was changed",
        ),
        (lambda place: (place._disks / "root.qcow2").unlink(), "root.qcow2 is missing"),
    ],
)
def test_modified_memory_is_not_restored(place, sealed, spoil, message):
    spoil(place)
    with pytest.raises(MemoryMisfitError, match=message):
        place.check(sealed)


def test_a_disk_written_since_is_detected(data, sealed):
    require_unchanged(sealed.others, states([data]))
    data.write_bytes(b"kept anyway")  # even if it holds the same
    os.utime(data, ns=(0, sealed.others["pvc-2/disk-0.raw"].changed_ns + 1))
    with pytest.raises(MemoryMisfitError, match=r"pvc-2/disk-0\.raw was changed since"):
        require_unchanged(sealed.others, states([data]))


def test_a_missing_disk_is_detected(data, sealed):
    data.unlink()
    with pytest.raises(MemoryMisfitError, match=r"pvc-2/disk-0\.raw is missing"):
        require_unchanged(sealed.others, states([data]))


def test_a_full_disk_leaves_nothing_sealed(place, disk, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    write(place)
    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(OSError, match="No space"):
        place.seal(SAVED, [disk], [])
    assert place.read() is None


def test_a_symlink_in_place_of_memory_is_not_followed(place, tmp_path):
    write(place)
    place.memory.unlink()
    (tmp_path / "elsewhere").write_bytes(b"mine")
    place.memory.symlink_to(tmp_path / "elsewhere")
    write(place)
    assert not place.memory.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_memory_counts_against_the_reservation_of_its_claim(place, tmp_path):
    stored = StoredVolume(
        handle="pvc-1", directory=place.directory, record=Record(capacity_bytes=1 << 30)
    )
    assert growth_of(stored) == 1 << 30
    write(place, os.urandom(1 << 20))
    os.sync()
    present = measure([stored], Space(total=1 << 40, free=1 << 39))
    assert present.used_bytes >= 1 << 20
    assert present.growth_bytes == (1 << 30) - allocated_bytes(place.memory) < 1 << 30


def test_records_of_older_versions_are_read(place, sealed):
    seal = place.memory.with_name("machine.json")
    document = msgspec.json.decode(seal.read_bytes())
    del document["others"], document["paused"]
    seal.write_bytes(msgspec.json.encode(document))
    assert place.read().instance == "default/vm"
