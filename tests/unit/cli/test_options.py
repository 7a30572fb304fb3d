"""The grammar of commands, as virtctl's: flags with values, options before the command."""

import click
import pytest

from corral.cli.main import corral, run
from corral.cli.options import Command


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (False, "", ())),
        (["--on"], (True, "", ())),
        (["--on=true"], (True, "", ())),
        (["--on=1"], (True, "", ())),
        (["--on=FALSE"], (False, "", ())),
        (["--on", "vmi/web", "22"], (True, "", ("vmi/web", "22"))),
        (["--text=true"], (False, "true", ())),
        (["--", "--on=true"], (False, "", ("--on=true",))),
    ],
)
def test_flags_may_have_values(arguments, expected):
    seen = []

    @click.command(cls=Command)
    @click.option("--on", is_flag=True)
    @click.option("--text", default="")
    @click.argument("rest", nargs=-1)
    def command(*, on, text, rest):
        seen.append((on, text, rest))

    command.main(arguments, standalone_mode=False)
    assert seen == [expected]


def test_an_invalid_value_of_a_flag_is_rejected(capsys, nobody_home):
    assert run(["port-forward", "--stdio=maybe", "vmi/x", "22"]) == 2
    assert "--stdio" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "namespace"),
    [
        (["guestosinfo", "web"], "home"),
        (["-n", "early", "guestosinfo", "web"], "early"),
        (["-n", "early", "guestosinfo", "-n", "late", "web"], "late"),
        (["--context", "other", "guestosinfo", "web"], "away"),
        (["guestosinfo", "web", "--context=other"], "away"),
    ],
)
def test_the_namespace_is_by_option_then_context(arguments, namespace, nobody_home, monkeypatch):
    namespaces = []
    monkeypatch.setattr(
        "corral.cli.virtctl.guest._show", lambda session, *_: namespaces.append(session.namespace)
    )
    assert run(arguments) == 0
    assert namespaces == [namespace]


@pytest.mark.parametrize(
    "arguments",
    [
        ["console", "web", "--timeout", "1s"],
        ["port-forward", "vmi/web", "--stdio", "22"],
        ["vnc", "web", "--proxy-only"],
        ["vnc", "screenshot", "web", "--file", "-"],
        ["expose", "vmi", "web", "--name", "s", "--port", "1"],
        ["guestosinfo", "web"],
        ["pause", "vmi", "web"],
        ["unpause", "vm", "web"],
        ["soft-reboot", "web"],
        ["softreboot", "web"],
        ["reset", "web"],
        ["evacuate-cancel", "vmi", "web"],
        ["evacuate-cancel", "node", "one"],
    ],
)
def test_an_unreachable_cluster_is_an_error(arguments, nobody_home, capsys):
    assert run(arguments) == 1
    output = capsys.readouterr().err
    assert "127.0.0.1:1 does not answer" in output
    assert "corral up" in output
    assert "Traceback" not in output


def test_a_missing_context_is_an_error(nobody_home, capsys):
    assert run(["--context", "no-such", "guestosinfo", "web"]) == 1
    assert 'contexts has no entry named "no-such"' in capsys.readouterr().err


def _helps(command, path=()):
    """Yield the help of a command and of all its subcommands, by name."""
    context = click.Context(command, info_name=" ".join(("corral", *path)), terminal_width=80)
    yield " ".join(path), command.get_help(context)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from _helps(command.get_command(context, name), (*path, name))


def test_help_is_complete_in_80_columns():
    helps = dict(_helps(corral))
    assert {"", "up", "image", "image pull", "create vm"} <= helps.keys()
    for name, text in helps.items():
        _usage, _, body = text.partition("\n\n")
        faults = [line for line in text.splitlines() if len(line) > 80]
        faults += [line for line in body.splitlines() if line.endswith("...") or "RANGE" in line]
        assert faults == [], name
    assert "--machine [qemu|hollow]" in helps["up"]


def test_the_exit_code_is_that_of_the_command(monkeypatch):
    @click.command()
    def version():
        raise click.exceptions.Exit(7)

    monkeypatch.setattr("corral.cli.manager.version.version", version)
    assert run(["version"]) == 7
    assert run(["--help"]) == 0
