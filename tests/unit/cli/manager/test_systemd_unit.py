"""Systemd units of managers and agents."""

import os
import shlex
from pathlib import Path

import pytest

from corral.cli import hints
from corral.cli.main import run
from corral.cli.manager import systemd_unit
from corral.cli.manager.join import join
from corral.config import Layout
from corral.daemon import lock

AWKWARD = "/srv/my lab%h $HOME ü\"'\\;"


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl that records its arguments."""
    calls, path = tmp_path / "calls", tmp_path / "bin"
    path.mkdir()
    version = 'case "$*" in *--version) echo systemd 257;; esac'
    (path / "systemctl").write_text(f'#!/bin/sh\necho "$SYSTEMD_OFFLINE $*" >>{calls}\n{version}\n')
    (path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return calls


def options(text, name):
    """Return the words of a setting as systemd parses them: as a shell, but for two characters."""
    line = text.replace("\\\n", " ").partition(f"\n{name}=")[2].partition("\n")[0]
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


def test_options_are_quoted_for_systemd():
    given = ["--bind", "[::1]:7443", "--host-disks", AWKWARD]
    text = systemd_unit.text(Layout(Path(AWKWARD)), given, of_user=False, version=257)
    assert options(text, "ExecStart")[1:] == [
        "-P",
        "-m",
        "corral",
        "up",
        "--data-dir",
        AWKWARD,
        *given,
    ]
    assert options(text, "ExecStopPost")[-2:] == ["--data-dir", AWKWARD]
    assert options(text, "ReadWritePaths") == [AWKWARD]


def test_machines_outlive_a_manager_of_systemd():
    for of_user in (False, True):
        lines = systemd_unit.text(Layout(Path("/x")), [], of_user=of_user, version=257).splitlines()
        required = ("Type=notify", "KillMode=process", "Delegate=yes", "OOMPolicy=continue")
        assert {*required, "DelegateSubgroup=corral-manager", "Restart=on-failure"} <= set(lines)


def test_an_older_systemd_gets_the_settings_it_supports():
    text = systemd_unit.text(Layout(Path("/x")), [], of_user=False, version=252)
    assert "DelegateSubgroup" not in text
    assert 'echo "-cpu -memory"' in text


@pytest.mark.parametrize(("calls", "version"), [("systemd 252 (252.39-1)\n+PAM", 252), ("", 0)])
def test_the_version_of_systemd_is_parsed(calls, version):
    assert systemd_unit._version(calls) == version


def test_each_data_directory_has_a_unit_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert systemd_unit.unit_of(Layout(Path("/var/lib/corral"))).path == Path(
        "/etc/systemd/system/corral.service"
    )
    names = [
        systemd_unit.unit_of(Layout(Path(each))).name
        for each in ("/srv/lab-1", "/srv/lab/1", "/ü b")
    ]
    assert names == [
        "corral-srv-lab\\x2d1.service",
        "corral-srv-lab-1.service",
        "corral-\\xc3\\xbc\\x20b.service",
    ]


def test_a_unit_is_installed_and_removed(systemctl, tmp_path, capsys):
    where = ["--data-dir", str(tmp_path / "data")]
    assert run(["up", "--systemd", "--bind", ":7443", "--no-network", *where]) == 0
    (path,) = (tmp_path / "config" / "systemd" / "user").iterdir()
    assert options(path.read_text(), "ExecStart")[5:] == [
        *where, "--bind", "127.0.0.1:7443", "--no-network",
    ]  # fmt: skip
    output = capsys.readouterr().out
    assert f"{path} is written, and enabled" in output
    assert "loginctl enable-linger" in output
    assert f"corral stop --data-dir {tmp_path}/data --systemd removes the unit" in output
    assert systemctl.read_text().splitlines()[-1] == f"1 --user enable --quiet {path.name}"
    assert run(["stop", "--systemd", *where]) == 0
    assert systemctl.read_text().splitlines()[-1] == f"1 --user disable --quiet {path.name}"
    assert not path.exists()
    assert f"{path} is removed" in capsys.readouterr().out
    assert run(["stop", "--systemd", *where]) == 0
    assert f"There is no {path}" in capsys.readouterr().out


def test_without_systemd_the_error_names_detach(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["up", "--systemd", "--data-dir", str(tmp_path)]) == 1
    output = capsys.readouterr().err
    assert "systemd is not installed here" in output
    assert f"corral up --detach --data-dir {tmp_path}" in output


def test_a_failure_of_systemctl_is_an_error(systemctl, tmp_path, capsys):
    (tmp_path / "bin" / "systemctl").write_text("#!/bin/sh\necho 'no such bus' >&2\nexit 1\n")
    assert run(["up", "--systemd", "--data-dir", str(tmp_path)]) == 1
    assert "systemctl --user enable --quiet" in (output := capsys.readouterr().err)
    assert "no such bus" in output


def test_a_running_manager_gets_no_unit(systemctl, tmp_path, capsys):
    with lock.acquire(tmp_path / "lock", url="https://127.0.0.1:1"):
        assert run(["up", "--systemd", "--data-dir", str(tmp_path)]) == 1
    output = capsys.readouterr().err
    assert f"corral runs already on {tmp_path} (process {os.getpid()}" in output
    assert "corral stop" in output
    assert not (tmp_path / "config").exists()


def test_the_unit_of_a_joined_host_holds_no_token(tmp_path):
    words = [
        "https://192.0.2.1:6443", "--token", "abcdef.0123456789abcdef", "--ca-hash", "sha256:0",
        "--data-dir", str(tmp_path), "--systemd", "--no-network", "--boots", "2",
        "--label", "rack=b", "--label", "a=", "--taint", "lab=x:NoSchedule",
        "--taint", "y:NoExecute",
    ]  # fmt: skip
    given = hints.options(join.make_context("join", words))
    assert given == [
        "--label", "rack=b", "--label", "a=", "--taint", "lab=x:NoSchedule",
        "--taint", "y:NoExecute", "--boots", "2", "--no-network",
    ]  # fmt: skip
    layout = Layout(tmp_path)
    text = systemd_unit.text(layout, given, of_user=False, version=257, command="join")
    start = options(text, "ExecStart")
    assert start[start.index("corral") + 1 :] == ["join", "--data-dir", str(tmp_path), *given]
    assert text.startswith("# Written by corral join --systemd;")


def test_a_host_that_does_not_join_gets_no_unit(systemctl, tmp_path, capsys):
    assert run(["join", "--systemd", "--data-dir", str(tmp_path / "data")]) == 1
    assert "this host has not joined a cluster yet" in capsys.readouterr().err
    assert not (tmp_path / "config").exists()
