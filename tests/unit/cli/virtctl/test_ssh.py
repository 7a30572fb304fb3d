"""ssh and scp are this host's own, and reach machines by a port-forward of ours."""

import os
import shlex
import subprocess
import sys

import pytest

from corral.cli import self_command
from corral.cli.errors import Problem
from corral.cli.main import run
from corral.cli.virtctl.ssh import Destination, Options, arguments, parse_destination, scp_ends
from corral.cli.virtctl.target import Target

WEB = Target("vmi", "web", "lab")


def test_the_proxy_command_is_a_forwarded_port():
    given = arguments(Destination(WEB, "me"), Options(port=2222), ["me@vmi.web.lab"])
    assert given[0] == "-o"
    program, proxy = given[1].split("=", 1)
    assert program == "ProxyCommand"
    assert shlex.split(proxy) == [
        *self_command.COMMAND, "port-forward", "--stdio=true", "vmi/web/lab", "2222",
    ]  # fmt: skip
    assert given[2:] == ["me@vmi.web.lab"]


def test_the_users_options_precede_ours():
    options = Options(
        local_ssh_opts=["-o UserKnownHostsFile=/dev/null", "-v"],
        known_hosts="/tmp/known hosts%",
        identity_file="~/.ssh/id",
    )
    given = arguments(Destination(WEB, ""), options, ["vmi.web.lab", "uptime"])
    assert given[2:] == [
        "-o UserKnownHostsFile=/dev/null", "-v",
        "-o", 'UserKnownHostsFile="/tmp/known hosts%%"',
        "-i", "~/.ssh/id",
        "vmi.web.lab", "uptime",
    ]  # fmt: skip


def test_names_cannot_become_commands_of_the_shell_or_of_ssh():
    place = Destination(Target("vmi", "$(reboot) %h", "lab"), "")
    proxy = arguments(place, Options(), [])[1].removeprefix("ProxyCommand=")
    assert shlex.split(proxy)[-2] == "vmi/$(reboot) %%h/lab"


def test_destinations_are_parsed():
    assert str(parse_destination("me@vmi/web/lab", "here", "you")) == "me@vmi.web.lab"
    assert str(parse_destination("vm/web", "here", "you")) == "you@vm.web.here"
    assert str(parse_destination("vmi/web", "here", "")) == "vmi.web.here"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@vmi/web", "expected username before '@'"),
        ("me@", "expected target after '@'"),
        ("-oProxyCommand=reboot@vmi/web", "not a username: '-oProxyCommand=reboot'"),
        ("me@web", "target must contain type and name separated by '/'"),
    ],
)
def test_invalid_destinations_are_rejected(text, message):
    with pytest.raises(Problem, match=message):
        parse_destination(text, "here", "")


def test_scp_arguments_are_local_or_remote():
    place, ends = scp_ends("a.txt", "me@vmi/web/lab:b.txt", "here", "")
    assert str(place) == "me@vmi.web.lab"
    assert ends == ["a.txt", "me@vmi.web.lab:b.txt"]
    _, ends = scp_ends("vmi/web:", "b.txt", "here", "me")
    assert ends == ["me@vmi.web.here:", "b.txt"]


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (("a", "b"), 'none of the two provided locations seems to be a remote location: "a" to'),
        (("vmi/a:1", "vmi/b:2"), "copying from a remote location to another remote location is"),
    ],
)
def test_scp_needs_one_machine(ends, message):
    with pytest.raises(Problem, match=message):
        scp_ends(*ends, "here", "")


def test_a_missing_program_is_named(nobody_home, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["ssh", "me@vmi/web"]) == 1
    message = capsys.readouterr().err
    assert "error: there is no ssh on this host" in message
    assert "openssh-client" in message


@pytest.fixture
def instead(nobody_home, tmp_path):
    """Run a command of corral with a test's script in place of ssh and scp."""

    def run_with(script: str, *command: str) -> subprocess.CompletedProcess[str]:
        programs = tmp_path / "programs"
        programs.mkdir()
        for name in ("ssh", "scp"):
            program = programs / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        return subprocess.run(
            [sys.executable, "-P", "-m", "corral", *command],
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "CORRAL_DATA_DIR": ""},
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        )  # fmt: skip

    return run_with


def test_the_proxy_command_uses_the_same_cluster(instead, nobody_home):
    """The proxy command gets kubeconfig and context; its exit code is ours."""
    done = instead(
        'echo "$KUBECONFIG" "$CORRAL_CONTEXT"; echo "$@"; exit 7',
        "--context", "other", "ssh", "-t", "-v", "-c", "ls /", "--known-hosts=", "me@vmi/web",
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    environment, given = done.stdout.splitlines()
    assert environment == f"{nobody_home} other"
    assert given.endswith("vmi/web/away 22 -v -- me@vmi.web.away ls /")


def test_names_cannot_become_options_of_ssh_or_scp(instead):
    done = instead('echo "$@"', "scp", "-r", "--known-hosts=", "--", "-oX", "me@vmi/web:")
    assert done.stdout.endswith(" 22 -r -- -oX me@vmi.web.home:\n"), done.stderr


@pytest.mark.parametrize("module", ["click.py", "ssl.py", "corral.py"])
def test_the_working_directory_holds_nothing_that_is_run(instead, tmp_path, module):
    (tmp_path / module).write_text("open('was-run', 'w').close()\n")
    done = instead('sh -c "${2#ProxyCommand=}"', "ssh", "me@vmi/web")
    assert "error: " in done.stderr  # nobody answers there
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "was-run").exists()
