"""A volume's record counts once it is in place: all that it names must be on the disk by then."""

import os
import shutil
from pathlib import Path

import pytest
from tests.unit.node.storage.test_clone import SIZE, cloned, write
from tests.unit.node.storage.test_storage import MiB

from corral.node.storage import clone, volume as volumes


class Disk:
    """What a power cut leaves, as far as processes may count on it: what was synchronised.

    A name may come to the disk by itself at any time; content and other names may not.
    """

    def __init__(self, monkeypatch):
        self.contents, self.names, self.records = {}, {}, 0
        self.fsync, self.rename, self.replace = os.fsync, os.rename, os.replace
        monkeypatch.setattr(os, "fsync", self._fsync)
        monkeypatch.setattr(os, "rename", lambda *paths: self._move(self.rename, *paths))
        monkeypatch.setattr(os, "replace", lambda *paths: self._move(self.replace, *paths))

    def _fsync(self, descriptor):
        self.fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.names[path.stat().st_ino] = {
                each.name: each.stat().st_ino for each in path.iterdir()
            }
        else:
            self.contents[os.fstat(descriptor).st_ino] = self._state(path)

    @staticmethod
    def _state(path):
        return path.stat().st_mtime_ns, path.stat().st_size

    def _move(self, move, source, target):
        source, target = Path(source), Path(target)
        if target.name == volumes.RECORD:
            self._require(target.parent, source)
        elif (source / volumes.RECORD).exists() and target.parent.name == "volumes":
            self._require(source, source / volumes.RECORD)
            assert self._known(source)[volumes.RECORD] == (source / volumes.RECORD).stat().st_ino
        move(source, target)

    def _require(self, directory, record):
        self.records += 1
        self._require_content(record)
        for path in named(directory, volumes.files.read_json(record, volumes.Record)):
            self._require_content(path)
            assert self._known(directory).get(path.name) == path.stat().st_ino, (
                f"{path} has no name"
            )

    def _known(self, directory):
        """The names in a directory, by the inodes that they lead to."""
        return self.names.get(directory.stat().st_ino, {})

    def _require_content(self, path):
        assert self.contents.get(path.stat().st_ino) == self._state(path), f"{path} has no content"

    def require_done(self, volume):
        """What was answered is there, also after a power cut."""
        assert self.records
        directory = volume.directory
        assert self._known(directory.parent)[volume.handle] == directory.stat().st_ino
        for path in (directory / volumes.RECORD, *named(directory, volume.record)):
            self._require_content(path)
            assert self._known(directory)[path.name] == path.stat().st_ino


def named(directory, record):
    yield volumes.disk_of(directory, record).path
    for number, format_ in enumerate(record.layers):
        yield volumes.layer(directory, number, format_).path


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def test_a_new_volume(storage, disk):
    disk.require_done(storage.provision("pvc-1", SIZE))


def test_content_that_is_adopted(storage, disk):
    storage.provision("pvc-1", SIZE)
    made = storage.work_directory("pvc-1") / "made"
    made.write_bytes(b"x" * MiB)
    disk.require_done(storage.populate("pvc-1", made, "raw"))


def test_clones_and_their_sources(storage, disk):
    storage.provision("golden", SIZE)
    write(storage.find("golden"), 0, "g")
    for name in ("one", "two"):
        disk.require_done(cloned(storage, "golden", name))
        disk.require_done(storage.find("golden"))
    write(storage.find("one"), 65536, "h")
    disk.require_done(cloned(storage, "one", "three"))
    disk.require_done(storage.find("one"))


def test_clones_that_share_blocks(storage, disk, monkeypatch):
    """Where the file system knows reflinks; what they copy is all the same here."""
    copies = lambda source, target: bool(shutil.copyfile(source, target))  # noqa: E731
    monkeypatch.setattr(clone, "reflink", copies)
    storage.provision("golden", SIZE)
    write(storage.find("golden"), 0, "g")
    disk.require_done(cloned(storage, "golden", "one"))
    assert storage.find("golden").record.shares_blocks
    disk.require_done(storage.find("golden"))


def test_a_volume_that_is_cloned_over(storage, disk):
    for name in ("golden", "empty"):
        storage.provision(name, SIZE)
    write(storage.find("golden"), 0, "g")
    cloned(storage, "golden", "one")
    storage.provision("blank", SIZE)
    disk.require_done(storage.clone("blank", "one"))


def test_a_volume_that_has_grown(storage, disk):
    storage.provision("pvc-1", SIZE)
    disk.require_done(storage.resize("pvc-1", 2 * SIZE))
