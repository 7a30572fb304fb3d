"""What is asked of a value beside its type: bounds, patterns, formats, enumerations."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from math import isfinite
from typing import Any, Final

from corral.api.cel import CelError, Program, compile_expression
from corral.api.encoding import same
from corral.api.errors import Cause
from corral.api.formats import FORMATS
from corral.api.schema.causes import invalid, shown

Bound = Callable[[Any, str], Cause | None]
"""Gets a value of the right type and its path; answers what is wrong with it."""

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_NEARLY: Final = 1e-9
_REMEMBERED: Final = 256
"""Values of which it is remembered whether they match a pattern."""
_SHORT: Final = 256
"""Characters of a value that may be remembered."""


def bounds_of(schema: Mapping[str, Any], *, foreign: bool = False) -> tuple[Bound, ...]:
    """What is asked of a value beside its type.

    Words about values of other types than the schema's ask nothing, as in JSON Schema.
    ``foreign`` schemas are not ours: their patterns must not be able to keep the server busy.
    """
    about = _ABOUT.get(schema.get("type", ""), _OF_ONE_TYPE)
    schema = {
        word: told for word, told in schema.items() if word in about or word not in _OF_ONE_TYPE
    }
    tests = [make(schema[word]) for word, make in _KEYWORDS.items() if word in schema]
    if "pattern" in schema:
        tests.append(_linear(schema["pattern"]) if foreign else _patterned(schema["pattern"]))
    tests += _bounds(schema)
    if schema.get("format") in FORMATS:
        tests.append(_formatted(schema["format"]))
    is_whole = schema.get("type") == "integer"
    if is_whole and not ("minimum" in schema and "maximum" in schema):
        tests.append(_in_32_bits if schema.get("format") == "int32" else _in_64_bits)
    if _is_int_or_string(schema) and not foreign:
        tests.append(_number_in_32_bits)
    return tuple(tests)


def _is_int_or_string(schema: Mapping[str, Any]) -> bool:
    """Whether it is Kubernetes' IntOrString; quantities look like it, but for their pattern."""
    return bool(schema.get("x-kubernetes-int-or-string")) and "pattern" not in schema


def run(tests: tuple[Bound, ...], value: Any, path: str, causes: list[Cause]) -> None:
    for test in tests:
        if (cause := test(value, path)) is not None:
            causes.append(cause)  # noqa: PERF401 (it may end the search)


def _enumerated(values: list[Any]) -> Bound:
    supported = ", ".join(shown(value) for value in values)

    def test(value: Any, path: str) -> Cause | None:
        known = value in values if isinstance(value, str) else any(same(value, e) for e in values)
        if known:
            return None
        message = f"Unsupported value: {shown(value)}: supported values: {supported}"
        return Cause(path, message, "FieldValueNotSupported")

    return test


def _patterned(pattern: str) -> Bound:
    # In Python alone a dollar matches before a last line break too.
    return _matching(pattern, re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII).search)


def _linear(pattern: str) -> Bound:
    """A pattern as Go reads it, which takes no longer than the text is long."""

    def search(value: str) -> bool:
        try:
            return bool(_matcher().run({"text": value, "pattern": pattern}))
        except CelError:  # so long a text that it is not looked through
            return False

    known = lru_cache(maxsize=_REMEMBERED)(search)  # the same few values come again and again

    def matches(value: str) -> bool:
        return known(value) if len(value) <= _SHORT else search(value)

    return _matching(pattern, matches)


@cache
def _matcher() -> Program:
    return compile_expression("text.matches(pattern)", {"text": "string", "pattern": "string"})


def pattern_fault(pattern: str) -> str:
    """Why a foreign schema's pattern cannot be read; empty where it can."""
    try:
        _matcher().run({"text": "", "pattern": pattern})
    except CelError as error:
        return str(error)
    return ""


def _matching(pattern: str, matches: Callable[[str], object]) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if not isinstance(value, str) or matches(value):
            return None
        return invalid(value, path, f"should match '{pattern}'")

    return test


