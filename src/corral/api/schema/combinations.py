"""Checks of ``allOf``, ``anyOf``, ``oneOf`` and ``not``.

Their subschemas do not define fields: they only restrict values, and only values of the type that a
keyword is for.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.schema.bounds import (
    LIST_KEYWORDS,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
    Bound,
    bounds_of,
    run,
)
from corral.api.schema.causes import Causes, TooManyCausesError, below, wrong_type

JUNCTORS: Final = ("allOf", "anyOf", "oneOf", "not")
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


def is_int_or_string(schema: Mapping[str, Any]) -> bool:
    """Report whether ``anyOf`` only repeats ``x-kubernetes-int-or-string``."""
    return schema.get("anyOf") == [{"type": "integer"}, {"type": "string"}]


class Values:
    """The checks of a subschema for values of any type."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._fields = {
            name: Values(inner) for name, inner in (schema.get("properties") or {}).items()
        }
        items, rest = schema.get("items"), schema.get("additionalProperties")
        self._items = Values(items) if isinstance(items, Mapping) else None
        self._rest = Values(rest) if isinstance(rest, Mapping) else None
        self._required: tuple[str, ...] = tuple(schema.get("required") or ())
        self._tests: dict[type, tuple[Bound, ...]] = {}
        self._junctors = Junctors(schema)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        expected = self._schema.get("type")
        if expected and (type(value) not in _TYPES.get(expected, ())):
            causes.append(wrong_type(value, path, expected))
            return
        run(self._tests_for(type(value)), value, path, causes)
        if isinstance(value, dict):
            self._check_fields(value, path, causes)
        elif isinstance(value, list) and self._items is not None:
            for index, inner in enumerate(value):
                self._items.check(inner, f"{path}[{index}]", causes)
        self._junctors.check(value, path, causes)

    def _check_fields(self, value: dict[str, Any], path: str, causes: list[Cause]) -> None:
        for name in self._required:
            if name not in value:
                cause = Cause(below(path, name), "Required value", "FieldValueRequired")
                causes.append(cause)
        for name, inner in value.items():
            node = self._fields.get(name, self._rest)
            if node is not None and inner is not None:
                node.check(inner, below(path, name), causes)

    def _tests_for(self, kind: type) -> tuple[Bound, ...]:
        tests = self._tests.get(kind)
        if tests is None:
            applicable = {"enum", *_TYPE_KEYWORDS.get(kind, ())}
            words = {word: each for word, each in self._schema.items() if word in applicable}
            tests = self._tests[kind] = bounds_of(words, foreign=True)
        return tests


class Junctors:
    """The junctors of one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
        every = list(schema.get("allOf") or ())
        if int_or_string:
            every = [each for each in every if not is_int_or_string(each) or len(each) > 1]
        some = [] if int_or_string and is_int_or_string(schema) else schema.get("anyOf") or ()
        self._all = [Values(each) for each in every]
        self._any = [Values(each) for each in some]
        self._one = [Values(each) for each in schema.get("oneOf") or ()]
        self._not = Values(schema["not"]) if schema.get("not") is not None else None

    def __bool__(self) -> bool:
        return bool(self._all or self._any or self._one or self._not)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if self._any:
            self._check_any(value, path, causes)
        if self._one:
            self._check_one(value, path, causes)
        if self._all:
            self._check_all(value, path, causes)
        if self._not is not None and not _faults(self._not, value, path):
            causes.append(_composite(f'"{path}" must not validate the schema (not)'))

    def _check_any(self, value: Any, path: str, causes: list[Cause]) -> None:
        best: Causes | None = None
        for each in self._any:
            found = _faults(each, value, path)
            if not found:
                return
            if best is None or len(found) < len(best):
                best = found
        causes.append(_composite(f'"{path}" must validate at least one schema (anyOf)'))
        _add(causes, best or Causes())

    def _check_one(self, value: Any, path: str, causes: list[Cause]) -> None:
        tried = [_faults(each, value, path) for each in self._one]
        fitting = sum(not found for found in tried)
        if fitting == 1:
            return
        found = f"Found {fitting} valid alternatives" if fitting else "Found none valid"
        text = f'"{path}" must validate one and only one schema (oneOf). {found}'
        causes.append(_composite(text))
        if not fitting:
            _add(causes, min(tried, key=len))

    def _check_all(self, value: Any, path: str, causes: list[Cause]) -> None:
        tried = [_faults(each, value, path) for each in self._all]
        for found in tried:
            _add(causes, found)
        if any(tried):
            none = ". None validated" if all(tried) else ""
            causes.append(_composite(f'"{path}" must validate all the schemas (allOf){none}'))


def _faults(values: Values, value: Any, path: str) -> Causes:
    found = Causes()
    with suppress(TooManyCausesError):
        values.check(value, path, found)
    return found


def _add(causes: list[Cause], found: Causes) -> None:
    for cause in found:
        causes.append(cause)  # noqa: PERF402 (append may raise)


def _composite(text: str) -> Cause:
    return Cause("<nil>", f'Invalid value: "": {text}')


_TYPE_KEYWORDS: Final[Mapping[type, frozenset[str]]] = {
    str: STRING_KEYWORDS,
    int: NUMBER_KEYWORDS,
    float: NUMBER_KEYWORDS,
    list: LIST_KEYWORDS,
    dict: OBJECT_KEYWORDS,
}
