"""Hints: commands that start a manager with its earlier options."""

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from bench.cluster import free_port

from corral.api.errors import Unavailable
from corral.cli import hints, self_command
from corral.cli.errors import Problem
from corral.cli.main import run
from corral.cli.manager.join import join
from corral.cli.manager.up import up
from corral.cli.session import Session
from corral.client.kubeconfig import Kubeconfig
from corral.config import Layout


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """A data directory that is not the default, with a blank in its name."""
    monkeypatch.delenv("CORRAL_DATA_DIR", raising=False)
    place = Layout(tmp_path / "a lab")
    place.root.mkdir()
    return place


def given(*arguments, where="elsewhere"):
    context = up.make_context(
        "up", ["--data-dir", where, *map(str, arguments)], auto_envvar_prefix="CORRAL_UP"
    )
    return hints.options(context), context.params


def test_options_of_a_hint_are_those_given(tmp_path, monkeypatch):
    (tmp_path / "tokens").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORRAL_UP_NODES", "2")
    words, params = given(
        *("--bind", "[::1]:7443", "--no-network", "--token-file", "tokens", "--verbose"),
        *("--pod-cidr", "10.9.0.0/16,fd00::/56", "--machine", "hollow", "--detach"),
    )
    assert shlex.join(words) == (
        "--bind '[::1]:7443' --nodes 2 --no-network --pod-cidr 10.9.0.0/16,fd00::/56 "
        f"--token-file {tmp_path}/tokens --verbose --machine hollow"
    )
    monkeypatch.delenv("CORRAL_UP_NODES")
    monkeypatch.chdir("/")
    same = {"token_file": tmp_path / "tokens", "layout": Layout(Path("/elsewhere"))}
    assert given(*words, "--detach")[1] == params | same
    assert given()[0] == []


OPTIONS = {
    "--config": "/dev/null",
    "--bind": "[::1]:7443",
    "--nodes": "2",
    "--boots": "3",
    "--cpu-allocation-ratio": "20",
    "--eviction-hard": "memory.available<5%,nodefs.available<1Gi",
    "--eviction-pressure-transition-period": "1m30s",
    "--overcommit": "150",
    "--no-network": None,
    "--network-backend": "host-gw",
    "--wireguard-port": "4500",
    "--pod-cidr": "10.9.0.0/16,fd00::/56",
    "--service-cidr": "10.8.0.0/16",
    "--service-address": "0.0.0.0",
    "--keep-ports": "5000-6000,53",
    "--allow-destination": "10.0.0.0/8,192.168.7.1",
    "--cni-conf-dir": "/",
    "--cni-bin-dir": "/opt/cni/bin,/usr/libexec/cni",
    "--host-disks": "/",
    "--shared-storage": "/tmp",
    "--prometheus": "http://127.0.0.1:9090",
    "--metric-rules": __file__,
    "--audit-log": "/var/log/audit.log",
    "--audit-policy": __file__,
    "--token-file": __file__,
    "--verbose": None,
    "--machine": "hollow",
    "--hollow-boot-seconds": "1.5",
    "--hollow-failure-rate": "0.25",
    "--hollow-seed": "7",
    "--no-controllers": None,
}


def test_every_option_of_up_round_trips():
    """A systemd unit, and a user who follows a hint, start the same manager."""
    names = {each.name for each in up.params} - hints._NOT_SETTINGS
    context = up.make_context("up", list(OPTIONS)[:0])
    assert {up.make_parser(context)._long_opt[each].dest for each in OPTIONS} == names
    for name, value in OPTIONS.items():
        words, params = given(name, *([value] if value else []))
        assert words[0] == name
        again_words, again_params = given(*words)
        assert again_words == words
        assert again_params == params, name


JOIN_OPTIONS = {
    "--config": "/dev/null",
    "--name": "node1",
    "--address": "192.0.2.7",
    "--port": "10260",
    "--label": "rack=b",
    "--taint": "dedicated=lab:NoSchedule",
    "--boots": "3",
    "--no-network": None,
    "--service-address": "0.0.0.0",
    "--eviction-hard": "memory.available<5%",
    "--eviction-pressure-transition-period": "1m30s",
    "--overcommit": "150",
    "--wireguard-port": "4500",
    "--cni-conf-dir": "/",
    "--cni-bin-dir": "/opt/cni/bin,/usr/libexec/cni",
    "--host-disks": "/",
    "--shared-storage": "/tmp",
    "--machine": "hollow",
    "--hollow-boot-seconds": "1.5",
    "--verbose": None,
}


def test_every_option_of_join_round_trips(layout):
    names = {each.name for each in join.params} - hints._NOT_SETTINGS
    context = join.make_context("join", [])
    assert {join.make_parser(context)._long_opt[each].dest for each in JOIN_OPTIONS} == names
    for name, value in JOIN_OPTIONS.items():
        words = [name, *([value] if value else [])]
        context = join.make_context("join", ["--data-dir", str(layout.root), *words])
        assert hints.options(context) == words


