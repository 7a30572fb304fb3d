"""Backups: restored completely, and other files rejected."""

import asyncio
import errno
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from corral import files, pki
from corral.api.errors import Gone
from corral.api.object import Key
from corral.api.revocation import MAP, USERS
from corral.config import Layout
from corral.daemon import backup
from corral.daemon.backup import BackupError, archive
from corral.store import Log, Store

KIND = "configmaps"


def key(name):
    return Key("default", name)


def document(name, **more):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def revoked(**times):
    """Return the ConfigMap of users with revoked certificates."""
    named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**MAP._asdict()}}
    return {**named, "data": {USERS: json.dumps(times)}}


def laid_out(directory, ranges):
    """A data directory that has everything but a store."""
    layout = Layout(directory)
    layout.root.mkdir()
    pki.ensure(layout.pki)
    layout.ranges.write_text(ranges)
    return layout


@pytest.fixture
async def layout(tmp_path):
    """A data directory with a store that is open, and ``layout.root / "file"`` as its backup."""
    layout = laid_out(tmp_path / "data", ranges="{}")
    store = Store.open(layout.store)
    for name in "abc":
        await store.write(KIND, key(name), document(name, data={"x": "y" * 100}))
    await store.write(KIND, key("a"), document("a", data={"x": "second"}))
    await store.delete(KIND, key("b"), document("b"))
    backup.make(layout, tmp_path / "file")
    await store.write(KIND, key("late"), document("late"))
    await store.close()
    return layout


@pytest.fixture
def file(layout):
    return layout.root.parent / "file"


async def test_a_backup_of_an_open_store_is_complete(layout, file, tmp_path):
    assert file.stat().st_mode & 0o777 == 0o600
    fresh = Layout(tmp_path / "fresh")
    restored = backup.restore(fresh, file)
    assert (restored.objects, restored.kept, restored.before) == (2, (), None)
    store = Store.open(fresh.store)
    assert [record.key.name for record in store.objects(KIND)] == ["a", "c"]
    assert store.get(KIND, key("a")).document()["data"] == {"x": "second"}
    await store.close()
    for path in layout.pki.iterdir():
        assert (fresh.pki / path.name).read_bytes() == path.read_bytes()
    assert fresh.ranges.read_text() == "{}"
    assert sorted(each.name for each in fresh.root.iterdir()) == [
        "pki",
        "ranges.json",
        "store.sqlite",
    ]


async def test_revisions_before_a_restore_are_compacted(layout, file):
    before = Store.open(layout.store)
    seen = before.revision
    await before.close()
    restored = backup.restore(layout, file)
    assert restored.kept == ("pki", "ranges.json")
    store = Store.open(layout.store)
    assert store.revision > seen
    with pytest.raises(Gone):
        store.watch(KIND, seen)
    assert [record.key.name for record in store.objects(KIND)] == ["a", "c"]
    record = await store.write(KIND, key("d"), document("d"))
    assert record.revision == store.revision > seen + 1000
    store.watch(KIND, store.revision).close()
    await store.close()
    kept = Store(Log(restored.before))
    assert kept.get(KIND, key("late")) is not None
    await kept.close()


async def test_a_backup_replaces_only_a_backup(layout, file, tmp_path):
    backup.make(layout, file)
    assert backup.check(file).revision == 6
    other = tmp_path / "letter"
    other.write_text("dear")
    with pytest.raises(BackupError, match="something else"):
        backup.make(layout, other)
    assert other.read_text() == "dear"
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_an_empty_directory_has_no_backup(tmp_path):
    with pytest.raises(BackupError, match="there is no store"):
        backup.make(Layout(tmp_path), tmp_path / "file")


def head_of(file):
    line, _, rest = file.read_bytes().partition(b"\n")
    return json.loads(line), rest


def put(file, head, rest):
    file.write_bytes(json.dumps(head).encode() + b"\n" + rest)


def renamed(name):
    def change(head, rest):
        head["parts"][-1]["name"] = name
        return rest

    return change


def flipped(_head, rest):
    return rest[:5000] + bytes([rest[5000] ^ 1]) + rest[5001:]


@pytest.mark.parametrize(
    "change",
    [
        flipped,
        lambda head, rest: rest[:-1],
        lambda head, rest: rest + b"x",
        lambda head, rest: head.update({"corral-backup": 2}) or rest,
        lambda head, rest: head.update(parts=[]) or rest,
        lambda head, rest: head.update(more=1) or rest,
        lambda head, rest: head.update(revision=-1) or rest,
        renamed("../../etc/passwd"),
        renamed("pki/../x"),
        renamed("pki/"),
        renamed("/tmp/x"),
        renamed("store.sqlite"),
    ],
)
def test_a_damaged_backup_changes_nothing(layout, file, change):
    head, rest = head_of(file)
    rest = change(head, rest)
    put(file, head, rest)
    before = {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}
    with pytest.raises(BackupError, match=str(file)):
        backup.restore(layout, file)
    assert before == {path: path.read_bytes() for path in layout.root.rglob("*") if path.is_file()}
    with pytest.raises(BackupError):
        backup.check(file)


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 100_000, b"{}\n", b"\xff\xfe", b"[1]\n"])
def test_other_files_are_rejected(layout, tmp_path, content):
    other = tmp_path / "other"
    other.write_bytes(content)
    with pytest.raises(BackupError, match="no backup that corral has made"):
        backup.restore(layout, other)


