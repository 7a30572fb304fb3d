"""A checked expression as a tree, read from how the library serializes it.  Pure.

The form is that of ``cel.expr.CheckedExpr``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from corral.api.protobuf.wire import fields, varint

UNUSED: Final = "#unused"
"""The variable of a loop's rounds where it has none, as it binds what it begins with to a name."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: ``kind`` is const, name, field, call, list, map or loop.

    text: the function's, the variable's or the field's name, or the constant's text.
    parts: what a field is selected from, the arguments, the items, or of a loop its range, start,
        condition, step and result.
    names: of a loop the variable of a round, of what it gathers, and the second of a round, if any.
    letters: of a constant.
    number: by which ``place`` and ``optionals`` know it.
    perhaps: of a list or a map the parts that are only there if they have a value.
    is_asked: of a field, that it is only asked whether it is there.
    """

    kind: str
    text: str = ""
    parts: tuple["Node", ...] = ()
    names: tuple[str, str, str] = ("", "", "")
    letters: int = 0
    number: int = 0
    perhaps: frozenset[int] = frozenset()
    is_asked: bool = False


def read(serialized: bytes) -> Node:
    """The expression in a checked one."""
    return _node(_bytes(_checked(serialized)[4]))


def place(serialized: bytes, text: str, node: Node) -> tuple[int, int]:
    """The line and the column, from 1, at which a part of an expression stands in its text."""
    offset = offsets(serialized).get(node.number, 0)
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def offsets(serialized: bytes) -> dict[int, int]:
    """How many letters stand before each part of an expression, by their numbers."""
    found = {}
    for number, raw in fields(_bytes(_checked(serialized).get(5, b""))):
        if number == 4:  # SourceInfo.positions
            entry = dict(fields(_bytes(raw)))
            found[int(entry.get(1, 0))] = int(entry.get(2, 0))
    return found


def optionals(serialized: bytes) -> frozenset[int]:
    """The numbers of all parts that are optional values, or hold some."""
    if _OPTIONAL not in serialized:
        return frozenset()
    found = set()
    for number, raw in fields(_wrapped(serialized)):
        if number == 3 and _OPTIONAL in _bytes(raw):  # CheckedExpr.type_map
            found.add(int(dict(fields(_bytes(raw))).get(1, 0)))
    return frozenset(found)


def walk(node: Node) -> Iterator[Node]:
    """A part, and all within it."""
    yield node
    for part in node.parts:
        yield from walk(part)


def _wrapped(serialized: bytes) -> bytes:
    """The message in a ``google.protobuf.Any``."""
    return _bytes(dict(fields(serialized))[2])


def _checked(serialized: bytes) -> dict[int, int | bytes]:
    return dict(fields(_wrapped(serialized)))


def _node(message: bytes) -> Node:
    node_number = 0
    for number, raw in fields(message):
        if number == 2:
            node_number = int(raw)
        elif number in _READERS:
            return _READERS[number](_bytes(raw), node_number)
    return Node("const")


def _const(message: bytes, number: int) -> Node:
    told = dict(fields(message))
    longest = max((len(raw) for raw in told.values() if isinstance(raw, bytes)), default=0)
    text = _bytes(told.get(6, b"")).decode(errors="replace")
    return Node("const", text, letters=longest, number=number)


def _name(message: bytes, number: int) -> Node:
    return Node("name", _text(dict(fields(message)).get(1, b"")), number=number)


def _field(message: bytes, number: int) -> Node:
    told = dict(fields(message))
    parts = (_node(_bytes(told[1])),)
    return Node("field", _text(told.get(2, b"")), parts, number=number, is_asked=bool(told.get(3)))


def _call(message: bytes, number: int) -> Node:
    told = dict(fields(message))
    parts = [_node(_bytes(told[1]))] if 1 in told else []
    parts += [_node(_bytes(raw)) for at, raw in fields(message) if at == 3]
    return Node("call", _text(told.get(2, b"")), tuple(parts), number=number)


def _list(message: bytes, number: int) -> Node:
    items = [_node(_bytes(raw)) for at, raw in fields(message) if at == 1]
    perhaps: set[int] = set()
    for at, raw in fields(message):
        if at == 2:  # CreateList.optional_indices, packed or not
            perhaps |= {raw} if isinstance(raw, int) else set(_numbers(raw))
    return Node("list", parts=tuple(items), number=number, perhaps=frozenset(perhaps))


def _map(message: bytes, number: int) -> Node:
    entries = [dict(fields(_bytes(raw))) for at, raw in fields(message) if at == 2]
    parts = [_node(_bytes(each.get(at, b""))) for each in entries for at in (3, 4)]
    perhaps = frozenset(2 * index + 1 for index, each in enumerate(entries) if each.get(5))
    return Node("map", parts=tuple(parts), number=number, perhaps=perhaps)


def _loop(message: bytes, number: int) -> Node:
    told = dict(fields(message))
    item, gathered, second = (_text(told.get(at, b"")) for at in (1, 3, 8))
    parts = tuple(_node(_bytes(told.get(at, b""))) for at in (2, 4, 5, 6, 7))
    return Node("loop", parts=parts, names=(item, gathered, second), number=number)


_OPTIONAL: Final = b"optional_type"
_READERS: Final[Mapping[int, Callable[[bytes, int], Node]]] = {
    3: _const,
    4: _name,
    5: _field,
    6: _call,
    7: _list,
    8: _map,
    9: _loop,
}


def _numbers(packed: bytes) -> Iterator[int]:
    at = 0
    while at < len(packed):
        number, at = varint(packed, at)
        yield number


def _bytes(raw: int | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else b""


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()
