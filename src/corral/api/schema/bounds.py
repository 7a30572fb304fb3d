"""Bounds of a value besides its type: limits, patterns, formats, enumerations."""

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
"""Checks a value of the right type at a path; returns a cause if it is invalid."""

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_TOLERANCE: Final = 1e-9
_CACHED_MATCHES: Final = 256
"""Cached results of matching values with a pattern."""
_CACHED_LENGTH: Final = 256
"""Characters of a value whose result is cached."""


def bounds_of(schema: Mapping[str, Any], *, foreign: bool = False) -> tuple[Bound, ...]:
    """Return the bounds that a schema sets.

    Keywords for values of another type than the schema's have no effect, as in JSON Schema.
    ``foreign`` schemas are users': their patterns must take linear time.
    """
    applicable = _TYPE_KEYWORDS.get(schema.get("type", ""), _TYPED_KEYWORDS)
    schema = {
        word: value
        for word, value in schema.items()
        if word in applicable or word not in _TYPED_KEYWORDS
    }
    tests = [make(schema[word]) for word, make in _KEYWORDS.items() if word in schema]
    if "pattern" in schema:
        tests.append(
            _linear_pattern(schema["pattern"]) if foreign else _trusted_pattern(schema["pattern"])
        )
    tests += _bounds(schema)
    if schema.get("format") in FORMATS:
        tests.append(_format(schema["format"]))
    is_whole = schema.get("type") == "integer"
    if is_whole and not ("minimum" in schema and "maximum" in schema):
        tests.append(_in_32_bits if schema.get("format") == "int32" else _in_64_bits)
    if _is_int_or_string(schema) and not foreign:
        tests.append(_number_in_32_bits)
    return tuple(tests)


def _is_int_or_string(schema: Mapping[str, Any]) -> bool:
    """Report whether a schema is Kubernetes' IntOrString; quantities differ by their pattern."""
    return bool(schema.get("x-kubernetes-int-or-string")) and "pattern" not in schema


def run(tests: tuple[Bound, ...], value: Any, path: str, causes: list[Cause]) -> None:
    for test in tests:
        if (cause := test(value, path)) is not None:
            causes.append(cause)  # noqa: PERF401 (append may raise)


def _enumerated(values: list[Any]) -> Bound:
    supported = ", ".join(shown(value) for value in values)

    def test(value: Any, path: str) -> Cause | None:
        if value in values if isinstance(value, str) else any(same(value, e) for e in values):
            return None
        message = f"Unsupported value: {shown(value)}: supported values: {supported}"
        return Cause(path, message, "FieldValueNotSupported")

    return test


def _trusted_pattern(pattern: str) -> Bound:
    # Unlike in Go, $ in Python also matches before a trailing newline.
    return _matching(pattern, re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII).search)


def _linear_pattern(pattern: str) -> Bound:
    """Return the bound of a pattern by RE2, as Go has it: linear in the length of the text."""

    def search(value: str) -> bool:
        try:
            return bool(_matcher().run({"text": value, "pattern": pattern}))
        except CelError:  # the text is too long to be matched
            return False

    cached = lru_cache(maxsize=_CACHED_MATCHES)(search)  # most objects have the same few values

    def matches(value: str) -> bool:
        return cached(value) if len(value) <= _CACHED_LENGTH else search(value)

    return _matching(pattern, matches)


@cache
def _matcher() -> Program:
    return compile_expression("text.matches(pattern)", {"text": "string", "pattern": "string"})


def pattern_fault(pattern: str) -> str:
    """Return why a foreign schema's pattern cannot be compiled; "" if it can."""
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
    """Report whether a value is a multiple, within the precision of floats: 0.3 of 0.1."""
    times = value / of
    if not isfinite(times):
        return False
    return abs(times - round(times)) <= _TOLERANCE * abs(times)


def _compared(fault: str, fits: Callable[[Any], bool]) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if isinstance(value, str) or fits(value):
            return None
        return invalid(value, path, fault)

    return test


def _number(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def _at_least(what: str) -> Callable[[int], Bound]:
    def make(minimum: int) -> Bound:
        def test(value: Any, path: str) -> Cause | None:
            if isinstance(value, int) or len(value) >= minimum:  # an int of an IntOrString
                return None
            return invalid(value, path, f"should {what.format(minimum)}")

        return test

    return make


def _not_too_long(maximum: int) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if isinstance(value, int) or len(value) <= maximum:
            return None
        message = f"Too long: may not be more than {maximum} bytes"
        return Cause(path, message, "FieldValueTooLong")

    return test


def _not_too_many(maximum: int) -> Bound:
    def test(value: Any, path: str) -> Cause | None:
        if isinstance(value, int | str) or len(value) <= maximum:
            return None
        message = f"Too many: {len(value)}: must have at most {maximum} items"
        return Cause(path, message, "FieldValueTooMany")

    return test


def _format(name: str) -> Bound:
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
STRING_KEYWORDS: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
NUMBER_KEYWORDS: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
LIST_KEYWORDS: Final = frozenset({"minItems", "maxItems"})
OBJECT_KEYWORDS: Final = frozenset({"minProperties", "maxProperties"})
"""Keywords for values of one type only."""
_TYPED_KEYWORDS: Final = STRING_KEYWORDS | NUMBER_KEYWORDS | LIST_KEYWORDS | OBJECT_KEYWORDS
_TYPE_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": STRING_KEYWORDS,
    "integer": NUMBER_KEYWORDS | {"format"},
    "number": NUMBER_KEYWORDS | {"format"},
    "boolean": frozenset(),
    "array": LIST_KEYWORDS,
    "object": OBJECT_KEYWORDS,
}
