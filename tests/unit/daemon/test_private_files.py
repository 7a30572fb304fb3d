"""Modes of the files in a data directory."""

import os

import pytest

from corral.config import Layout
from corral.daemon import private_files
from corral.daemon.private_files import make_private


@pytest.fixture
def layout(tmp_path):
    tmp_path.chmod(0o755)
    return Layout(tmp_path)


def mode(path):
    return path.stat().st_mode & 0o777


def modes(layout):
    return {each.name: mode(each) for each in layout.root.iterdir()}


def test_our_files_are_made_private(layout):
    for each in (layout.images, layout.nodes, layout.storage, layout.root / "theirs"):
        each.mkdir(mode=0o755)
        each.chmod(0o755)
    for name in ("corral.log", "corral.log.1", "their.file"):
        (layout.root / name).write_text("")
        (layout.root / name).chmod(0o644)
    make_private(layout)
    assert modes(layout) == {
        "images": 0o700,
        "nodes": 0o700,
        "storage": 0o700,
        "theirs": 0o755,
        "corral.log": 0o600,
        "corral.log.1": 0o600,
        "their.file": 0o644,
    }
    assert mode(layout.root) == 0o755


def test_modes_of_links_and_foreign_files_are_kept(layout, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    layout.images.symlink_to(elsewhere)
    make_private(layout)
    assert mode(elsewhere) == 0o755
    layout.nodes.mkdir()
    layout.nodes.chmod(0o755)
    monkeypatch.setattr(private_files.os, "geteuid", lambda: os.getuid() + 1)
    make_private(layout)
    assert mode(layout.nodes) == 0o755


def test_the_default_directory_is_made_private(layout, monkeypatch):
    monkeypatch.setattr(private_files, "default_directory", lambda: layout.root)
    make_private(layout)
    assert mode(layout.root) == 0o700
