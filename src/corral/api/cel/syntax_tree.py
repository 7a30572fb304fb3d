"""The syntax tree of a checked expression, read from its serialized cel.expr.CheckedExpr.  Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from corral.api.protobuf.wire import fields, varint

UNUSED: Final = "#unused"
"""The iteration variable of a loop that only binds its initial value to a name (cel.bind)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an expression: ``kind`` is const, name, field, call, list, map or loop.

    text: the name of the function, variable or field, or the text of the constant.
    parts: the operand of a field, the arguments, the items, or of a loop its range, initial value,
        condition, step and result.
    names: of a loop its iteration variable, its accumulator, and its second iteration variable.
    characters: of a constant.
    number: its id in the checked expression.
    optional_parts: of a list or a map, the indices of parts that are left out if without a value.
    is_presence_test: whether a field is only tested for, by ``has()``.
    """

    kind: str
    text: str = ""
    parts: tuple["Node", ...] = ()
    names: tuple[str, str, str] = ("", "", "")
    characters: int = 0
    number: int = 0
    optional_parts: frozenset[int] = frozenset()
    is_presence_test: bool = False


def read(serialized: bytes) -> Node:
    """Read the tree of a serialized checked expression."""
    return _node(_bytes(_checked(serialized)[4]))


def position(serialized: bytes, text: str, node: Node) -> tuple[int, int]:
    """Return the line and the column of a node in the text, from 1."""
    offset = offsets(serialized).get(node.number, 0)
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def offsets(serialized: bytes) -> dict[int, int]:
    """Return the offsets of nodes in the text, in characters, by node number."""
    found = {}
    for number, raw in fields(_bytes(_checked(serialized).get(5, b""))):
        if number == 4:  # SourceInfo.positions
            entry = dict(fields(_bytes(raw)))
            found[int(entry.get(1, 0))] = int(entry.get(2, 0))
    return found


def optionals(serialized: bytes) -> frozenset[int]:
    """Return the numbers of all nodes whose value is an optional, or contains one."""
    if _OPTIONAL not in serialized:
        return frozenset()
    found = set()
    for number, raw in fields(_wrapped(serialized)):
        if number == 3 and _OPTIONAL in _bytes(raw):  # CheckedExpr.type_map
            found.add(int(dict(fields(_bytes(raw))).get(1, 0)))
    return frozenset(found)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    for part in node.parts:
        yield from walk(part)


def _wrapped(serialized: bytes) -> bytes:
    """Return the message in a ``google.protobuf.Any``."""
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
    message_fields = dict(fields(message))
    longest = max(
        (len(raw) for raw in message_fields.values() if isinstance(raw, bytes)), default=0
    )
    text = _bytes(message_fields.get(6, b"")).decode(errors="replace")
    return Node("const", text, characters=longest, number=number)


def _identifier(message: bytes, number: int) -> Node:
    return Node("name", _text(dict(fields(message)).get(1, b"")), number=number)


def _field(message: bytes, number: int) -> Node:
    message_fields = dict(fields(message))
    parts = (_node(_bytes(message_fields[1])),)
    return Node(
        "field",
        _text(message_fields.get(2, b"")),
        parts,
        number=number,
        is_presence_test=bool(message_fields.get(3)),
    )


def _call(message: bytes, number: int) -> Node:
    message_fields = dict(fields(message))
    parts = [_node(_bytes(message_fields[1]))] if 1 in message_fields else []
    parts += [_node(_bytes(raw)) for at, raw in fields(message) if at == 3]
    return Node("call", _text(message_fields.get(2, b"")), tuple(parts), number=number)


def _list(message: bytes, number: int) -> Node:
    items = [_node(_bytes(raw)) for at, raw in fields(message) if at == 1]
    optional_parts: set[int] = set()
    for at, raw in fields(message):
        if at == 2:  # CreateList.optional_indices, packed or not
            optional_parts |= {raw} if isinstance(raw, int) else set(_numbers(raw))
    return Node("list", parts=tuple(items), number=number, optional_parts=frozenset(optional_parts))


def _map(message: bytes, number: int) -> Node:
    entries = [dict(fields(_bytes(raw))) for at, raw in fields(message) if at == 2]
    parts = [_node(_bytes(each.get(at, b""))) for each in entries for at in (3, 4)]
    optional_parts = frozenset(2 * index + 1 for index, each in enumerate(entries) if each.get(5))
    return Node("map", parts=tuple(parts), number=number, optional_parts=optional_parts)


def _loop(message: bytes, number: int) -> Node:
    message_fields = dict(fields(message))
    item, accumulator, second = (_text(message_fields.get(at, b"")) for at in (1, 3, 8))
    parts = tuple(_node(_bytes(message_fields.get(at, b""))) for at in (2, 4, 5, 6, 7))
    return Node("loop", parts=parts, names=(item, accumulator, second), number=number)


_OPTIONAL: Final = b"optional_type"
_READERS: Final[Mapping[int, Callable[[bytes, int], Node]]] = {
    3: _const,
    4: _identifier,
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
