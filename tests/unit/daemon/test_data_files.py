"""Files beside a missing store."""

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
