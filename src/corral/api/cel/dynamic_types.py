"""Types in an expression whose variables may hold anything, by what its user knows of its parts.

The library takes types of variables alone.  So a part of which the type is known (``self.name``) is
replaced, in the text, by a variable of that type that has as many letters: what the library says of
the one text, and where, holds of the other.
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
"""What parts are known to be; ``list_int`` is a list of such."""
_FEWEST, _MOST = 2, 96
"""Letters of a part."""
_FAULT: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_WORDS: Final = (
    ("google.protobuf.Timestamp", "timestamp"),
    ("google.protobuf.Duration", "duration"),
    ("null_type", "null"),
)
"""Types as the library has them, and as Kubernetes tells them."""
_NUMBERS: Final = re.compile(
    r".*'_(<|<=|>|>=)_' applied to '\((int|uint|double), (int|uint|double)\)'"
)
"""Kubernetes compares numbers of all types, which the library's types do not know of."""


class Fault(NamedTuple):
    """What is wrong at a line and a column, from 1."""

    line: int
    column: int
    why: str


@cache
def variables() -> Mapping[str, str]:
    """All that may stand in for a part, and their types."""
    lengths = range(_FEWEST, _MOST + 1)
    return {_name(told, length): told for told, length in product(TYPES, lengths)}


def _name(told: str, length: int) -> str:
    return ascii_letters[TYPES.index(told)] + "_" * (length - 1)


def replaced(text: str, root: Node, types: Mapping[int, str], offsets: Mapping[int, int]) -> str:
    """An expression in which variables stand in for parts; ``types`` are by their numbers."""
    spans: dict[int, tuple[str, str]] = {}
    for node, path in _paths(root):
        start = offsets.get(_first(node).number, 0)
        told = types.get(node.number, "")
        longest, _told = spans.get(start, ("", ""))
        fits = _FEWEST <= len(path) <= _MOST and len(path) > len(longest)
        if told in TYPES and fits and text.startswith(path, start):
            spans[start] = path, told
    for start, (path, told) in spans.items():
        text = text[:start] + _name(told, len(path)) + text[start + len(path) :]
    return text


def _paths(node: Node) -> Iterator[tuple[Node, str]]:
    """The parts that are a variable or a field of one, with how they are written."""
    if path := _path(node):
        yield node, path
    for part in node.parts:
        yield from _paths(part)


def _path(node: Node) -> str:
    if node.kind == "name":
        return node.text
    within = _path(node.parts[0]) if node.kind == "field" and not node.is_asked else ""
    return f"{within}.{node.text}" if within else ""


def _first(node: Node) -> Node:
    return node if node.kind == "name" else _first(node.parts[0])


def faults(told: str) -> list[Fault]:
    """What the library said of types that do not fit."""
    for name, word in _WORDS:
        told = told.replace(name, word)
    found = (Fault(int(line), int(column), why) for line, column, why in _FAULT.findall(told))
    return [fault for fault in found if not _NUMBERS.fullmatch(fault.why)]
