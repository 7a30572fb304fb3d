"""The build of the dashboard's page: what is built anew, and what a missing node leaves."""

import os
import subprocess

import pytest
from tools import page_build

LATER = 4e9


@pytest.fixture
def tree(tmp_path):
    """A checkout whose packages are installed and whose page is built."""
    (tmp_path / "dashboard/src/views").mkdir(parents=True)
    (tmp_path / "dashboard/node_modules").mkdir()
    (tmp_path / "dashboard/package-lock.json").write_text("{}")
    (tmp_path / "dashboard/src/views/fleet.tsx").write_text("")
    (tmp_path / "dashboard/node_modules/.package-lock.json").write_text("{}")
    (tmp_path / "src/corral/server/dashboard/page").mkdir(parents=True)
    (tmp_path / "src/corral/server/dashboard/page/index.html").write_text("")
    return tmp_path


@pytest.fixture
def commands(monkeypatch):
    """The commands that a build runs; none of them does anything."""
    found = []
    monkeypatch.setattr(page_build, "_run", lambda _directory, *command: found.append(command))
    monkeypatch.setattr(page_build, "has_node", lambda: True)
    return found


def test_a_fresh_page_is_left_as_it_is(tree, commands):
    assert page_build.build(tree) == ""
    assert commands == []


@pytest.mark.parametrize("changed", ["src/views/fleet.tsx", "src/views", "build.mjs"])
def test_a_change_of_a_source_builds_the_page(tree, commands, changed):
    path = tree / "dashboard" / changed
    if not path.exists():
        path.write_text("")
    os.utime(path, (LATER, LATER))
    assert page_build.build(tree) == ""
    assert [each[:2] for each in commands] == [("node", "build.mjs")]


def test_a_change_of_the_lock_installs_what_it_names_without_scripts(tree, commands):
    os.utime(tree / "dashboard/package-lock.json", (LATER, LATER))
    assert page_build.build(tree) == ""
    assert commands[0][:3] == ("npm", "ci", "--ignore-scripts")
    assert "--omit=dev" in commands[0]
    assert [each[0] for each in commands] == ["npm", "node"]


def test_checks_need_more_packages_than_a_build(tree, commands):
    assert page_build.build(tree, for_development=True) == ""
    assert commands[0][:2] == ("npm", "ci")
    assert "--omit=dev" not in commands[0]


def test_a_failed_command_is_reported_with_what_it_said(tree, monkeypatch):
    def fails(_directory, *command):
        raise subprocess.CalledProcessError(1, command, output="no registry\n")

    monkeypatch.setattr(page_build, "_run", fails)
    monkeypatch.setattr(page_build, "has_node", lambda: True)
    os.utime(tree / "dashboard/package-lock.json", (LATER, LATER))
    assert page_build.build(tree) == "npm ci failed: no registry"


def test_without_node_the_reason_is_returned(tree, monkeypatch):
    monkeypatch.setenv("PATH", str(tree))
    os.utime(tree / "dashboard/package-lock.json", (LATER, LATER))
    assert page_build.build(tree) == "there is no node 20 or newer with npm"


def test_an_old_node_is_none(tree, monkeypatch):
    for name, answer in (("npm", ""), ("node", "v18.19.0")):
        (tree / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (tree / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tree))
    assert not page_build.has_node()
    (tree / "node").write_text("#!/bin/sh\necho v22.1.0\n")
    assert page_build.has_node()
