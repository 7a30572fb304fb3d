"""What a disk has damaged is found, set aside, and costs nobody else anything."""

import asyncio
import os
import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from corral.api.errors import Gone, InternalError, StoreReadError
from corral.api.object import Key
from corral.store import Damaged, Log, LogError, Store, offline
from corral.store.damage import describe_damage
from corral.store.memory import Retention

KIND = "things.example.com"


def key(name, namespace="default"):
    return Key(namespace, name)


def thing(name, **fields):
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, **fields}


async def write(store, name, **fields):
    return await store.write(KIND, key(name), thing(name, **fields))


def names(store):
    return [record.key.name for record in store.objects(KIND)]


def flip(path, text, by=1):
    """Damage the only place of a file where a text is."""
    content = path.read_bytes()
    assert content.count(text) == 1
    place = content.index(text)
    path.write_bytes(content[:place] + bytes([content[place] ^ by]) + content[place + 1 :])


def rows(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT revision FROM log ORDER BY revision").fetchall()


@pytest.fixture
async def path(tmp_path):
    """A store in which one byte of ``b`` is not what was written."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    for name in "abc":
        await write(store, name, spec=f"of-{name}")
    await store.close()
    flip(path, b"of-b", by=0x80)
    return path


async def test_one_damaged_byte_damages_one_object(path):
    store = Store.open(path)
    assert names(store) == ["a", "c"]
    assert [(each.kind, each.key) for each in store.damaged] == [(KIND, key("b"))]
    for look in (store.get, store.latest):
        with pytest.raises(StoreReadError, match=r'things.example.com "b" in namespace default'):
            look(KIND, key("b"))
    with pytest.raises(StoreReadError, match="corral restore --damaged"):
        await write(store, "b")
    await write(store, "a", spec=2)
    await store.delete(KIND, key("c"), thing("c"))
    assert names(store) == ["a"]
    await store.close()
    again = Store.open(path)
    assert names(again) == ["a"]
    assert len([*again.damaged]) == 1
    await again.close()


@pytest.mark.parametrize("column", ["kind", "written", "data"])
async def test_every_column_is_checked(tmp_path, column):
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "a")
    await store.close()
    change = "written + 1" if column == "written" else "'x'"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE log SET {column} = {change}")
    store = Store.open(path)
    assert len([*store.damaged]) == 1
    assert names(store) == []
    await store.close()


@pytest.mark.parametrize(
    "change",
    [
        "name = 'q'",
        "name = 'b'",
        "name = CAST(x'ff' AS TEXT)",
        "namespace = 'defaulu'",
        "kind = 'thinos.example.com'",
        "kind = 'x'",
        "deleted = 1",
    ],
)
async def test_damaged_columns_are_repaired_from_the_object(tmp_path, change):
    """Else it would be gone, or an older version stand in for it, and nobody would hear of it."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "b")
    await write(store, "a", spec=1)
    last = await write(store, "a", spec=2)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE log SET {change} WHERE revision = {last.revision}")
    for _ in range(2):
        store = Store.open(path)
        assert [*store.damaged] == []
        assert names(store) == ["a", "b"]
        assert store.get(KIND, key("a")).data == last.data
        await store.close()
    offline.check(path)


async def test_cluster_scoped_objects_are_repaired(tmp_path):
    path, document = tmp_path / "store.sqlite", thing("a")
    del document["metadata"]["namespace"]
    store = Store.open(path)
    await store.write(KIND, key("a", ""), document)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE log SET name = 'q'")
    store = Store.open(path)
    assert names(store) == ["a"]
    await store.close()


@pytest.mark.parametrize("change", ["name = 'q'", "kind = 'x'", "deleted = 0"])
async def test_deleted_objects_are_not_revived(tmp_path, change):
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "b")
    await write(store, "a")
    last = await store.delete(KIND, key("a"), thing("a"))
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE log SET {change} WHERE revision = {last.revision}")
    store = Store.open(path)
    assert [*store.damaged] == []
    assert names(store) == ["b"]
    await store.close()


async def test_the_kind_of_a_single_object_is_repaired(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "a")
    await store.close()
    flip(path, b"things.example.com")
    store = Store.open(path)
    assert names(store) == ["a"]
    await store.close()


