"""Timestamps, durations and bytes that objects hold as text, converted within expressions.

The library does not accept such values as input.  So they (and lists and maps of them) are passed
as texts, and the checked expression is rewritten: where it reads one, it calls a function that
parses it.  The result type of a function in Python has to be declared, so functions that return
items of a list have a variant for each of these types.  The names begin with ``@``, which users
cannot write.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import chain
from typing import Any, Final

from corral.api.cel.function import Function
from corral.api.cel.lists import distinct, maximum, minimum, reverse, slice_of
from corral.api.cel.syntax_tree import UNUSED
from corral.api.protobuf.wire import block, fields, number
from corral.api.time import parse_duration, parse_rfc3339

_PARTS: Final[Mapping[int, tuple[int, ...]]] = {
    5: (1,),  # the operand of a field selection
    6: (1, 3),  # the receiver and the arguments of a call
    7: (1,),  # the items of a list
    8: (2,),  # the entries of a map
    9: (2, 4, 5, 6, 7),  # the parts of a loop
}
"""Field numbers of subexpressions, by the field number of the expression's kind (cel.expr.Expr)."""
_MIN: Final = datetime.min.replace(tzinfo=UTC)
_OTHER_ZONE: Final = timezone(timedelta(hours=1))
_EXACT_YEARS: Final = range(1500, 2500)
_ENTRY_PARTS: Final = (3, 4)
_VALUE: Final = b"@value"
_NEW: Final = 1 << 32
"""Added to a node's number for the node that wraps it."""


def _timestamp(text: str) -> datetime:
    if len(text) == len("2006-01-02"):
        return _convertible(datetime.fromisoformat(text).replace(tzinfo=UTC))
    return _convertible(parse_rfc3339(text))


def _convertible(moment: datetime) -> datetime:
    """Return a moment that the library converts correctly.

    It takes ``datetime.min`` for no value, unless in another time zone; and it computes the second
    with a float that is too coarse for microseconds in distant years.
    """
    if moment == _MIN:
        return moment.astimezone(_OTHER_ZONE)
    if moment.year in _EXACT_YEARS:
        return moment
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _duration(text: str) -> timedelta:
    return timedelta(seconds=parse_duration(text))


