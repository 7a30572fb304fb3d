"""Type checks of an expression with dynamic variables, from the types of some of its parts.

The library knows the types of variables only.  So a part with a known type (``self.name``) is
replaced, in the text, by a variable of that type with as many characters, which keeps the positions
in the library's errors right.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from string import ascii_letters
from typing import Final, NamedTuple

from corral.api.cel.syntax_tree import Node
from corral.api.cel.text_literals import SHAPES

SIMPLE: Final = ("bool", "bytes", "duration", "int", "string", "timestamp")
TYPES: Final = (*SIMPLE, *(f"{shape}_{kind}" for shape, kind in product(SHAPES, SIMPLE)))
"""Types of parts; ``list_int`` is a list of integers."""
_SHORTEST, _LONGEST = 2, 96
"""Characters of a part."""
_FAULT: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_WORDS: Final = (
    ("google.protobuf.Timestamp", "timestamp"),
    ("google.protobuf.Duration", "duration"),
    ("null_type", "null"),
)
"""Names of types in errors: the library's, and Kubernetes'."""
_NUMBER_COMPARISON: Final = re.compile(
    r".*'_(<|<=|>|>=)_' applied to '\((int|uint|double), (int|uint|double)\)'"
)
"""An error that Kubernetes does not report: it compares numbers of different types."""


class Fault(NamedTuple):
    """An error at a line and a column, from 1."""

    line: int
    column: int
    message: str


@cache
def variables() -> Mapping[str, str]:
    """Return all variables that may replace a part, with their types."""
    lengths = range(_SHORTEST, _LONGEST + 1)
    return {
        _variable(type_name, length): type_name for type_name, length in product(TYPES, lengths)
    }


def _variable(type_name: str, length: int) -> str:
    return ascii_letters[TYPES.index(type_name)] + "_" * (length - 1)


def replaced(text: str, root: Node, types: Mapping[int, str], offsets: Mapping[int, int]) -> str:
    """Return the text with variables in the place of parts; ``types`` are by node number."""
    spans: dict[int, tuple[str, str]] = {}
    for node, path in _paths(root):
        start = offsets.get(_root(node).number, 0)
        type_name = types.get(node.number, "")
        longest, _replaced = spans.get(start, ("", ""))
        fits = _SHORTEST <= len(path) <= _LONGEST and len(path) > len(longest)
        if type_name in TYPES and fits and text.startswith(path, start):
            spans[start] = path, type_name
    for start, (path, type_name) in spans.items():
        text = text[:start] + _variable(type_name, len(path)) + text[start + len(path) :]
    return text


def _paths(node: Node) -> Iterator[tuple[Node, str]]:
    """Yield the nodes that are a variable or a field of one, with their text."""
    if path := _path(node):
        yield node, path
    for part in node.parts:
        yield from _paths(part)


def _path(node: Node) -> str:
    if node.kind == "name":
        return node.text
    within = _path(node.parts[0]) if node.kind == "field" and not node.is_presence_test else ""
    return f"{within}.{node.text}" if within else ""


def _root(node: Node) -> Node:
    return node if node.kind == "name" else _root(node.parts[0])


def faults(text: str) -> list[Fault]:
    """Return the type errors in an error text of the library."""
    for name, word in _WORDS:
        text = text.replace(name, word)
    found = (
        Fault(int(line), int(column), message) for line, column, message in _FAULT.findall(text)
    )
    return [fault for fault in found if not _NUMBER_COMPARISON.fullmatch(fault.message)]
