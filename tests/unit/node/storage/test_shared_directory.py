"""The marker of a shared directory: a host uses the one of its cluster, and no other."""

import os

import pytest

from corral.node.storage import shared_directory
from corral.node.storage.error import StorageError

OURS, THEIRS = "sha256:1", "sha256:2"


@pytest.fixture
def shared(tmp_path):
    made = tmp_path / "shared"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def remembered(tmp_path):
    return tmp_path / "shared-storage"


def test_the_first_host_makes_an_empty_directory_that_of_its_cluster(shared, remembered):
    made = shared_directory.create(shared, OURS, remembered)
    assert shared_directory.check(shared, OURS) == made
    assert shared_directory.create(shared, OURS, remembered) == made


def test_a_joined_host_makes_no_marker(shared):
    with pytest.raises(StorageError, match=r"marker is missing \(Is it mounted here"):
        shared_directory.check(shared, OURS)
    assert list(shared.iterdir()) == []


def test_the_directory_of_another_cluster_is_refused(shared, remembered):
    shared_directory.create(shared, THEIRS, remembered)
    with pytest.raises(StorageError, match=f"another cluster .{THEIRS}"):
        shared_directory.check(shared, OURS)


def test_a_first_host_whose_mount_is_missing_makes_no_new_marker(shared, remembered, tmp_path):
    shared_directory.create(shared, OURS, remembered)
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    with pytest.raises(StorageError, match="not the shared directory of before"):
        shared_directory.create(empty, OURS, remembered)
    assert list(empty.iterdir()) == []


def test_another_directory_of_the_same_cluster_is_refused(shared, remembered, tmp_path):
    shared_directory.create(shared, OURS, remembered)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    shared_directory.create(other, OURS, tmp_path / "of another host")
    with pytest.raises(StorageError, match="another shared directory"):
        shared_directory.create(other, OURS, remembered)


def test_a_directory_with_other_files_is_refused(shared, remembered):
    (shared / "music").mkdir()
    with pytest.raises(StorageError, match="has files of others"):
        shared_directory.create(shared, OURS, remembered)


def test_a_directory_that_others_may_write_is_refused(shared, remembered):
    shared.chmod(0o777)
    with pytest.raises(StorageError, match="can be written by others"):
        shared_directory.create(shared, OURS, remembered)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere is no directory"):
        shared_directory.check(tmp_path / "nowhere", OURS)


@pytest.mark.parametrize(("number", "hint"), [(30, "Mount it read-write"), (28, "Free some space")])
def test_a_directory_that_cannot_be_written_is_named(shared, monkeypatch, number, hint):
    def full(**_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shared_directory.tempfile, "NamedTemporaryFile", full)
    with pytest.raises(StorageError, match=f"{shared} cannot be written.*{hint}"):
        shared_directory.check(shared, OURS)
