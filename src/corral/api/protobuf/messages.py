"""Which field of which message has which number: the table in ``messages.txt``.

``@core.v1 v1`` begins the messages of a package, and says which apiVersion its kinds have.  Below
it stands a message a line, a star behind the names of kinds, and then its fields:

    name=8:t    number 8, of the type t      ?    a pointer in Go: told where it is set, zero or not
    name=8[]t   a list of such               !    JSON tells it where it is zero, too
    name=8{}t   a map from texts to such     +=   fields of the message are the object's own in JSON

Types are messages, of the same package unless another one is named, or

    s  text     b  whether    y  bytes         t  Time         q  Quantity       w  texts
    i  int32    l  int64      d  double        u  MicroTime    x  IntOrString    j  JSON as it is

The table is made by ``tools/protobuf_messages.py``, of facts: nothing of it is written by hand.  It
is read when the first request needs it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

_META: Final = "meta.v1"
_META_VERSIONS: Final = ("v1", "meta.k8s.io/v1")
_FIELD: Final = re.compile(r"(\S+)=(\d+)(:|\[\]|\{\})([A-Za-z0-9.]+)(\??)(!?)")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message; the name of an ``inlined`` one stands nowhere.

    ``keeps_zero``: it is told where its value is zero, too.
    """

    name: str
    number: int
    shape: str
    type: str
    is_pointer: bool
    inlined: bool
    is_message: bool
    keeps_zero: bool


class Message:
    """The fields of a message by their numbers, lowest first."""

    def __init__(self, name: str, line: str) -> None:
        package = name.rpartition(".")[0]
        found = (_field(package, match.groups()) for match in _FIELD.finditer(line))
        self.name = name
        self.fields = {each.number: each for each in sorted(found, key=lambda each: each.number)}


def _field(package: str, found: tuple[str, ...]) -> Field:
    name, number, shape, type_name, pointer, zero = found
    full = f"{package}.{type_name}" if type_name[:1].isupper() else type_name
    return Field(
        name,
        int(number),
        shape,
        full,
        is_pointer=bool(pointer),
        inlined=name == "+",
        is_message="." in full,
        keeps_zero=bool(pointer or zero) or "." in full,
    )


class _Table(NamedTuple):
    lines: Mapping[str, str]
    kinds: frozenset[str]
    packages: Mapping[str, str]
    """By the apiVersion of their kinds."""


@cache
def _table() -> _Table:
    text = resources.files(__package__).joinpath("messages.txt").read_text()
    lines: dict[str, str] = {}
    packages: dict[str, str] = {}
    kinds = set()
    package = ""
    for line in text.splitlines():
        name, _, fields = line.partition(" ")
        if name.startswith("@"):
            package = packages[fields] = name[1:]
        elif name and not name.startswith("#"):
            full = f"{package}.{name.rstrip('*')}"
            lines[full] = fields
            if name.endswith("*"):
                kinds.add(full)
    return _Table(lines, frozenset(kinds), packages)


def kind_message(api_version: str, kind: str) -> str | None:
    """The name of the message that a kind is; None for kinds that have no such form."""
    table = _table()
    package = table.packages.get(api_version, "")
    if f"{package}.{kind}" in table.kinds:
        return f"{package}.{kind}"
    # Kinds that are no group's own are of the first version, and of meta.k8s.io.
    # Typed clients name the group of the kind that they delete: each has these options, too.
    meta = f"{_META}.{kind}"
    is_meta = api_version in _META_VERSIONS or kind == "DeleteOptions"
    return meta if is_meta and meta in table.kinds else None


@cache
def message(name: str) -> Message:
    """A message by its full name: ``core.v1.Pod``."""
    return Message(name, _table().lines[name])


def all_kinds() -> Iterator[tuple[str, str]]:
    """The apiVersion and the name of every kind of the table, for tests of it."""
    for version, package in _table().packages.items():
        own = f"{package}."
        yield from ((version, name[len(own) :]) for name in _table().kinds if name.startswith(own))


def all_messages() -> Mapping[str, Message]:
    """Every message of the table, for tests of it."""
    return {name: message(name) for name in _table().lines}
