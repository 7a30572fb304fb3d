"""What a schema asks of a value by ``allOf``, ``anyOf``, ``oneOf`` and ``not``.

Such a part of a schema says nothing of which fields there are: it only asks more of values.  Of a
value of another type than it speaks of, it asks nothing.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.schema.bounds import (
    OF_LISTS,
    OF_NUMBERS,
    OF_OBJECTS,
    OF_TEXT,
    Bound,
    bounds_of,
    run,
)
from corral.api.schema.causes import Causes, EnoughError, below, wrong_type

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
    """Whether alternatives say no more than ``x-kubernetes-int-or-string`` does."""
    return schema.get("anyOf") == [{"type": "integer"}, {"type": "string"}]


class Values:
    """What a part of a schema asks of values, whatever their type."""

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
        wanted = self._schema.get("type")
        if wanted and (type(value) not in _TYPES.get(wanted, ())):
            causes.append(wrong_type(value, path, wanted))
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
            about = {"enum", *_ABOUT.get(kind, ())}
            words = {word: told for word, told in self._schema.items() if word in about}
            tests = self._tests[kind] = bounds_of(words, foreign=True)
        return tests


class Junctors:
    """The alternatives of one schema."""

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
    with suppress(EnoughError):
        values.check(value, path, found)
    return found


def _add(causes: list[Cause], found: Causes) -> None:
    for cause in found:
        causes.append(cause)  # noqa: PERF402 (it may end the search)


def _composite(text: str) -> Cause:
    return Cause("<nil>", f'Invalid value: "": {text}')


_ABOUT: Final[Mapping[type, frozenset[str]]] = {
    str: OF_TEXT,
    int: OF_NUMBERS,
    float: OF_NUMBERS,
    list: OF_LISTS,
    dict: OF_OBJECTS,
}