def packed(file, tmp_path, change):
    """A backup whose store was changed, with checksums that match."""
    path = tmp_path / "changed.sqlite"
    head, rest = head_of(file)
    size = head["parts"][0]["bytes"]
    path.write_bytes(rest[:size])
    change(path)
    part = archive.part_of("store.sqlite", path)
    head["parts"][0] = {"name": part.name, "bytes": part.bytes, "sha256": part.sha256}
    put(file, head, path.read_bytes() + rest[size:])


def sql(statement):
    def change(path):
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(statement)
        connection.close()

    return change


@pytest.mark.parametrize(
    "change",
    [
        sql("CREATE TRIGGER t AFTER DELETE ON log BEGIN DELETE FROM meta; END"),
        sql("CREATE TABLE more (x)"),
        sql("DROP TABLE meta"),
        sql("PRAGMA application_id=7"),
        sql("PRAGMA user_version=99"),
        sql("UPDATE log SET data = '{' WHERE revision = 1"),
        sql("UPDATE log SET data = '[]' WHERE revision = 1"),
        sql("UPDATE log SET data = X'7B2261706956657273696F6E223A22FF227D' WHERE revision = 1"),
        sql("UPDATE log SET data = '{}' WHERE revision = 1"),
        sql("UPDATE log SET data = replace(data, '\"v1\"', '\"other/v1\"') WHERE revision = 1"),
        sql("UPDATE log SET data = replace(data, 'ConfigMap', '') WHERE revision = 1"),
        sql("UPDATE log SET name = 'other' WHERE revision = 1"),
        sql("UPDATE log SET namespace = 'other' WHERE revision = 1"),
        lambda path: path.write_bytes(b"not a database"),
        lambda path: os.truncate(path, 8192),
    ],
)
def test_a_foreign_store_is_not_restored(layout, file, tmp_path, change):
    packed(file, tmp_path, change)
    before = layout.store.read_bytes()
    with pytest.raises(BackupError):
        backup.restore(layout, file)
    assert layout.store.read_bytes() == before
    assert not [each for each in layout.root.iterdir() if each.name.startswith(".")]


async def killed(layout):
    """Write to a store that is then as after a kill, and damage an early place of its log."""
    store, log = Store.open(layout.store), layout.store.with_name(f"{layout.store.name}-wal")
    for name in (*"defgh", "last"):
        await store.write(KIND, key(name), document(name, data={"x": name * 300}))
    await store.write(KIND, MAP, revoked(anna=SECOND))
    kept = {path: path.read_bytes() for path in (layout.store, log)}
    await store.close()
    for path, content in kept.items():
        path.write_bytes(content)
    content = bytearray(kept[log])
    content[32 + 10] ^= 1  # of the first frame's salts
    log.write_bytes(content)


async def test_a_backup_has_the_writes_after_a_damaged_frame(layout, file):
    await killed(layout)
    messages = []
    backup.make(layout, file, messages.append)
    (line,) = messages
    assert "was damaged in" in line
    store = Store.open(layout.store)
    assert store.get(KIND, key("last")) is not None
    await store.close()
    backup.restore(layout, file)
    store = Store.open(layout.store)
    assert store.get(KIND, key("last")) is not None
    await store.close()


async def test_a_revocation_after_a_damaged_frame_survives_a_restore(layout, file):
    await killed(layout)
    assert backup.restore(layout, file).revoked == ("anna",)


FIRST, SECOND, THIRD = (f"2026-0{month}-01T00:00:00Z" for month in (1, 2, 3))


@pytest.mark.parametrize("later", [{}, {"anna": FIRST, "ben": THIRD, "eve": FIRST}])
async def test_later_revocations_survive_a_restore(layout, file, later):
    if later:
        store = Store.open(layout.store)
        await store.write(KIND, MAP, revoked(**later))
        await store.close()
        file.unlink()
        backup.make(layout, file)
    store = Store.open(layout.store)
    await store.write(KIND, MAP, revoked(anna=SECOND, ben=SECOND))
    await store.close()
    restored = backup.restore(layout, file)
    assert restored.revoked == (("anna",) if later else ("anna", "ben"))
    store = Store.open(layout.store)
    record = store.get(KIND, MAP)
    times = json.loads(record.document()["data"][USERS])
    assert times == {"ben": SECOND, **later, "anna": SECOND}
    assert record.document()["metadata"]["resourceVersion"] == str(record.revision)
    await store.write(KIND, key("next"), document("next"))
    await store.close()
    assert backup.restore(layout, file).revoked == restored.revoked


