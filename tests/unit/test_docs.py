"""Commands and options in the documents exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from corral import __version__
from corral.api.kinds import KINDS
from corral.cli.main import COMMANDS, corral, run

ROOT = Path(__file__).parent.parent.parent
PAGES = ("docs/*.md", "docs/guide/*.md")
DOCUMENTS = [ROOT / "README.md", *sorted(page for each in PAGES for page in ROOT.glob(each))]
REFERENCE = (ROOT / "docs/reference.md").read_text()
LINKING = [
    *DOCUMENTS,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs/adr").glob("*.md")),
]


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


def test_the_readme_installs_what_a_checkout_installs_and_what_venv_needs():
    readme = (ROOT / "README.md").read_text()
    (line,) = re.findall(r"^# (apt-get install .*)$", readme, re.MULTILINE)
    (setup,) = re.findall(r'^    system (.*?) "\$@"$', (ROOT / "dev").read_text(), re.MULTILINE)
    assert {*setup.split(), "python3-venv"} <= {*line.split()}


@pytest.mark.parametrize("file", re.findall(r"examples/[\w.-]+\.yaml", "\n".join(typed())))
def test_examples_in_documents_exist(file):
    assert (ROOT / file).exists()


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("document", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_documents_lead_somewhere(document):
    for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^):]*))?\)", document.read_text()):
        target = document.parent / path if path else document
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_of_the_guide_is_in_its_index():
    index = ROOT / "docs/guide/README.md"
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index.read_text()))
    assert linked == {page.name for page in index.parent.glob("*.md")} - {index.name}


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: f"{kind.plural}.{kind.group}")
def test_every_kind_is_in_the_reference_with_its_group_and_versions(kind):
    rows = re.findall(r"^\| (.*?) \| (.*) \| (.*) \|$", REFERENCE, re.MULTILINE)
    group = f"`{kind.group}`" if kind.group else "core"
    versions = " ".join(
        versions
        for groups, kinds, versions in rows
        if group in groups and re.search(rf"\b({kind.name}|{kind.plural})\b", kinds)
    )
    assert all(re.search(rf"\b{each.name}\b", versions) for each in kind.versions)


def test_the_newest_release_of_the_changelog_is_this_version():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(re.escape(__version__) + r" - \d{4}-\d\d-\d\d", headings[1])


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, by what is typed."""
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


LEAVES = dict(leaves(corral, ()))


def test_commands_below_commands_are_looked_at():
    assert {"up", "image pull", "create vm", "vnc"} <= LEAVES.keys()
    assert {each.split()[0] for each in LEAVES} == set(COMMANDS)


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_help_with_an_example_that_it_understands(name):
    command = LEAVES[name]
    assert command.help
    assert command.epilog
    heading, _, examples = command.epilog.partition(":\n")
    assert heading.startswith("\b\nExample")
    lines = re.findall(r"^ *corral (.*?)(?: [|>] .*| && .*)?$", examples.replace("\\\n", ""), re.M)
    assert lines
    for line in lines:
        if not line.startswith("vnc screenshot"):  # which vnc knows as a name of a machine's
            parse(corral, shlex.split(line))


@pytest.mark.parametrize("name", LEAVES)
def test_a_wrong_option_is_reported_with_the_way_to_help(name, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert run([*name.split(), "--no-such-option"]) == 2
    said = capsys.readouterr().err
    assert "--no-such-option" in said
    assert f"Try 'corral {name} --help' for help." in said


NEEDY = [name for name, each in LEAVES.items() if any(one.required for one in each.params)]


@pytest.mark.parametrize("name", NEEDY)
def test_what_is_missing_is_named(name, capsys):
    assert run(name.split()) == 2
    said = capsys.readouterr().err
    assert re.search(r"Missing (argument|option) '", said)
    assert f"Try 'corral {name} --help' for help." in said


@pytest.mark.parametrize("name", LEAVES)
def test_what_is_too_much_is_named_rather_than_met_by_a_fault(name, capsys, monkeypatch, tmp_path):
    """Fifty words are too many for everybody, but for commands that take any number of them."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("CORRAL_DATA_DIR", str(tmp_path / "data"))
    many = any(isinstance(one, click.Argument) and one.nargs == -1 for one in LEAVES[name].params)
    code = run([*name.split(), *["nonsense"] * 50])
    said = capsys.readouterr().err
    assert code in ((1, 2) if many else (2,))
    assert said.strip()
    assert "Traceback" not in said
