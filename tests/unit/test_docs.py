"""What the documents tell people to type exists."""

import re
import shlex
from pathlib import Path

import click
import pytest

from corral.cli.main import COMMANDS, corral

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def typed() -> list[str]:
    """Every line after a prompt in the documents' console blocks, without its comment."""
    found = []
    for document in DOCUMENTS:
        for block in re.findall(r"```console\n(.*?)```", document.read_text(), re.DOTALL):
            found += re.findall(r"^[$#] (.*?)(?:  +#.*)?$", block, re.MULTILINE)
    return found


CORRAL = [line for line in typed() if line.startswith("corral ")]


def test_the_documents_show_commands():
    assert len(CORRAL) > 8


@pytest.mark.parametrize("line", CORRAL)
def test_commands_in_documents_are_understood(line):
    parse(corral, shlex.split(line.partition(" | ")[0])[1:])


def parse(command: click.Command, arguments: list[str]) -> None:
    """Parse as click would, without running anything; a wrong option or argument raises."""
    context = click.Context(command, info_name=command.name)
    if isinstance(command, click.Group):
        command.parse_args(context, arguments)
        name, found, rest = command.resolve_command(context, arguments)
        assert found is not None, name
        parse(found, rest)
    else:
        command.make_parser(context).parse_args(list(arguments))


@pytest.mark.parametrize("file", re.findall(r"examples/[\w.-]+\.yaml", "\n".join(typed())))
def test_examples_in_documents_exist(file):
    assert (ROOT / file).exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_in_documents_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    command = corral.get_command(click.Context(corral), name)
    assert command is not None
    if isinstance(command, click.Group):
        assert all(each.epilog for each in command.commands.values())
    else:
        assert command.help
        assert command.epilog
        assert "Example:" in command.epilog