def test_the_hint_for_an_agent_has_its_options_without_the_token(layout):
    words = ["https://192.0.2.1:6443", "--token", "abcdef.0123456789abcdef", "--label", "a=b"]
    context = join.make_context("join", [*words, "--data-dir", str(layout.root), "--port", "10260"])
    layout.membership.write_text("{}")
    begin = f"--detach --data-dir '{layout.root}'"
    assert hints.up(layout) == f"corral join {begin}"
    hints.remember(layout, ["join", *hints.options(context)])
    assert hints.up(layout) == f"corral join {begin} --port 10260 --label a=b"
    assert hints.missing_options(layout, ["join"]) == "--port 10260"
    hints.remember(layout, ["node", "--kubeconfig", "/a"])
    assert hints.up(layout) == f"corral node {begin} --kubeconfig /a"


def test_hints_name_the_directory_and_the_options(layout, capsys):
    layout.lock.write_text("")
    layout.kubeconfig.write_text("")
    assert hints.up(layout) == f"corral up --detach --data-dir '{layout.root}'"
    hints.remember(layout, ["--bind", "127.0.0.1:7443"])
    command = f"corral up --detach --data-dir '{layout.root}' --bind 127.0.0.1:7443"
    assert run(["status", "--data-dir", str(layout.root)]) == 3
    assert f"Start one: {command}\n" in capsys.readouterr().err
    session = Session(
        config=Kubeconfig(server="https://127.0.0.1:1"), namespace="home", path=layout.kubeconfig
    )
    with pytest.raises(Problem) as problem, session.api_errors():
        raise Unavailable("nobody answers")
    assert problem.value.hint == (
        f"corral status --data-dir '{layout.root}' shows its state; {command} starts it."
    )
    layout.kubeconfig.unlink()
    for words in (["kubeconfig"], ["pause", "vmi", "a"]):
        assert run([*words, "--data-dir", str(layout.root)]) == 1
        assert command in capsys.readouterr().err


def test_the_last_bind_address_is_the_default(layout):
    where = str(layout.root)
    assert given(where=where)[1]["bind"] == ("127.0.0.1", 6443)
    hints.remember(layout, ["--bind", "[::1]:7443", "--nodes", "2"])
    words, params = given(where=where)
    assert words == ["--bind", "[::1]:7443"]
    assert params["bind"] == ("::1", 7443)
    assert params["nodes"] == 1
    assert given("--bind", ":8443", where=where)[1]["bind"] == ("127.0.0.1", 8443)
    layout.options.write_text('["--bind", "nonsense:"]')
    with pytest.raises(click.BadParameter):
        given(where=where)


def test_options_missing_since_the_last_start_are_listed(layout):
    assert hints.missing_options(layout, []) == ""
    hints.remember(layout, ["--bind", ":1", "--nodes", "2", "--no-network", "--host-disks", "/a b"])
    assert hints.missing_options(layout, ["--bind", ":2", "--nodes", "2"]) == (
        "--no-network --host-disks '/a b'"
    )


def test_a_foreign_kubeconfig_has_no_data_directory(tmp_path):
    (tmp_path / "kubeconfig").write_text("")
    assert hints.of_kubeconfig(tmp_path / "kubeconfig") is None


def test_an_invalid_options_file_is_ignored(layout):
    layout.options.write_text('{"bind": 1}')
    assert hints.up(layout) == f"corral up --detach --data-dir '{layout.root}'"


def test_the_command_of_a_hint_restarts_the_manager(layout):
    options = ["--machine", "hollow", "--no-network", "--bind", f"127.0.0.1:{free_port()}"]

    def corral(*words):
        command = [*self_command.COMMAND, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    try:
        begun = corral("up", "--detach", "--data-dir", str(layout.root), *options)
        assert begun.returncode == 0, begun.stderr
        assert re.search(r"machines +hollow: machines are simulated", begun.stdout)
        stopped = corral("stop", "--data-dir", str(layout.root))
        assert stopped.stdout == "The manager has ended; no machine runs on.\n"
        refused = corral("up", "--detach", "--data-dir", str(layout.root), "--bind", "192.0.2.1:1")
        assert refused.returncode == 1
        output = corral("status", "--data-dir", str(layout.root)).stderr
        command = shlex.split(output.partition("Start one: ")[2])
        assert command == ["corral", *again_with(layout, options)]
        again_begun = corral(*command[1:])
        assert again_begun.returncode == 0, again_begun.stderr
        assert options[-1] in again_begun.stdout
    finally:
        corral("down", "--data-dir", str(layout.root))


def again_with(layout, options):
    """The words of the command, in the order in which ``corral up --help`` has the options."""
    machine, network, bind = options[:2], options[2:3], options[3:]
    return ["up", "--detach", "--data-dir", str(layout.root), *bind, *network, *machine]


def test_stored_ranges_do_not_count_as_missing_options(layout):
    last, _ = given("--pod-cidr", "10.251.0.0/16", "--nodes", "2", where=str(layout.root))
    hints.remember(layout, last)
    assert hints.missing_options(layout, []) == "--nodes 2"
