"""Parts of an expression that are texts, and stand for times, durations and bytes.

The library takes no such value but as a part of an expression.  So what is known to be written as a
text, or as a list or map of texts, is given as one, and where a checked expression looks at it, a
function is called that reads it.  What a function in Python returns must then be declared, so those
that give a list's items have a form for each of these types.  Users cannot write the names of any
of them.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import chain
from typing import Any, Final

from corral.api.cel.function import Function
from corral.api.cel.lists import backwards, distinct, least, most, part
from corral.api.cel.syntax_tree import UNUSED
from corral.api.protobuf.wire import block, fields, number
from corral.api.time import parse_duration, parse_rfc3339

_PARTS: Final[Mapping[int, tuple[int, ...]]] = {
    5: (1,),  # what a field is selected from
    6: (1, 3),  # what a function is called on, and with
    7: (1,),  # the items of a list
    8: (2,),  # the entries of a map
    9: (2, 4, 5, 6, 7),  # the parts of a loop
}
"""Where expressions are within one, by its form (cel.expr.Expr)."""
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_EAST: Final = timezone(timedelta(hours=1))
_NEAR: Final = range(1500, 2500)
_OF_ENTRY: Final = (3, 4)
_VALUE: Final = b"@value"
_NEW: Final = 1 << 32
"""What is added to a part's number for what is put around it."""


def _timestamp(text: str) -> datetime:
    if len(text) == len("2006-01-02"):
        return _finite(datetime.fromisoformat(text).replace(tzinfo=UTC))
    return _finite(parse_rfc3339(text))


def _finite(moment: datetime) -> datetime:
    """A moment as the library takes it.

    Python's first it takes for none at all, unless it is told in another zone; and it finds the
    second by a number that in far years is too coarse for microseconds.
    """
    if moment == _FIRST:
        return moment.astimezone(_EAST)
    if moment.year in _NEAR:
        return moment
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _duration(text: str) -> timedelta:
    return timedelta(seconds=parse_duration(text))


def _reads(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """What reads texts, and all in lists and maps, and lets be what was read before."""

    def reads(value: Any) -> Any:
        if isinstance(value, str):
            return read(value)
        if isinstance(value, list):
            return [reads(each) for each in value]
        if isinstance(value, dict):
            return {key: reads(each) for key, each in value.items()}
        return value

    return reads


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timestamp": _reads(_timestamp),
    "duration": _reads(_duration),
    "bytes": _reads(base64.b64decode),
}
SHAPES: Final = ("list", "map", "list_list", "list_map", "map_list", "map_map")
"""The collections that are read as a whole: what nests deeper stays texts."""
OF_FORMATS: Final[Mapping[str, str]] = {
    "date": "timestamp",
    "date-time": "timestamp",
    "duration": "duration",
    "byte": "bytes",
}
"""What a text of a format is read as."""
_ITEMS: Final = {"min": least, "max": most}
_LISTS: Final[Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]]] = {
    "slice": (("int", "int"), part),
    "sort": ((), sorted),
    "distinct": ((), distinct),
    "reverse": ((), backwards),
}


def _of(read: Callable[[Any], Any], act: Callable[..., Any]) -> Callable[..., Any]:
    return lambda items, *more: act(read(items), *more)


def _made(kind: str, read: Callable[[Any], Any]) -> Iterator[Function]:
    """The functions whose value is of a kind, or a collection of such."""
    for taken in ("string", kind):  # nothing else is taken to Python and back
        yield Function(f"@{kind}", (taken,), kind, read, is_method=False)
    for name, act in _ITEMS.items():
        yield Function(f"@{kind}.{name}", ("list",), kind, _of(read, act), is_method=False)
    for shape in SHAPES:
        form = f"{shape}_{kind}"
        yield Function(f"@{form}", ("dyn",), form, read, is_method=False)
        for name, (more, act) in _LISTS.items():
            if shape.startswith("list"):
                takes = ("list", *more)
                yield Function(f"@{form}.{name}", takes, form, _of(read, act), is_method=False)


def _sum(items: Sequence[timedelta]) -> timedelta:
    return sum(items, timedelta())


CONVERSIONS: Final = (
    *chain.from_iterable(_made(kind, read) for kind, read in _READERS.items()),
    Function(
        "@duration.sum",
        ("list",),
        "duration",
        _of(_READERS["duration"], _sum),
        is_method=False,
    ),
)
_NAMES: Final = frozenset(each.name for each in CONVERSIONS)


def reader_of(form: str) -> str:
    """What reads texts as a form, as ``list_timestamp``; empty where there is nothing."""
    return name if (name := f"@{form}") in _NAMES else ""


def variant_of(function: str, form: str) -> str:
    """What stands for a function that gives a list's items, where its value has a form."""
    return name if (name := f"@{form}.{function}") in _NAMES else ""


def converted(serialized: bytes, calls: Mapping[int, str]) -> bytes:
    """A checked expression of which some parts, by their numbers, are given to functions.

    A part that is a call becomes one of the function's variant instead, if it is named one.
    """
    make = partial(_within, parts=(4,), make=partial(_expression, calls=calls))
    return _within(serialized, (2,), make)


def _expression(message: bytes, calls: Mapping[int, str]) -> bytes:
    own, made = 0, []
    for at, raw in fields(message):
        if at == 2 and isinstance(raw, int):
            own = raw
        if at == 8 and isinstance(raw, bytes):
            entries = partial(_within, parts=_OF_ENTRY, make=partial(_expression, calls=calls))
            made.append(block(at, _within(raw, _PARTS[at], entries)))
        elif at in _PARTS and isinstance(raw, bytes):
            made.append(block(at, _within(raw, _PARTS[at], partial(_expression, calls=calls))))
        else:
            made.append(_same(at, raw))
    expression = b"".join(made)
    if own not in calls:
        return expression
    name = calls[own]
    make = _renamed if "." in name else _read
    return number(2, own + _NEW) + make(expression, name)


def _renamed(expression: bytes, name: str) -> bytes:
    """The call that an expression is, of another function, and of no method."""
    call = next(raw for at, raw in fields(expression) if at == 6 and isinstance(raw, bytes))
    return _call(
        name, *(raw for at, raw in fields(call) if at in _PARTS[6] if isinstance(raw, bytes))
    )


def _read(expression: bytes, reader: str) -> bytes:
    """What a reader makes of an expression's value; null stays null.

    The value is bound to a name, as ``cel.bind`` does it: by a loop without rounds.
    """
    null, never, nothing = block(3, number(1, 0)), block(3, number(2, 0)), block(7, b"")
    value = block(4, block(1, _VALUE))
    read = _call("_?_:_", _call("_==_", value, null), null, _call(reader, value))
    parts = (UNUSED.encode(), nothing, _VALUE, expression, never, value, read)
    return block(9, b"".join(block(at, part) for at, part in enumerate(parts, 1)))


def _call(function: str, *parts: bytes) -> bytes:
    return block(6, block(2, function.encode()) + b"".join(block(3, part) for part in parts))


def _within(message: bytes, parts: Sequence[int], make: Callable[[bytes], bytes]) -> bytes:
    """A message of which some fields are made anew."""
    return b"".join(
        block(at, make(raw)) if at in parts and isinstance(raw, bytes) else _same(at, raw)
        for at, raw in fields(message)
    )


def _same(at: int, raw: int | bytes) -> bytes:
    return number(at, raw) if isinstance(raw, int) else block(at, raw)