async def test_all_certificates_are_revoked_if_the_list_is_unreadable(layout, file):
    store = Store.open(layout.store)
    await store.write(KIND, MAP, revoked() | {"data": {USERS: "{"}})
    await store.close()
    assert backup.restore(layout, file).revoked == ("everybody",)
    store = Store.open(layout.store)
    assert store.get(KIND, MAP).document()["data"] == {USERS: "{"}
    await store.close()


async def test_an_interrupted_restore_leaves_the_old_or_the_new_store(layout, file, monkeypatch):
    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(layout.store), "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        backup.restore(layout, file)
    monkeypatch.undo()
    store = Store.open(layout.store)
    assert store.get(KIND, key("late")) is not None
    await store.close()
    assert backup.restore(layout, file).objects == 2


def test_a_restore_that_fails_at_the_store_leaves_no_certificates(layout, file, monkeypatch):
    """A server would start with these certificates, and without objects."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fresh = Layout(file.parent / "fresh")
    monkeypatch.setattr(type(layout.store), "replace", full)
    with pytest.raises(OSError, match="No space left"):
        backup.restore(fresh, file)
    assert list(fresh.root.iterdir()) == []


@pytest.mark.parametrize("step", ["sync_directory", "sync_file"])
def test_a_failed_restore_removes_its_files(layout, file, monkeypatch, step):
    def broken(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    fresh = Layout(file.parent / "fresh")
    monkeypatch.setattr(files, step, broken)
    with pytest.raises(OSError, match="Input/output"):
        backup.restore(fresh, file)
    assert list(fresh.root.iterdir()) == []


def test_a_failed_restore_keeps_the_store_before_the_last_restore(layout, file, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    before = backup.restore(layout, file).before
    content = before.read_bytes()
    monkeypatch.setattr(type(before), "hardlink_to", refused)
    with pytest.raises(OSError, match="not permitted"):
        backup.restore(layout, file)
    assert before.read_bytes() == content


def killed_restore(layout, file, names=2):
    """Kill a restore after so many renames: after two the store would follow."""
    script = f"""
import os
from pathlib import Path
from corral.daemon import backup
from corral.config import Layout
steps = []
def counted(change):
    def step(*names):
        if len(steps) == {names}:
            os._exit(9)
        steps.append(names)
        return change(*names)
    return step
Path.rename, Path.replace = counted(Path.rename), counted(Path.replace)
backup.restore(Layout(Path({str(layout.root)!r})), Path({str(file)!r}))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9


def rooms(layout):
    return list(layout.root.glob(".restore-*"))


def test_a_killed_restore_is_detected_until_another_succeeds(layout, file):
    fresh, damaged = Layout(file.parent / "fresh"), file.with_name("damaged")
    assert backup.sweep(fresh), "nothing was there"
    killed_restore(fresh, file)
    assert fresh.pki.exists()
    assert not fresh.store.exists()
    damaged.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BackupError):
        backup.restore(fresh, damaged)
    assert not backup.sweep(fresh)
    assert rooms(fresh)
    assert backup.restore(fresh, file).objects == 2
    assert not rooms(fresh)


def test_leftovers_of_a_killed_restore_are_removed(layout, file):
    killed_restore(layout, file, names=1)
    assert rooms(layout)
    assert backup.sweep(layout)
    assert not rooms(layout)
    assert layout.store.exists()


@pytest.fixture
async def another(tmp_path):
    """The backup of another cluster."""
    layout = laid_out(tmp_path / "another", ranges="[]")
    await Store.open(layout.store).close()
    backup.make(layout, tmp_path / "another file")
    return tmp_path / "another file"


def beside(layout):
    """Return the files of a cluster beside its store."""
    files = [*layout.pki.glob("*"), *layout.root.glob("ranges.json")]
    return {path.relative_to(layout.root): path.read_bytes() for path in files}


@pytest.mark.parametrize("cuts", [(1,), (2,), (2, 1), (2, 3)])
def test_a_restore_removes_leftovers_of_killed_restores(layout, file, another, tmp_path, cuts):
    """Credentials of one cluster are not valid in another."""
    fresh = Layout(tmp_path / "fresh")
    for names in cuts:
        killed_restore(fresh, another, names)
    assert backup.restore(fresh, file).kept == ()
    assert beside(fresh) == beside(layout)
    assert not rooms(fresh)


