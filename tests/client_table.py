"""The table of docs/clients.md: which client does what, as a run of the conformance tests saw it.

A test says which client it is about with ``@pytest.mark.client("lightkube")``, and what the client
does with ``@pytest.mark.does("watch")``, a word of ``DEEDS``.  Sessions of kubectl are rows
themselves, and each kubectl that was there is a column.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Self

DEEDS: Mapping[str, str] = {
    "connect": "connects with corral's kubeconfig",
    "discovery": "finds out what is served",
    "typed": "creates, reads, replaces and deletes Kubernetes' own kinds",
    "custom": "does so with replica sets, pools and machines",
    "patch": "patches: merge, strategic merge, JSON",
    "apply": "applies on the server's side, and meets conflicts",
    "list": "lists page by page, by labels and by fields",
    "watch": "watches, resumes, and begins anew when it came too late",
    "scale": "scales by `/scale`",
    "status": "writes a status",
    "crd": "brings kinds of its own, and works with them",
    "events": "writes and reads events",
    "lease": "elects a leader",
    "access": "asks what it may, and who it is",
    "logs": "reads logs",
    "exec": "runs commands in a guest",
    "forward": "forwards ports",
    "usage": "reads what pods and nodes take",
    "errors": "tells refusals as its own errors",
    "life": "runs what it was made for, from beginning to end",
}
"""The actions of clients, by the word that tests use."""

YES, NO, UNTRIED = "yes", "**no**", ""
_BEGINNING = """# Which client does what

Unmodified clients on a server of simulated machines, as the conformance tests saw them:
`./dev clients` makes this page. An empty field was not tried: most often because the client has no
such thing. At the end stands what was tried by hand.
"""
_BY_HAND = """
## Tried by hand

| client | what it does |
| --- | --- |
| client-go of Kubernetes 1.36.2 that speaks nothing but protobuf \
(`ContentType: application/vnd.kubernetes.protobuf`) | \
creates, reads, lists, watches, updates and deletes each of 57 kinds of Kubernetes |

Kinds that CustomResourceDefinitions bring, and those of KubeVirt and CDI, have no protobuf form,
here as in Kubernetes. Clients of theirs are to take JSON, too, and are given it (client-go's
default: `Accept: application/vnd.kubernetes.protobuf,application/json`). One that takes nothing
else is answered with 406.
"""


@dataclass
class Table:
    """Rows of what is done, columns of who does it, and whether it went well."""

    title: str
    rows: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    cells: dict[tuple[str, str], bool] = field(default_factory=dict)

    def add(self, row: str, column: str, *, passed: bool) -> None:
        """Several tests may be about one field: all of them must have passed."""
        if row not in self.rows:
            self.rows.append(row)
        if column not in self.columns:
            self.columns.append(column)
        self.cells[row, column] = self.cells.get((row, column), True) and passed

    def field(self, row: str, column: str) -> str:
        if (row, column) not in self.cells:
            return UNTRIED
        return YES if self.cells[row, column] else NO

    def lines(self) -> Iterator[str]:
        yield f"## {self.title}"
        yield ""
        yield _line(["", *self.columns])
        yield _line(["---", *("---" for _ in self.columns)])
        for row in self.rows:
            yield _line([row, *(self.field(row, column) for column in self.columns)])


@dataclass
class ClientTables:
    """Both tables: kubectl's sessions, and what libraries and programs do."""

    kubectl: Table = field(default_factory=lambda: Table("kubectl"))
    others: Table = field(default_factory=lambda: Table("Libraries and programs"))

    def add(self, cell: Iterable[str], *, passed: bool) -> None:
        kind, row, column = cell
        table = self.kubectl if kind == "kubectl" else self.others
        table.add(row, column, passed=passed)

    def text(self) -> str:
        deeds = list(DEEDS.values())
        self.others.rows.sort(key=deeds.index)
        self.others.columns.sort(key=str.lower)
        self.kubectl.rows.sort()
        self.kubectl.columns.sort(key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
        blocks = ("\n".join(table.lines()) for table in (self.kubectl, self.others))
        return _BEGINNING + "".join(f"\n{block}\n" for block in blocks) + _BY_HAND

    @classmethod
    def read(cls, text: str) -> Self:
        """The tables of a page that ``text`` made."""
        tables = cls()
        for block in text.split("\n## ")[1:]:
            title, _, rest = block.partition("\n")
            if title not in (tables.kubectl.title, tables.others.title):
                continue  # what was tried by hand
            head, _, *rows = [_fields(line) for line in rest.strip().splitlines()]
            table = tables.kubectl if title == tables.kubectl.title else tables.others
            for name, *fields in rows:
                for column, shown in zip(head[1:], fields, strict=True):
                    if shown != UNTRIED:
                        table.add(name, column, passed=shown == YES)
        return tables

    def differences(self, page: Self) -> list[str]:
        """Return the fields that differ from a page's; this run need not have seen all of them."""
        return [
            f"{column}: {row}: {mine.field(row, column)}, but docs/clients.md says "
            f"{theirs.field(row, column) or 'nothing'}"
            for mine, theirs in ((self.kubectl, page.kubectl), (self.others, page.others))
            for row, column in mine.cells
            if mine.field(row, column) != theirs.field(row, column)
        ]


def of_session(session: Path, kubectl: str) -> tuple[str, str, str]:
    """Return the field of a session: its first line, a comment, says what it is about."""
    first = session.read_text().partition("\n")[0]
    assert first.startswith("# "), f"{session} must begin with a comment that says what it shows"
    return "kubectl", " ".join(first.removeprefix("# ").rstrip(".").split()), kubectl


def of_client(
    distribution: str, deed: str, shown: str = "", release: str = ""
) -> tuple[str, str, str]:
    """Return the field of a test of a library; the column has the distribution's major version.

    A library that is not Python's comes with its ``release``.
    """
    major = ".".join((release or version(distribution)).split(".")[:2])
    return "client", DEEDS[deed], f"{shown or distribution} {major}"


def _line(fields: list[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _fields(line: str) -> list[str]:
    return [each.strip() for each in line.strip()[1:-1].split("|")]