def _parser(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return a function that parses texts, also in lists and maps; parsed values are kept."""

    def parse_all(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, list):
            return [parse_all(each) for each in value]
        if isinstance(value, dict):
            return {key: parse_all(each) for key, each in value.items()}
        return value

    return parse_all


_PARSERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timestamp": _parser(_timestamp),
    "duration": _parser(_duration),
    "bytes": _parser(base64.b64decode),
}
SHAPES: Final = ("list", "map", "list_list", "list_map", "map_list", "map_map")
"""The collections that are converted as a whole: texts that nest deeper are not."""
FORMAT_TYPES: Final[Mapping[str, str]] = {
    "date": "timestamp",
    "date-time": "timestamp",
    "duration": "duration",
    "byte": "bytes",
}
"""The type of a text of an OpenAPI format."""
_ITEMS: Final = {"min": minimum, "max": maximum}
_LISTS: Final[Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]]] = {
    "slice": (("int", "int"), slice_of),
    "sort": ((), sorted),
    "distinct": ((), distinct),
    "reverse": ((), reverse),
}


def _applied_to(
    parse: Callable[[Any], Any], implementation: Callable[..., Any]
) -> Callable[..., Any]:
    return lambda items, *more: implementation(parse(items), *more)


def _functions(kind: str, parse: Callable[[Any], Any]) -> Iterator[Function]:
    """Yield the functions that return a type, or a collection of it."""
    for parameter in ("string", kind):  # other types would only be copied to Python and back
        yield Function(f"@{kind}", (parameter,), kind, parse, is_method=False)
    for name, implementation in _ITEMS.items():
        yield Function(
            f"@{kind}.{name}", ("list",), kind, _applied_to(parse, implementation), is_method=False
        )
    for shape in SHAPES:
        form = f"{shape}_{kind}"
        yield Function(f"@{form}", ("dyn",), form, parse, is_method=False)
        for name, (more, implementation) in _LISTS.items():
            if shape.startswith("list"):
                parameters = ("list", *more)
                yield Function(
                    f"@{form}.{name}",
                    parameters,
                    form,
                    _applied_to(parse, implementation),
                    is_method=False,
                )


def _sum(items: Sequence[timedelta]) -> timedelta:
    return sum(items, timedelta())


CONVERSIONS: Final = (
    *chain.from_iterable(_functions(kind, parse) for kind, parse in _PARSERS.items()),
    Function(
        "@duration.sum",
        ("list",),
        "duration",
        _applied_to(_PARSERS["duration"], _sum),
        is_method=False,
    ),
)
_NAMES: Final = frozenset(each.name for each in CONVERSIONS)


def parser_of(form: str) -> str:
    """Return the name of the function that parses a type as ``list_timestamp``; "" if none."""
    return name if (name := f"@{form}") in _NAMES else ""


def variant_of(function: str, form: str) -> str:
    """Return the variant of a list function that returns a type; "" if there is none."""
    return name if (name := f"@{form}.{function}") in _NAMES else ""


def rewritten(serialized: bytes, calls: Mapping[int, str]) -> bytes:
    """Rewrite a checked expression: pass some nodes, by their numbers, to functions.

    A name with a dot is the variant of a called function, which replaces it.
    """
    rewrite = partial(_within, parts=(4,), rewrite=partial(_expression, calls=calls))
    return _within(serialized, (2,), rewrite)


def _expression(message: bytes, calls: Mapping[int, str]) -> bytes:
    own, rewritten_fields = 0, []
    for at, raw in fields(message):
        if at == 2 and isinstance(raw, int):
            own = raw
        if at == 8 and isinstance(raw, bytes):
            entries = partial(
                _within, parts=_ENTRY_PARTS, rewrite=partial(_expression, calls=calls)
            )
            rewritten_fields.append(block(at, _within(raw, _PARTS[at], entries)))
        elif at in _PARTS and isinstance(raw, bytes):
            rewritten_fields.append(
                block(at, _within(raw, _PARTS[at], partial(_expression, calls=calls)))
            )
        else:
            rewritten_fields.append(_field(at, raw))
    expression = b"".join(rewritten_fields)
    if own not in calls:
        return expression
    name = calls[own]
    rewrite = _renamed if "." in name else _parsed
    return number(2, own + _NEW) + rewrite(expression, name)


def _renamed(expression: bytes, name: str) -> bytes:
    """Return a call expression with another function, which is no method."""
    call = next(raw for at, raw in fields(expression) if at == 6 and isinstance(raw, bytes))
    return _call(
        name, *(raw for at, raw in fields(call) if at in _PARTS[6] if isinstance(raw, bytes))
    )


def _parsed(expression: bytes, parser: str) -> bytes:
    """Return the call of a parser with an expression's value; null stays null.

    The value is bound to a name as ``cel.bind`` does it: by a loop without iterations.
    """
    null, never, nothing = block(3, number(1, 0)), block(3, number(2, 0)), block(7, b"")
    value = block(4, block(1, _VALUE))
    parse = _call("_?_:_", _call("_==_", value, null), null, _call(parser, value))
    parts = (UNUSED.encode(), nothing, _VALUE, expression, never, value, parse)
    return block(9, b"".join(block(at, slice_of) for at, slice_of in enumerate(parts, 1)))


def _call(function: str, *parts: bytes) -> bytes:
    return block(
        6, block(2, function.encode()) + b"".join(block(3, slice_of) for slice_of in parts)
    )


def _within(message: bytes, parts: Sequence[int], rewrite: Callable[[bytes], bytes]) -> bytes:
    """Return a message in which some fields are rewritten."""
    return b"".join(
        block(at, rewrite(raw)) if at in parts and isinstance(raw, bytes) else _field(at, raw)
        for at, raw in fields(message)
    )


def _field(at: int, raw: int | bytes) -> bytes:
    return number(at, raw) if isinstance(raw, int) else block(at, raw)