@pytest.mark.parametrize("value", ["NULL", "1.5", "7", "x'ff'", "'1'"])
@pytest.mark.parametrize("column", ["kind", "written", "data"])
async def test_a_column_of_another_type_counts_as_damage(tmp_path, column, value):
    """A damaged head of a row makes another type of what follows."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "a")
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(replace(replace(sql, ' NOT NULL', ''),"
            " 'TEXT', ''), 'INTEGER N', 'N') WHERE name = 'log'"
        )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE log SET {column} = {value}")
    store = Store.open(path)
    assert len([*store.damaged]) == 1
    await store.close()


async def test_a_damaged_object_can_be_deleted_and_recreated(path):
    store = Store.open(path)
    before = store.revision
    await store.discard(KIND, key("b"))
    assert [*store.damaged] == []
    assert store.get(KIND, key("b")) is None
    with pytest.raises(KeyError):
        store.discard(KIND, key("b"))
    await store.close()
    assert rows(path) == [(1,), (3,)]
    again = Store.open(path)
    assert [*again.damaged] == []
    assert (await write(again, "b")).revision > before
    assert names(again) == ["a", "b", "c"]
    await again.close()


async def test_an_object_whose_deletion_fails_stays_damaged(path, monkeypatch):
    store = Store.open(path)

    def broken(*_):
        raise InternalError("nothing was stored: the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(store._log, "append", broken)
        with pytest.raises(InternalError, match="broken"):
            await store.discard(KIND, key("b"))
    with pytest.raises(StoreReadError):
        store.get(KIND, key("b"))
    await store.discard(KIND, key("b"))
    assert store.get(KIND, key("b")) is None
    await store.close()


async def test_an_object_deleted_during_a_commit_is_in_the_next_one(path):
    store = Store.open(path)
    writing = store.write(KIND, key("a"), thing("a", spec=3))
    await store.tidy()
    assert writing.done()
    store.write(KIND, key("a"), thing("a", spec=4))
    await asyncio.sleep(0)  # the commit has begun
    await store.discard(KIND, key("b"))
    assert [*store.damaged] == []
    await store.close()


async def test_an_older_version_does_not_replace_a_damaged_one(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "a", spec="old")
    await write(store, "a", spec="newest")
    await store.close()
    flip(path, b"newest")
    store = Store.open(path)
    assert names(store) == []
    with pytest.raises(StoreReadError):
        store.get(KIND, key("a"))
    await store.discard(KIND, key("a"))
    await store.close()
    assert rows(path) == []
    again = Store.open(path)
    assert again.revision == 2
    await again.close()


async def test_damaged_history_affects_old_watches_only(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "a", spec=1)
    await write(store, "a", spec="past")
    await write(store, "a", spec=3)
    await write(store, "b")
    await store.close()
    flip(path, b"past")
    store = Store.open(path)
    assert [*store.damaged] == []
    assert names(store) == ["a", "b"]
    with pytest.raises(Gone):
        store.watch(KIND, 2)
    assert [event.revision for event in await store.watch(KIND, 3).next_events(0)] == [4]
    await write(store, "b", spec=2)
    await store.close()
    assert rows(path) == [(3,), (4,), (5,)], "what nobody can ask for is forgotten"
    again = Store.open(path)
    with pytest.raises(Gone):
        again.watch(KIND, 1)
    await again.close()


async def test_damaged_objects_with_a_lifetime_are_dropped(path):
    store = Store.open(path, lifetimes={KIND: 10**9})
    assert [*store.damaged] == []
    assert store.get(KIND, key("b")) is None
    await write(store, "d")
    await store.close()
    assert rows(path) == [(1,), (3,), (4,)]


async def test_a_damaged_schema_is_an_error_with_a_message(path):
    flip(path, b"EATE TABLE log", by=0x80)
    for use in (Log, offline.check, offline.checkpoint):
        with pytest.raises(LogError, match=r"store\.sqlite: "):
            use(path)
    assert not offline.is_empty(path)


async def test_a_damaged_byte_anywhere_is_detected(tmp_path):
    """All objects are as they were, or some are set aside, or the file is refused."""
    path, copy = tmp_path / "store.sqlite", tmp_path / "copy.sqlite"
    store = Store(Log(path), retention=Retention(changes=5))
    for number in range(60):
        await write(store, f"n{number % 25}", spec="x" * (number * 37 % 900), number=number)
    written = {record.key: record.data for record in store.objects(KIND)}
    await store.close()
    content, chance = path.read_bytes(), random.Random(12)
    outcomes = {"same": 0, "aside": 0, "refused": 0}
    for _ in range(100):
        place = chance.randrange(100, len(content))
        copy.write_bytes(
            content[:place]
            + bytes([content[place] ^ (1 << chance.randrange(8))])
            + content[place + 1 :]
        )
        try:
            store = Store(Log(copy))
        except LogError:
            outcomes["refused"] += 1
        else:
            found = {record.key: record.data for record in store.objects(KIND)}
            assert found.items() <= written.items()
            missing = written.keys() - found.keys()
            assert missing <= {each.key for each in store.damaged}
            outcomes["aside" if missing else "same"] += 1
            await store.close()
        for each in tmp_path.glob("copy.sqlite-*"):
            each.unlink()
    assert outcomes["aside"] > 10


def of_the_first_version(path, documents):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            "CREATE TABLE log (\n    revision  INTEGER PRIMARY KEY,\n    kind      TEXT NOT NULL,\n"
            "    namespace TEXT NOT NULL,\n    name      TEXT NOT NULL,\n"
            "    deleted   INTEGER NOT NULL,\n    written   INTEGER NOT NULL,\n"
            "    data      BLOB NOT NULL\n);"
            "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
            "INSERT INTO meta VALUES ('compacted', 0);"
            "PRAGMA application_id=1668248178; PRAGMA user_version=1;"
        )
        for revision, (name, data) in enumerate(documents.items(), 1):
            connection.execute(
                "INSERT INTO log VALUES (?, ?, 'default', ?, 0, 1700000000, ?)",
                (revision, KIND, name, data),
            )


GOOD = (
    b'{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"%b","namespace":"default"}}'
)


async def test_a_store_of_the_first_version_gets_checksums(tmp_path):
    path = tmp_path / "store.sqlite"
    of_the_first_version(path, {"a": GOOD % b"a", "b": GOOD % b"b\xff", "c": GOOD % b"c"})
    store = Store.open(path)
    assert names(store) == ["a", "c"]
    assert [each.key for each in store.damaged] == [key("b")]
    await store.discard(KIND, key("b"))
    await store.close()
    offline.check(path)
    flip(path, b'"name":"a"')
    store = Store.open(path)
    assert [each.key for each in store.damaged] == [key("a")]
    await store.close()


async def test_an_interrupted_upgrade_changes_nothing(tmp_path):
    path, cut = tmp_path / "store.sqlite", tmp_path / "cut.sqlite"
    of_the_first_version(path, {"a": GOOD % b"a"})
    shutil.copy(path, cut)
    with closing(sqlite3.connect(cut, isolation_level=None)) as connection:
        connection.execute(
            "CREATE TRIGGER cut AFTER UPDATE ON log BEGIN SELECT RAISE(ABORT, 'cut'); END"
        )
    with pytest.raises(LogError, match="cut"):
        Log(cut)
    with closing(sqlite3.connect(cut, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        connection.execute("DROP TRIGGER cut")
    store = Store.open(cut)
    assert names(store) == ["a"]
    await store.close()


async def test_a_store_of_the_first_version_can_be_checked(tmp_path):
    path = tmp_path / "store.sqlite"
    of_the_first_version(path, {"a": GOOD % b"a"})
    assert offline.latest(path, KIND, "default", "a") == GOOD % b"a"
    assert offline.newest(path) == 1


async def test_a_check_names_damaged_objects(path):
    with pytest.raises(LogError, match=f'is damaged: {KIND} "b" in namespace default cannot'):
        offline.check(path)
    with pytest.raises(LogError, match="default/b cannot be read"):
        offline.latest(path, KIND, "default", "b")


async def test_a_check_names_a_few_and_counts_the_others(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    for number in range(7):
        await write(store, f"n{number}")
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE log SET written = 7")
    with pytest.raises(LogError, match="and 2 more cannot be read"):
        offline.check(path)


async def test_copies_are_private(path, tmp_path):
    offline.copy(path, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


def test_a_few_damaged_objects_are_named_without_a_count():
    damaged = [Damaged(KIND, key(f"n{number}"), (number,)) for number in range(6)]
    assert describe_damage(damaged[:5]).endswith('"n4" in namespace default cannot be read')
    assert describe_damage(damaged).endswith('"n4" in namespace default and 1 more cannot be read')
    assert describe_damage([]) == ""


@pytest.mark.parametrize("change", ["DELETE FROM meta", "UPDATE meta SET value = 'x'"])
def test_a_lost_compaction_revision_is_reported(tmp_path, change):
    path = tmp_path / "store"
    Log(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)
    with pytest.raises(LogError, match="is damaged: its compaction revision is missing"):
        Log(path)


@pytest.mark.parametrize(
    "change",
    [
        "name = 'b'",
        "name = CAST(x'ff' AS TEXT)",
        "namespace = 'other'",
        "kind = 'thinks.example.com'",
        "name = x'ff'",
    ],
)
async def test_an_object_with_a_damaged_name_column_is_not_lost(tmp_path, change):
    """Much would follow from that: its dependents are collected, machines end."""
    path = tmp_path / "store"
    store = Store.open(path)
    await write(store, "a", x=1)
    await write(store, "a", x=2)
    await write(store, "other")
    await store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE log SET {change} WHERE revision = 2")
    for _ in range(2):
        store = Store.open(path)
        assert store.get(KIND, key("a")).document()["x"] == 2
        assert [*store.damaged] == []
        await store.close()
    offline.check(path)
    with closing(sqlite3.connect(path)) as connection:
        kept = connection.execute("SELECT kind, namespace, name FROM log WHERE revision = 2")
        assert kept.fetchall() == [(KIND, *key("a"))]


async def test_a_store_is_read_ahead_before_it_is_checked(tmp_path, monkeypatch):
    """The check reads a page here and a page there: it took ten times as long from a cold disk."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    await write(store, "large", text="x" * 300_000)
    await store.close()
    advised = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *advice: advised.append(advice))
    Log(path).close()
    assert sum(length for _, length, _ in advised) >= path.stat().st_size
