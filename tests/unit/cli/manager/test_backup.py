"""``corral backup`` and ``corral restore``."""

import asyncio

import pytest

from corral import pki
from corral.api.object import Key
from corral.cli.main import run
from corral.config import Layout
from corral.daemon import lock
from corral.store import Store


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "data")
    layout.root.mkdir()
    pki.ensure(layout.pki)

    async def fill():
        store = Store.open(layout.store)
        key = Key("default", "a")
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**key._asdict()}}
        await store.write("configmaps", key, document)
        await store.close()

    asyncio.run(fill())
    return layout


def corral(layout, command, *arguments):
    return run([command, "--data-dir", str(layout.root), *map(str, arguments)])


def test_a_backup_is_described_and_restored(layout, tmp_path, capsys):
    file = tmp_path / "file"
    assert corral(layout, "backup", file) == 0
    assert "holds the objects up to revision 1" in capsys.readouterr().out
    assert corral(layout, "restore", "--check", file) == 0
    output = capsys.readouterr().out
    assert "holds       store.sqlite, pki: " in output
    assert "objects" not in output
    assert corral(Layout(tmp_path / "other"), "restore", file) == 0
    assert "objects     1, in" in capsys.readouterr().out


def test_a_backup_replaces_an_older_one_and_needs_a_directory(layout, tmp_path, capsys):
    file = tmp_path / "file"
    assert corral(layout, "backup", file) == 0
    assert "older" not in capsys.readouterr().out
    assert corral(layout, "backup", file) == 0
    assert "in the place of an older backup" in capsys.readouterr().out
    assert corral(layout, "backup", "-") == 1
    assert "a backup is a file, not a stream" in capsys.readouterr().err
    assert corral(layout, "backup", tmp_path / "nowhere" / "file") == 1
    assert f"there is no directory {tmp_path / 'nowhere'}" in capsys.readouterr().err


def test_the_printed_command_names_the_data_directory(layout, tmp_path, capsys, monkeypatch):
    file, other = tmp_path / "file", Layout(tmp_path / "an other")
    monkeypatch.delenv("CORRAL_DATA_DIR", raising=False)
    assert corral(layout, "backup", file) == 0
    assert corral(other, "restore", file) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.endswith(f"corral up --detach --data-dir '{other.root}'")
    monkeypatch.setenv("CORRAL_DATA_DIR", str(other.root))
    assert corral(other, "restore", file) == 0
    assert capsys.readouterr().out.endswith("corral up --detach\n")


def test_a_store_in_use_is_not_restored(layout, tmp_path, capsys):
    file = tmp_path / "file"
    with lock.acquire(layout.lock, url=""):
        assert corral(layout, "backup", file) == 0
        assert corral(layout, "restore", file) == 1
    assert "a manager runs on" in capsys.readouterr().err


def test_other_files_are_neither_replaced_nor_restored(layout, tmp_path, capsys):
    file = tmp_path / "letter"
    file.write_text("dear")
    for arguments in (["backup", file], ["restore", file], ["restore", "--check", file]):
        assert corral(layout, *arguments) == 1
        assert "backup" in capsys.readouterr().err
    assert file.read_text() == "dear"
    assert corral(layout, "restore", tmp_path / "nosuch") == 2


@pytest.mark.parametrize("there", [False, True])
def test_a_failed_restore_leaves_no_files(layout, tmp_path, capsys, there):
    file, fresh = tmp_path / "file", Layout(tmp_path / "new" / "fresh")
    assert corral(layout, "backup", file) == 0
    file.write_bytes(file.read_bytes()[:-1])
    if there:
        fresh.root.mkdir(parents=True)
    assert corral(fresh, "restore", file) == 1
    assert "Nothing was changed" in capsys.readouterr().err
    assert fresh.root.exists() is there
    assert (tmp_path / "new").exists() is there
    assert not there or list(fresh.root.iterdir()) == [fresh.lock], "others may have it open"


def test_a_directory_that_cannot_be_locked_is_removed_again(layout, tmp_path, monkeypatch):
    def held(*_, **__):
        raise lock.AlreadyRunning(None)

    file, fresh = tmp_path / "file", Layout(tmp_path / "new" / "fresh")
    assert corral(layout, "backup", file) == 0
    monkeypatch.setattr(lock, "acquire", held)
    assert corral(fresh, "restore", file) == 1
    assert not (tmp_path / "new").exists()


def test_no_manager_starts_on_an_interrupted_restore(layout, tmp_path, capsys):
    """Its certificates would be the backup's, without the objects."""
    fresh = Layout(tmp_path / "fresh")
    room = fresh.root / ".restore-x"
    room.mkdir(parents=True)
    (room / "store.sqlite").write_text("secrets")
    # Nobody has this address: a manager that begins there ends at once.
    up = ("up", "--machine", "hollow", "--bind", "192.0.2.1:6443")
    assert corral(fresh, *up) == 1
    output = " ".join(capsys.readouterr().err.split())
    assert "a restore to" in output
    assert output.endswith(f"remove first {fresh.root}/.restore-*."), "and no certificates"
    assert sorted(each.name for each in fresh.root.iterdir()) == [".restore-x", "lock"]
    layout.store.rename(fresh.store)
    assert corral(fresh, *up) == 1
    assert "192.0.2.1" in capsys.readouterr().err
    assert not room.exists()


def test_a_failed_restore_leaves_the_data_directory_unchanged(layout, tmp_path):
    with lock.acquire(layout.lock, url=""):
        pass
    before = sorted(layout.root.rglob("*"))
    file = tmp_path / "letter"
    file.write_text("dear")
    assert corral(layout, "restore", file) == 1
    assert sorted(layout.root.rglob("*")) == before
