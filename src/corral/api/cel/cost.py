"""How much work an expression may be: a bound by the size of what it is given.  Pure.

The library bounds the rounds of loops; each round may still look through all of a long text, make a
text twice as long, or copy a long list.  A bound is reckoned from the checked expression: each
value stands for texts of at most some length in collections of at most some count, and each
function for the bytes that it looks at or makes.  One unit is about a nanosecond.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from corral.api.protobuf.wire import fields

MOST_WORK: Final = 256 << 20
MOST_ROUNDS: Final = 10_000
"""Rounds of all loops together: the library's own bound."""
ENDLESS: Final = 1 << 62
_SHORTEST = 32
_JOINING = "[_]+[_]"
_OF_ITEM = 32
"""Units for each item of a list that is copied or compared."""
_OF_LETTER = 8
"""Units for each letter that a regular expression, or a function in Python, looks at."""
_ESCAPED = 6
_OF_GIVEN = 300
"""Units to make a value of the library's from one of Python's."""


class Size(NamedTuple):
    """A text of at most so many letters, or a collection of at most so many items.

    letters: of the text, or of each text within.
    items: of the collection.
    inner: of each collection within.
    """

    letters: int
    items: int = 1
    inner: int = 1


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: ``kind`` is const, name, call, list or loop.

    text: the function's or the variable's name.
    parts: the arguments, the items, or of a loop its range, start, condition, step and result.
    names: of a loop the variable of a round, and of what it gathers.
    """

    kind: str
    text: str = ""
    parts: tuple["Node", ...] = ()
    names: tuple[str, str] = ("", "")
    letters: int = 0


# --------------------------------------------------------------------- reading


def read(serialized: bytes) -> Node:
    """The expression in a checked one, as the library serializes it (cel.expr.CheckedExpr)."""
    wrapped = dict(fields(serialized))
    checked = dict(fields(_bytes(wrapped[2])))
    return _node(_bytes(checked[4]))


def _node(message: bytes) -> Node:
    for number, raw in fields(message):
        if number in _READERS:
            return _READERS[number](_bytes(raw))
    return Node("const")


def _const(message: bytes) -> Node:
    longest = max((len(raw) for _, raw in fields(message) if isinstance(raw, bytes)), default=0)
    return Node("const", letters=longest)


def _name(message: bytes) -> Node:
    return Node("name", _bytes(dict(fields(message)).get(1, b"")).decode())


def _select(message: bytes) -> Node:
    return Node("call", "", (_node(_bytes(dict(fields(message))[1])),))


def _call(message: bytes) -> Node:
    told = dict(fields(message))
    parts = [_node(_bytes(told[1]))] if 1 in told else []
    parts += [_node(_bytes(raw)) for number, raw in fields(message) if number == 3]
    return Node("call", _bytes(told.get(2, b"")).decode(), tuple(parts))


def _list(message: bytes) -> Node:
    items = [_node(_bytes(raw)) for number, raw in fields(message) if number == 1]
    return Node("list", parts=tuple(items))


def _map(message: bytes) -> Node:
    entries = [dict(fields(_bytes(raw))) for number, raw in fields(message) if number == 2]
    parts = [_node(_bytes(each[at])) for each in entries for at in (3, 4) if at in each]
    return Node("list", parts=tuple(parts))


def _loop(message: bytes) -> Node:
    told = dict(fields(message))
    names = (_bytes(told.get(1, b"")).decode(), _bytes(told.get(3, b"")).decode())
    parts = tuple(_node(_bytes(told.get(at, b""))) for at in (2, 4, 5, 6, 7))
    return Node("loop", parts=parts, names=names)


_READERS: Mapping[int, Callable[[bytes], Node]] = {
    3: _const,
    4: _name,
    5: _select,
    6: _call,
    7: _list,
    8: _map,
    9: _loop,
}


def _bytes(raw: int | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else b""


# ------------------------------------------------------------------- reckoning


def work(node: Node, given: Size) -> int:
    """The most that an expression may be to do with values of at most such a size."""
    reckoning = _Reckoning(given)
    reckoning.size(node, {}, MOST_ROUNDS, 1)
    return min(reckoning.work, ENDLESS)


def size_of(value: Any) -> Size:
    """How large what is given to an expression is."""
    return measured(value)[0]


def measured(value: Any) -> tuple[Size, int]:
    """How large something is, and the work to give it to an expression."""
    longest, most, whole = 0, 1, 0
    left = [value]
    while left:
        each = left.pop()
        whole += _OF_GIVEN
        if isinstance(each, str | bytes):
            longest = max(longest, len(each))
            whole += len(each)
        elif isinstance(each, dict):
            most = max(most, len(each))
            left += each.keys()
            left += each.values()
        elif isinstance(each, list):
            most = max(most, len(each))
            left += each
    return Size(longest, most, most), whole


@dataclass(slots=True)
class _Reckoning:
    """Adds up the work of an expression."""

    given: Size
    work: int = 0

    def size(self, node: Node, known: Mapping[str, Size], rounds: int, times: int) -> Size:
        """How large a part's value may be.

        ``rounds`` are left for loops in it, and it is reckoned ``times`` times.
        """
        if node.kind == "const":
            return Size(node.letters)
        if node.kind == "name":
            return known.get(node.text, self.given)
        if node.kind == "loop":
            return self._loop(node, known, rounds, times)
        sizes = [self.size(part, known, rounds, times) for part in node.parts]
        if node.kind == "list":
            within = _largest_of(sizes)
            return Size(within.letters, len(sizes), max(within.items, within.inner))
        joins = node.text == "_+_" and any(part.kind == "list" for part in node.parts)
        units, size = _called(_JOINING if joins else node.text, sizes)
        self.work += min(units * times, ENDLESS)
        return size

    def _loop(self, node: Node, known: Mapping[str, Size], rounds: int, times: int) -> Size:
        over, start, condition, step, result = node.parts
        ranged = self.size(over, known, rounds, times)
        each = 0 if over.kind == "list" and not over.parts else min(ranged.items, rounds)
        begun = self.size(start, known, rounds, times)
        if each == 0:  # what binds a value to a name is a loop without rounds
            return self.size(result, {**known, node.names[1]: begun}, rounds, times)
        each_item = Size(ranged.letters, ranged.inner, ranged.inner)
        inner = {**known, node.names[0]: each_item}
        gathered = self._gathered(node, inner, begun, each)
        inner[node.names[1]] = gathered
        for part in (condition, step):
            self.size(part, inner, max(1, rounds // each), min(times * each, ENDLESS))
        return self.size(result, inner, rounds, times)

    def _gathered(self, node: Node, known: Mapping[str, Size], begun: Size, rounds: int) -> Size:
        """What a loop has gathered in the end: each round may add as much as the first."""
        apart = _Reckoning(self.given)
        step, name = node.parts[3], node.names[1]
        once = apart.size(step, {**known, name: begun}, 1, 1)
        twice = apart.size(step, {**known, name: once}, 1, 1)
        return Size(*(_grown(*sizes, rounds) for sizes in zip(begun, once, twice, strict=True)))


def _grown(begun: int, once: int, twice: int, rounds: int) -> int:
    if twice - once > max(once - begun, 0):
        return ENDLESS
    return min(once + (twice - once) * rounds, ENDLESS)


Reckon = Callable[[Sequence[Size], Size], tuple[int, Size]]
"""From the sizes of what a function is called with, and the largest in each way, to the units that
it may do, and the size of its value."""


def _answer(_sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 1, Size(1)


def _choose(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return 1, _largest_of(sizes[1:])


def _pick(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return 1, Size(largest.letters, largest.inner, largest.inner)


def _compare(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    return sum(each.letters + each.items * _OF_ITEM for each in sizes), Size(1)


def _add(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    letters, items = sum(each.letters for each in sizes), sum(each.items for each in sizes)
    return letters + items * _OF_ITEM, Size(letters, items, largest.inner)


def _join(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    items = sum(each.items for each in sizes)
    return items * _OF_ITEM, Size(largest.letters, items, largest.inner)


def _multiply(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    made = max(1, largest.items)
    for each in sizes:
        made = min(made * max(1, each.letters), ENDLESS)
    return made, Size(made)


def _replace(sizes: Sequence[Size], _largest: Size) -> tuple[int, Size]:
    text, _old, new, *_most = sizes
    made = min((text.letters + 1) * max(1, new.letters), ENDLESS)
    return made, Size(made)


def _split(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return largest.letters * _OF_ITEM, Size(largest.letters, max(1, largest.letters))


def _write(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    made = (largest.letters + _SHORTEST) * _ESCAPED
    return made, Size(made)


def _pair(_sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return (largest.items**2 + largest.letters) * _OF_LETTER, largest


def _look(sizes: Sequence[Size], largest: Size) -> tuple[int, Size]:
    return sum(each.letters for each in sizes) * _OF_LETTER, largest


_FUNCTIONS: Final[Mapping[str, Reckon]] = {
    **dict.fromkeys(("_&&_", "_||_", "!_", "@not_strictly_false", "size", "has"), _answer),
    **dict.fromkeys(("", "_[_]", "_[?_]", "_?._"), _pick),
    **dict.fromkeys(("_==_", "_!=_", "@in", "_in_"), _compare),
    **dict.fromkeys(("join", "format"), _multiply),
    "replace": _replace,
    **dict.fromkeys(("string", "bytes", "strings.quote", "reverse"), _write),
    **dict.fromkeys(("base64.encode", "base64.decode"), _write),
    **dict.fromkeys(("distinct", "indexOf", "lastIndexOf", "sort", "isSorted"), _pair),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _pair),
    "_?_:_": _choose,
    "_+_": _add,
    _JOINING: _join,
    "split": _split,
}
"""What functions may do; a field that is looked up has no name.  All others look at their texts."""


def _called(function: str, sizes: Sequence[Size]) -> tuple[int, Size]:
    return _FUNCTIONS.get(function, _look)(sizes, _largest_of(sizes))


def _largest_of(sizes: Iterable[Size]) -> Size:
    """What is as large as all of some together, in each way."""
    largest = Size(0)
    for size in sizes:
        largest = Size(*map(max, largest, size))
    return largest
