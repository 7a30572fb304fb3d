"""A damaged write-ahead log: what was acknowledged is kept, and what a power cut tore is not."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from corral.api.object import Key
from corral.store import Log, LogError, Store, offline
from corral.store.row import Row
from corral.store.wal import repair

KIND = "things.example.com"
PAGE = 4096 + 24


@pytest.fixture
def path(tmp_path):
    """A store that was copied under its manager, as a kill leaves it: ten writes, each a commit."""
    first, path = tmp_path / "first", tmp_path / "store"
    log = Log(first)
    for number in range(1, 11):
        data = b'{"metadata":{"name":"n%d","namespace":"a"},"x":"%b"}' % (number, b"x" * 1500)
        log.append([Row(number, KIND, "a", f"n{number}", False, 0, data)], [], 0)
    shutil.copy(first, path)
    shutil.copy(f"{first}-wal", f"{path}-wal")
    log.close()
    return path


def wal(path):
    return path.with_name("store-wal")


def frames(path):
    return (wal(path).stat().st_size - 32) // PAGE


def damage(path, frame, offset, by=0x40):
    content = bytearray(wal(path).read_bytes())
    content[32 + frame * PAGE + offset] ^= by
    wal(path).write_bytes(content)


async def opened(path):
    """Who is there, who is damaged, and what was said."""
    store = Store.open(path)
    found = sorted(record.key.name for record in store.objects(KIND))
    damaged = [each.key for each in store.damaged]
    said = store.wal_repair
    await store.close()
    return found, damaged, said


ALL = sorted(f"n{number}" for number in range(1, 11))


async def test_an_intact_wal_is_left_alone(path):
    before = wal(path).read_bytes()
    assert repair(path) == ""
    assert wal(path).read_bytes() == before
    assert await opened(path) == (ALL, [], "")
    assert repair(path) == "", "there is none"


def test_sqlite_alone_drops_what_follows_a_damaged_frame(path):
    damage(path, 6, 3000)
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM log").fetchone()
    assert count < 10


@pytest.mark.parametrize("offset", [10, 14, 18, 22, 3000])
async def test_commits_after_a_damaged_frame_are_recovered(path, offset):
    """Be it in the frame's salts, its sums, or in the page."""
    count = frames(path)
    for frame in range(3, count - 4):
        copy = path.with_name(f"copy-{frame}")
        shutil.copy(path, copy)
        shutil.copy(wal(path), f"{copy}-wal")
        content = bytearray(wal(path).read_bytes())
        content[32 + frame * PAGE + offset] ^= 0x40
        copy.with_name(f"{copy.name}-wal").write_bytes(content)
        try:
            found, damaged, said = await opened(copy)
        except LogError as error:
            assert "damaged" in str(error)  # noqa: PT017 - reported, and nothing is dropped
            continue
        assert sorted(found + [each.name for each in damaged]) == ALL
        assert "was damaged in" in said
        assert copy.with_name(f"{copy.name}-wal.damaged").read_bytes() == content
        assert copy.with_name(f"{copy.name}.damaged").exists()