def test_a_restore_that_cannot_be_undone_prevents_a_start(layout, file, another, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    fresh, rename = Layout(file.parent / "fresh"), Path.rename
    forward = lambda old, new: broken() if new.parent != fresh.root else rename(old, new)  # noqa: E731
    monkeypatch.setattr(Path, "rename", forward)
    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="Input/output"):
        backup.restore(fresh, another)
    monkeypatch.undo()
    assert not backup.sweep(fresh), "no manager begins"
    backup.restore(fresh, file)
    assert beside(fresh) == beside(layout)


def test_files_of_a_killed_restore_are_undone(layout, another, tmp_path):
    layout.pki.rename(tmp_path / "kept")
    before = beside(layout)
    killed_restore(layout, another, names=2)
    assert beside(layout) != before
    assert backup.sweep(layout)
    assert beside(layout) == before
    assert not rooms(layout)


def test_links_at_the_restore_directory_are_removed_not_followed(layout, file, tmp_path):
    """Others may have created it; it must not block a restore."""
    fresh, elsewhere = Layout(tmp_path / "fresh"), tmp_path / "elsewhere"
    for place in (layout, fresh):
        elsewhere.mkdir(exist_ok=True)
        place.root.mkdir(exist_ok=True)
        (elsewhere / "file").write_text("mine")
        (place.root / ".restore-link").symlink_to(elsewhere)
        (place.root / ".restore-lost").symlink_to(tmp_path / "nowhere")
        (place.root / ".restore-file").write_text("")
        assert backup.sweep(place)
        assert not rooms(place)
    assert (elsewhere / "file").read_text() == "mine"


def test_a_restore_succeeds_if_its_cleanup_fails(layout, file, monkeypatch):
    """Its leftovers do not prevent a manager's start."""

    def busy(*_, **__):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    room = layout.root / ".restore-x"
    (room / "pki").mkdir(parents=True)
    monkeypatch.setattr(os, "rmdir", busy)
    assert backup.restore(layout, file).objects == 2
    assert backup.sweep(layout)
    monkeypatch.undo()
    assert room.exists()
    assert backup.sweep(layout)
    assert not rooms(layout)


KILLED = """
import asyncio, os, sys
from pathlib import Path
from corral.api.object import Key
from corral.store import Store

async def main():
    store = Store.open(Path(sys.argv[1]))
    key = Key("default", "wal")
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**key._asdict()}}
    await store.write("configmaps", key, document)
    os._exit(9)

asyncio.run(main())
"""


async def test_a_backup_includes_the_write_ahead_log_which_a_restore_removes(
    layout, file, tmp_path
):
    """A manager that was killed leaves its last writes beside the store."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(layout.store))
    await process.wait()
    assert layout.store.with_name("store.sqlite-wal").exists()
    backup.make(layout, tmp_path / "second")
    backup.restore(layout, file)
    assert not layout.store.with_name("store.sqlite-wal").exists()
    store = Store.open(layout.store)
    assert store.get(KIND, key("wal")) is None
    await store.close()
    backup.restore(layout, tmp_path / "second")
    store = Store.open(layout.store)
    assert store.get(KIND, key("wal")) is not None
    await store.close()


def damage(layout, text):
    content = layout.store.read_bytes()
    place = content.rindex(text)
    layout.store.write_bytes(
        content[:place] + bytes([content[place] ^ 0x80]) + content[place + 1 :]
    )


async def damaged(layout):
    store = Store.open(layout.store)
    found = [each.key for each in store.damaged]
    await store.close()
    return found


async def test_a_damaged_store_does_not_replace_a_backup(layout, file):
    before = file.read_bytes()
    damage(layout, b'"name":"late"')
    with pytest.raises(BackupError, match='configmaps "late" in namespace default cannot be read'):
        backup.make(layout, file)
    assert file.read_bytes() == before


async def test_damaged_objects_are_restored_and_others_kept(layout, file):
    damage(layout, b"second")
    damage(layout, b'"name":"late"')
    assert await damaged(layout) == [key("a"), key("late")]
    result = backup.restore_damaged(layout, file)
    assert [each.key for each in result.restored] == [key("a")]
    assert [each.key for each in result.missing] == [key("late")]
    store = Store.open(layout.store)
    assert [each.key for each in store.damaged] == [key("late")]
    record = store.get(KIND, key("a"))
    assert record.document()["metadata"]["resourceVersion"] == str(record.revision)
    assert record.revision == store.revision
    assert store.get(KIND, key("c")) is not None
    await store.close()
    assert not [each for each in layout.root.iterdir() if each.name.startswith("tmp")]


def test_damaged_objects_need_a_store(file, tmp_path):
    with pytest.raises(BackupError, match="there is no store"):
        backup.restore_damaged(Layout(tmp_path / "nowhere"), file)
