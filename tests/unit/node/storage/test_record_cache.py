"""What a storage remembers of its volumes, and when it looks again."""

import pytest

from corral.node.storage import InsufficientSpace, Storage, volume
from corral.node.storage.disk_space import Space

MiB = 1 << 20
GiB = 1 << 30


@pytest.fixture
def other(tmp_path, space):
    """The same storage, as another process has it."""
    return Storage(tmp_path / "storage", space=lambda _: Space(**space))


@pytest.fixture
def reads(monkeypatch):
    """The volumes whose records were read."""
    read, names = volume.read, []

    def counted(directory):
        names.append(directory.name)
        return read(directory)

    monkeypatch.setattr(volume, "read", counted)
    return names


def test_provisioning_many_volumes_reads_no_other_records(storage, reads):
    for number in range(10):
        storage.provision(f"pvc-{number}", MiB)
    reads.clear()
    storage.provision("pvc-10", MiB)
    assert set(reads) == {"pvc-10"}


def test_reservations_of_another_process_count(storage, other, space):
    space["free"] = 10 * GiB
    storage.provision("pvc-1", 2 * GiB)
    other.provision("pvc-2", 6 * GiB)
    with pytest.raises(InsufficientSpace):
        storage.provision("pvc-3", 4 * GiB)
    other.remove("pvc-2")
    storage.provision("pvc-3", 4 * GiB)
    other.reserve("pvc-1", 3 * GiB)
    with pytest.raises(InsufficientSpace):
        storage.reserve("pvc-3", 6 * GiB)


def test_both_processes_see_alternating_changes(storage, other, space):
    space["free"] = 10 * GiB
    for number in range(8):
        (storage, other)[number % 2].provision(f"pvc-{number}", GiB)
    for each in (storage, other):
        with pytest.raises(InsufficientSpace):
            each.provision("pvc-8", 2 * GiB)


def test_removed_reservations_are_available_again(storage, space):
    space["free"] = 10 * GiB
    for _ in range(5):
        storage.provision("pvc-1", 6 * GiB)
        storage.remove("pvc-1")


def test_a_partially_failed_change_is_seen(storage, space, monkeypatch):
    space["free"] = 10 * GiB
    storage.provision("pvc-1", GiB)

    def broken(_):
        raise OSError("the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr("corral.files.sync_directory", broken)
        with pytest.raises(OSError, match="broken"):
            storage.reserve("pvc-1", 8 * GiB)  # the record is in place, and not yet durable
    with pytest.raises(InsufficientSpace):
        storage.provision("pvc-2", 4 * GiB)


def test_written_blocks_are_not_reserved_again(storage, space):
    made = storage.provision("pvc-1", 4 * MiB)
    storage.provision("pvc-2", 1 * MiB)
    with made.disk.path.open("r+b") as file:
        file.write(b"x" * 4 * MiB)
        file.flush()
    space |= {"total": 0, "free": 2 * MiB}
    storage.provision("pvc-3", 1 * MiB)
    with pytest.raises(InsufficientSpace):
        storage.provision("pvc-4", 1 * MiB)