async def test_commits_after_a_block_of_zeros_are_recovered(path):
    """It hides which page was written, and SQLite takes such a frame for the end of the log."""
    whole = wal(path).read_bytes()
    last = max(number for number in range(frames(path) - 1) if whole[32 + number * PAGE + 7])
    opening = 0
    for block in range(1, (32 + last * PAGE) // 4096):
        copy = path.with_name(f"zeros-{block}")
        shutil.copy(path, copy)
        content = bytearray(whole)
        content[block * 4096 : (block + 1) * 4096] = bytes(4096)
        copy.with_name(f"{copy.name}-wal").write_bytes(content)
        try:
            found, damaged, said = await opened(copy)
        except LogError as error:
            assert "Put a backup in its place" in str(error)  # noqa: PT017 - it is reported
            continue
        opening += 1
        assert "n10" in found
        assert len(found) + len(damaged) == 10 or "are lost" in said
    assert opening, "mostly a later frame holds the page"


@pytest.mark.parametrize("damaged", [(0, 1), (17, 18), (0, 32), (0, 4096)])
async def test_commits_after_a_damaged_header_are_recovered(path, damaged):
    """SQLite takes such a log for none at all."""
    content = bytearray(wal(path).read_bytes())
    begin, end = damaged
    content[begin:end] = bytes(end - begin)
    wal(path).write_bytes(content)
    found, _, said = await opened(path)
    assert "n10" in found
    assert "was damaged in" in said
    assert path.with_name("store-wal.damaged").read_bytes() == content


@pytest.mark.parametrize("head", [b"", b"x" * 18])
def test_a_damaged_database_header_in_addition_is_no_failure(path, head):
    path.write_bytes(head)
    content = wal(path).read_bytes()
    wal(path).write_bytes(bytes(32) + content[32:])
    assert "was damaged in" in repair(path)


async def test_a_new_wal_is_not_repaired_from_the_previous_one(path):
    """What that one holds is in the store already, and may be older than what is there."""
    log, copy = Log(path), path.with_name("copy")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(RESTART)")
    log.append([Row(11, KIND, "a", "n11", False, 0, b'{"metadata":{"name":"n11"}}')], [], 0)
    content = bytearray(wal(path).read_bytes())
    log_frames = [content[32 + n * PAGE + 8 :][:8] for n in range(2)]
    log.close()
    assert log_frames[0] != log_frames[1], "one frame is of the new log"
    content[:32] = bytes(32)
    shutil.copy(path, copy)
    copy.with_name("copy-wal").write_bytes(content)
    assert repair(copy) == ""


async def test_frames_of_the_previous_wal_are_ignored(path):
    """A power cut tears the last transaction, in whose middle an older frame shows through."""
    log, torn = Log(path), path.with_name("torn")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(RESTART)")
    before = wal(path).read_bytes()
    log.append([Row(11, KIND, "a", "n11", False, 0, b'{"metadata":{"name":"n11"}}')], [], 0)
    kept = wal(path).read_bytes()
    large = b'{"metadata":{"name":"n12"},"x":"%b"}' % (b"x" * 40_000)
    log.append([Row(12, KIND, "a", "n12", False, 0, large)], [], 0)
    now = bytearray(wal(path).read_bytes())
    begun = next(
        n for n in range(99) if kept[32 + n * PAGE :][:PAGE] != now[32 + n * PAGE :][:PAGE]
    )
    older = next(n for n in range(begun + 1, 99) if before[32 + n * PAGE + 7])
    place = 32 + older * PAGE
    now[place : place + PAGE] = before[place : place + PAGE]
    shutil.copy(path, torn)
    torn.with_name("torn-wal").write_bytes(now)
    log.close()
    assert repair(torn) == ""
    assert await opened(torn) == (sorted([*ALL, "n11"]), [], "")


async def test_a_lost_page_damages_its_rows_only(path):
    """The page of an early row is not written again."""
    place = wal(path).read_bytes().index(b'"name":"n1"') + 100
    while (again := wal(path).read_bytes().find(b'"name":"n1"', place)) >= 0:
        place = again + 100
    content = bytearray(wal(path).read_bytes())
    content[place] ^= 1
    wal(path).write_bytes(content)
    found, damaged, said = await opened(path)
    assert damaged == [Key("a", "n1")]
    assert found == [each for each in ALL if each != "n1"]
    assert said


async def test_a_torn_last_write_is_dropped(path):
    """Nothing shows that it was acknowledged."""
    last = frames(path) - 1
    damage(path, last, 3000)
    assert repair(path) == ""
    found, damaged, _ = await opened(path)
    assert (len(found), damaged) == (9, [])


async def test_opening_read_only_drops_nothing(path):
    damage(path, 6, 3000)
    assert not offline.is_empty(path)
    path.write_bytes(b"")
    assert not offline.is_empty(path), "all of it may be in the log"
    wal(path).unlink()
    assert offline.is_empty(path)
    Log(path).close()
    assert not offline.is_empty(path)


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 10_000, bytes(5000)])
async def test_another_file_is_left_to_sqlite(path, content):
    wal(path).write_bytes(content)
    assert repair(path) == ""
