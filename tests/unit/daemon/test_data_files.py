"""Files beside a missing store, and their modes."""

import os
import sqlite3

import pytest

from corral.config import Layout
from corral.daemon import data_files
from corral.store import Store


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path)


def machine(layout, uid="u1"):
    (layout.nodes / "node" / "machines" / uid).mkdir(parents=True)


def volume(layout, handle="pvc-1"):
    (layout.storage / "volumes" / handle).mkdir(parents=True)


def emptied(layout):
    layout.store.write_bytes(b"")


def without_its_log(layout):
    """Create a store whose write-ahead log, with all content, was removed."""
    connection = sqlite3.connect(layout.store)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    assert layout.store.stat().st_size > 0


def test_a_new_directory_has_no_orphaned_data(layout):
    assert data_files.unknown(layout) == ""
    layout.images.mkdir()
    layout.pki.mkdir()
    (layout.storage / "volumes").mkdir(parents=True)
    assert data_files.unknown(layout) == "", "images are imported before the first start"


@pytest.mark.parametrize("lost", [lambda _: None, emptied, without_its_log])
def test_data_without_its_store_is_counted(layout, lost):
    lost(layout)
    assert data_files.unknown(layout) == ""
    machine(layout)
    assert data_files.unknown(layout) == "1 machine"
    machine(layout, "u2")
    volume(layout)
    assert data_files.unknown(layout) == "2 machines, 1 volume of claims"
    volume(layout, "pvc-2")
    layout.options.write_text("[]")
    assert data_files.unknown(layout) == (
        "2 machines, 2 volumes of claims, options of an earlier manager"
    )


async def test_data_beside_its_store_is_not_counted(layout):
    machine(layout)
    volume(layout)
    await Store.open(layout.store).close()
    assert data_files.unknown(layout) == ""


def test_an_invalid_store_is_not_a_missing_one(layout):
    machine(layout)
    layout.store.write_bytes(b"dear " * 1000)
    assert data_files.unknown(layout) == "", "whoever opens it says what is wrong"


def modes(layout):
    return {each.name: each.stat().st_mode & 0o777 for each in layout.root.iterdir()}


def test_our_files_are_made_private(layout):
    layout.root.chmod(0o755)
    for each in (layout.images, layout.nodes, layout.storage, layout.root / "theirs"):
        each.mkdir(mode=0o755)
        each.chmod(0o755)
    for name in ("corral.log", "corral.log.1", "their.file"):
        (layout.root / name).write_text("")
        (layout.root / name).chmod(0o644)
    data_files.make_private(layout)
    assert modes(layout) == {
        "images": 0o700,
        "nodes": 0o700,
        "storage": 0o700,
        "theirs": 0o755,
        "corral.log": 0o600,
        "corral.log.1": 0o600,
        "their.file": 0o644,
    }
    assert layout.root.stat().st_mode & 0o777 == 0o755


def test_modes_of_links_and_foreign_files_are_kept(layout, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    layout.images.symlink_to(elsewhere)
    data_files.make_private(layout)
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    layout.nodes.mkdir()
    layout.nodes.chmod(0o755)
    monkeypatch.setattr(data_files.os, "geteuid", lambda: os.getuid() + 1)
    data_files.make_private(layout)
    assert layout.nodes.stat().st_mode & 0o777 == 0o755