def _bounds(schema: Mapping[str, Any]) -> Iterator[Bound]:
    if (low := schema.get("minimum")) is not None:
        if schema.get("exclusiveMinimum"):
            yield _compared(f"should be greater than {_number(low)}", lambda value: value > low)
        else:
            fault = f"should be greater than or equal to {_number(low)}"
            yield _compared(fault, lambda value: value >= low)
    if (high := schema.get("maximum")) is not None:
        if schema.get("exclusiveMaximum"):
            yield _compared(f"should be less than {_number(high)}", lambda value: value < high)
        else:
            fault = f"should be less than or equal to {_number(high)}"
            yield _compared(fault, lambda value: value <= high)
    if by := schema.get("multipleOf"):
        fault = f"should be a multiple of {_number(by)}"
        yield _compared(fault, lambda value: _is_multiple(value, by))


def _is_multiple(value: float, of: float) -> bool:
    """As near as floats can tell: 0.3 is three times 0.1."""
    times = value / of
    if not isfinite(times):
        return False
    return abs(times - round(times)) <= _NEARLY * abs(times)


def _compared(fault: str, fits: Callable[[Any], bool]) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if isinstance(value, str) or fits(value):
            return None
        return invalid(value, path, fault)

    return test


def _number(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def _at_least(what: str) -> Callable[[int], Bound]:
    def make(least: int) -> Bound:
        def test(value: Any, path: str) -> Cause | None:
            if isinstance(value, int) or len(value) >= least:  # where there may be a text, too
                return None
            return invalid(value, path, f"should {what.format(least)}")

        return test

    return make


def _not_too_long(most: int) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if isinstance(value, int) or len(value) <= most:
            return None
        message = f"Too long: may not be more than {most} bytes"
        return Cause(path, message, "FieldValueTooLong")

    return test


def _not_too_many(most: int) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if isinstance(value, int | str) or len(value) <= most:
            return None
        message = f"Too many: {len(value)}: must have at most {most} items"
        return Cause(path, message, "FieldValueTooMany")

    return test


def _formatted(name: str) -> Bound:
    fits = FORMATS[name]

    def test(value: Any, path: str) -> Cause | None:
        if not isinstance(value, str) or fits(value):
            return None
        text = f"must be of type {name}: {shown(value)}"
        return invalid(value, path, text, "FieldValueTypeInvalid")

    return test


def _in_32_bits(value: Any, path: str) -> Cause | None:
    if -(2**31) <= value < 2**31:
        return None
    return invalid(value, path, f"should be between {-(2**31)} and {2**31 - 1}")


def _number_in_32_bits(value: Any, path: str) -> Cause | None:
    return None if isinstance(value, str) else _in_32_bits(value, path)


def _in_64_bits(value: Any, path: str) -> Cause | None:
    if _SMALLEST <= value <= _LARGEST:
        return None
    return invalid(value, path, f"should be between {_SMALLEST} and {_LARGEST}")


_KEYWORDS: Final[Mapping[str, Callable[[Any], Bound]]] = {
    "enum": _enumerated,
    "minLength": _at_least("be at least {} chars long"),
    "maxLength": _not_too_long,
    "minItems": _at_least("have at least {} items"),
    "maxItems": _not_too_many,
    "minProperties": _at_least("have at least {} properties"),
    "maxProperties": _not_too_many,
}
OF_TEXT: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
OF_NUMBERS: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
OF_LISTS: Final = frozenset({"minItems", "maxItems"})
OF_OBJECTS: Final = frozenset({"minProperties", "maxProperties"})
"""Words that say something of values of one type only."""
_OF_ONE_TYPE: Final = OF_TEXT | OF_NUMBERS | OF_LISTS | OF_OBJECTS
_ABOUT: Final[Mapping[str, frozenset[str]]] = {
    "string": OF_TEXT,
    "integer": OF_NUMBERS | {"format"},
    "number": OF_NUMBERS | {"format"},
    "boolean": frozenset(),
    "array": OF_LISTS,
    "object": OF_OBJECTS,
}
