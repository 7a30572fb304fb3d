"""Disk space that is kept, given up piece by piece, and taken again."""

import os
from types import SimpleNamespace

import pytest

from corral.daemon import disk_reserve
from corral.daemon.disk_reserve import BYTES, LEAST, Reserve

MiB = 1 << 20


@pytest.fixture
def disk(monkeypatch):
    """A file system of 64 GiB, of which a test says what is free; blocks are of 4 KiB."""
    found = SimpleNamespace(f_blocks=16 << 20, f_frsize=4096, f_bavail=16 << 20)
    monkeypatch.setattr(disk_reserve.os, "statvfs", lambda _: found)
    return found


@pytest.fixture
def kept(tmp_path, disk):
    kept = Reserve(tmp_path / "reserve")
    assert kept.fill()
    return kept


def test_the_reserve_allocates_blocks(tmp_path, kept):
    found = (tmp_path / "reserve").stat()
    assert kept.size == found.st_size == BYTES
    assert found.st_blocks * 512 >= BYTES
    assert found.st_mode & 0o777 == 0o600


def test_the_reserve_shrinks_piece_by_piece(tmp_path, kept):
    pieces = 0
    while kept.give():
        pieces += 1
    assert pieces == BYTES // (32 << 10)
    assert kept.size == 0
    assert (tmp_path / "reserve").stat().st_blocks == 0
    assert not kept.give()


def test_a_missing_reserve_gives_nothing(tmp_path, disk):
    assert not Reserve(tmp_path / "reserve").give()
    assert Reserve(tmp_path / "nowhere" / "reserve").size == 0
    assert not Reserve(tmp_path / "nowhere" / "reserve").fill()


def test_the_reserve_is_refilled_only_if_as_much_stays_free(kept, disk):
    while kept.size > BYTES // 2:
        kept.give()
    missing = BYTES - kept.size
    disk.f_bavail = (BYTES + missing) // 4096
    assert not kept.fill()
    assert kept.size < BYTES
    disk.f_bavail += 1
    assert kept.fill()
    assert kept.size == BYTES
    disk.f_bavail = 0
    assert kept.fill(), "it is whole"


def test_the_reserve_of_a_small_disk_is_small(tmp_path, disk):
    disk.f_blocks = disk.f_bavail = 48 * MiB // 4096
    kept = Reserve(tmp_path / "reserve")
    assert kept.fill()
    assert kept.size == 48 * MiB // 8


def test_the_reserve_gives_a_start_the_space_it_needs(kept, disk):
    disk.f_bavail = LEAST // 4096
    kept.make_way()
    assert kept.size == BYTES
    given = iter([LEAST - 1, LEAST - 1, LEAST])
    kept._free = lambda: next(given)
    kept.make_way()
    assert kept.size == BYTES - (64 << 10)
    kept._free = lambda: 0
    kept.make_way()
    assert kept.size == 0


def test_a_full_disk_leaves_no_reserve(tmp_path, disk, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(disk_reserve.os, "posix_fallocate", full)
    assert not Reserve(tmp_path / "reserve").fill()
