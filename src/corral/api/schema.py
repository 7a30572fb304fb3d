"""Structural schemas: which fields a kind has, and what may stand in them.

``schema_of`` makes a schema of a view's types; ``Schema`` is one made ready for use on documents.
The texts of refusals are those of the real server (kube-openapi's validation of custom resources).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

import msgspec

from corral.api.errors import LONGEST_MESSAGE, MOST_CAUSES, UNCHECKED, Cause, shortened
from corral.api.kind import Kind
from corral.api.object import Document
from corral.api.quantity import parse as parse_quantity
from corral.api.time import parse_rfc3339
from corral.api.types import schema_of

__all__ = ["Schema", "Schemas", "schema_for", "schema_of", "structural"]

_TYPES: Mapping[str, frozenset[type]] = {
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "integer,string": frozenset({int, str}),
}
_TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class Schema:
    """A schema made ready to prune and check documents; built once for a kind, then shared.

    ``native`` is for Kubernetes' own kinds: quantities written as numbers become strings, as
    reading them into their Go types does.
    """

    def __init__(self, schema: Mapping[str, Any], *, native: bool = False) -> None:
        self.native = native
        self._root = _Compiler(native=native).compile(schema)

    def prune(self, document: Document) -> list[str]:
        """Removes fields that the schema does not know, and answers the paths of the first ones.

        Nulls are removed too where a field cannot be null, but are nothing to speak of.
        """
        unknown: list[str] = []
        self._root.prune(document, "", unknown)
        return unknown

    def check(self, document: Document) -> list[Cause]:
        """What is wrong with a pruned document: types, missing fields, values out of bounds.

        It is not looked for more than can be told.  UNCHECKED comes last where more may be wrong:
        of custom resources, whose further rules need the right types, that is known never.
        """
        causes = _Causes()
        with suppress(_EnoughError):
            self._root.check(document, "", causes)
        if causes and (causes.full or not self.native):
            causes += (UNCHECKED,)
        return causes


class Schemas(Mapping[str, Mapping[str, Any]]):
    """The structural schemas of a kind's versions; each is made ready when it is first used."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = dict(schemas)
        self._ready: dict[str, Schema] = {}

    def __getitem__(self, version: str) -> Mapping[str, Any]:
        return self._schemas[version]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def ready(self, version: str) -> Schema:
        """The schema of a version, ready for use."""
        schema = self._ready.get(version)
        if schema is None:
            schema = self._ready[version] = Schema(self._schemas[version])
        return schema


def structural(kind: Kind, version: str = "") -> Mapping[str, Any]:
    """The structural schema of a kind as it is stored, or of one of its versions.

    It is shared, and must not be changed.
    """
    if kind.schemas is not None:
        return kind.schemas[version or kind.version]
    return schema_of(kind.view_of(version) if version else kind.view)


def schema_for(kind: Kind, version: str = "") -> Schema:
    """The schema of a kind as it is stored, or of one of its versions.

    It is made on the first call, and the same one ever after.
    """
    if isinstance(kind.schemas, Schemas):
        return kind.schemas.ready(version or kind.version)
    return _schema_for(kind.view_of(version) if version else kind.view, kind.native)


@cache
def _schema_for(view: type[msgspec.Struct], native: bool) -> Schema:  # noqa: FBT001 (a cache's key)
    return Schema(schema_of(view), native=native)


class _EnoughError(Exception):
    """So much is wrong that the rest need not be looked at."""


class _Causes(list[Cause]):
    """What has been found to be wrong; with one place left, finding ends."""

    @property
    def full(self) -> bool:
        return len(self) >= MOST_CAUSES - 1

    def append(self, cause: Cause) -> None:
        super().append(cause)
        if self.full:
            raise _EnoughError


class _Node(Protocol):
    """What may stand at one place of a document.  Paths are written ``spec.volumes[0].name``."""

    def prune(self, value: Any, path: str, unknown: list[str]) -> None: ...
    def check(self, value: Any, path: str, causes: list[Cause]) -> None: ...


class _Anything:
    """A place whose content the schema does not name and keeps as it is."""

    __slots__ = ("must_be_object",)

    def __init__(self, *, must_be_object: bool) -> None:
        self.must_be_object = must_be_object

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        pass

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if self.must_be_object and type(value) is not dict:
            causes.append(_wrong_type(value, path, "object"))


class _Scalar:
    """A string, number or boolean, perhaps bounded by further tests."""

    __slots__ = ("name", "tests", "types")

    def __init__(self, name: str, tests: "tuple[_Test, ...]") -> None:
        self.name = name
        self.types = _TYPES[name]
        self.tests = tests

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        pass

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) not in self.types:
            causes.append(_wrong_type(value, path, self.name))
            return
        _run(self.tests, value, path, causes)


class _Object:
    """An object with named fields."""

    __slots__ = ("fields", "numbers", "required")

    def __init__(self, required: tuple[str, ...]) -> None:
        self.fields: dict[str, _Node] = {}
        self.required = required
        self.numbers: tuple[str, ...] = ()  # quantities that may have been written as numbers

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is not dict:
            return
        fields, gone = self.fields, []
        for name, inner in value.items():
            node = fields.get(name)
            if node is None:
                gone.append(name)
                if len(unknown) < MOST_CAUSES:
                    unknown.append(shortened(f"{path}.{name}" if path else name, LONGEST_MESSAGE))
            elif inner is None:
                gone.append(name)
            elif type(node) is not _Scalar:
                node.prune(inner, f"{path}.{name}" if path else name, unknown)
        for name in gone:
            del value[name]
        for name in self.numbers:
            if name in value:
                value[name] = _quantity_text(value[name])

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is not dict:
            causes.append(_wrong_type(value, path, "object"))
            return
        for name in self.required:
            if name not in value:
                where = f"{path}.{name}" if path else name
                causes.append(Cause(where, "Required value", "FieldValueRequired"))
        fields = self.fields
        for name, inner in value.items():
            node = fields.get(name)
            # Most places hold a plain value of the right type, which needs no path.
            if type(node) is _Scalar and not node.tests and type(inner) in node.types:
                continue
            if node is not None:
                node.check(inner, f"{path}.{name}" if path else name, causes)


class _Map:
    """An object with any keys, and values of one sort."""

    __slots__ = ("numbers", "values")

    def __init__(self, values: _Node, *, numbers: bool) -> None:
        self.values = values
        self.numbers = numbers

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is not dict:
            return
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
        if self.numbers:
            value.update((name, _quantity_text(inner)) for name, inner in value.items())
        elif type(self.values) is not _Scalar:
            for name, inner in value.items():
                self.values.prune(inner, f"{path}.{name}", unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is not dict:
            causes.append(_wrong_type(value, path, "object"))
            return
        for name, inner in value.items():
            self.values.check(inner, f"{path}.{name}", causes)


class _List:
    """A list with items of one sort."""

    __slots__ = ("items", "tests")

    def __init__(self, items: _Node, tests: "tuple[_Test, ...]") -> None:
        self.items = items
        self.tests = tests

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        if type(value) is list and type(self.items) is not _Scalar:
            for index, inner in enumerate(value):
                self.items.prune(inner, f"{path}[{index}]", unknown)

    def check(self, value: Any, path: str, causes: list[Cause]) -> None:
        if type(value) is not list:
            causes.append(_wrong_type(value, path, "array"))
            return
        for index, inner in enumerate(value):
            self.items.check(inner, f"{path}[{index}]", causes)
        _run(self.tests, value, path, causes)


class _Compiler:
    """Makes nodes of schemas; the same piece of a schema becomes the same node."""

    def __init__(self, *, native: bool) -> None:
        self.native = native
        self.made: dict[int, _Node] = {}

    def compile(self, schema: Mapping[str, Any]) -> _Node:
        node = self.made.get(id(schema))
        if node is None:
            node = self.made[id(schema)] = self.make(schema)
        return node

    def make(self, schema: Mapping[str, Any]) -> _Node:
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return _Anything(must_be_object=schema.get("type") == "object")
        if schema.get("x-kubernetes-int-or-string"):
            return _Scalar("integer,string", _tests(schema))
        if "additionalProperties" in schema:
            values = schema["additionalProperties"]
            return _Map(self.compile(values), numbers=self.native and _is_quantity(values))
        match schema["type"]:
            case "object":
                return self.make_object(schema)
            case "array":
                return _List(self.compile(schema["items"]), _tests(schema))
            case scalar:
                return _Scalar(scalar, _tests(schema))

    def make_object(self, schema: Mapping[str, Any]) -> _Object:
        node = self.made[id(schema)] = _Object(tuple(schema.get("required", ())))
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
        node.fields.update((name, self.compile(inner)) for name, inner in properties.items())
        if self.native:
            node.numbers = tuple(name for name in properties if _is_quantity(properties[name]))
        return node


_Test = Callable[[Any, str], Cause | None]
"""Gets a value of the right type and its path; answers what is wrong with it."""


def _tests(schema: Mapping[str, Any]) -> tuple[_Test, ...]:
    tests = [make(schema[word]) for word, make in _KEYWORDS.items() if word in schema]
    if schema.get("format") in _FORMATS:
        tests.append(_FORMATS[schema["format"]])
    if schema.get("type") == "integer" and "minimum" not in schema and "maximum" not in schema:
        tests.append(_in_64_bits)
    return tuple(tests)


def _run(tests: tuple[_Test, ...], value: Any, path: str, causes: list[Cause]) -> None:
    for test in tests:
        if (cause := test(value, path)) is not None:
            causes.append(cause)  # noqa: PERF401 (it may end the search)


def _enumerated(values: list[Any]) -> _Test:
    supported = ", ".join(_shown(value) for value in values)

    def test(value: Any, path: str) -> Cause | None:
        if value in values:
            return None
        message = f"Unsupported value: {_shown(value)}: supported values: {supported}"
        return Cause(path, message, "FieldValueNotSupported")

    return test


def _patterned(pattern: str) -> _Test:
    # In Python alone a dollar matches before a last line break too.
    matches = re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII).search

    def test(value: Any, path: str) -> Cause | None:
        if not isinstance(value, str) or matches(value):
            return None
        return _invalid(value, path, f"should match '{pattern}'")

    return test


def _bounded(text: str, fits: Callable[[Any, Any], bool]) -> Callable[[Any], _Test]:
    def make(bound: Any) -> _Test:
        def test(value: Any, path: str) -> Cause | None:
            if fits(value, bound):
                return None
            return _invalid(value, path, text.format(bound))

        return test

    return make


def _in_64_bits(value: Any, path: str) -> Cause | None:
    if _SMALLEST <= value <= _LARGEST:
        return None
    return _invalid(value, path, f"should be between {_SMALLEST} and {_LARGEST}")


def _is_time(value: Any, path: str) -> Cause | None:
    try:
        parse_rfc3339(value)
    except ValueError:
        text = f"must be of type date-time: {_shown(value)}"
        return _invalid(value, path, text, "FieldValueTypeInvalid")
    return None


_KEYWORDS: Mapping[str, Callable[[Any], _Test]] = {
    "enum": _enumerated,
    "pattern": _patterned,
    "minimum": _bounded("should be greater than or equal to {}", lambda value, low: value >= low),
    "maximum": _bounded("should be less than or equal to {}", lambda value, high: value <= high),
    "minLength": _bounded("should be at least {} chars long", lambda text, low: len(text) >= low),
    "maxLength": _bounded("should be at most {} chars long", lambda text, top: len(text) <= top),
    "minItems": _bounded("should have at least {} items", lambda items, low: len(items) >= low),
    "maxItems": _bounded("should have at most {} items", lambda items, top: len(items) <= top),
}
_FORMATS: Mapping[str, _Test] = {"date-time": _is_time}


def _wrong_type(value: Any, path: str, wanted: str) -> Cause:
    found = _TYPE_NAMES[type(value)]
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause(path, message, "FieldValueTypeInvalid")


def _invalid(value: Any, path: str, fault: str, reason: str = "FieldValueInvalid") -> Cause:
    return Cause(path, f"Invalid value: {_shown(value)}: {path} in body {fault}", reason)


def _shown(value: Any) -> str:
    """A value as messages show it: strings in quotes, lists by how many they are."""
    if isinstance(value, list):
        return str(len(value))
    return f'"{shortened(value)}"' if isinstance(value, str) else shortened(str(value).lower())


def _is_quantity(schema: Mapping[str, Any]) -> bool:
    return schema.get("format") == "quantity"


def _quantity_text(value: Any) -> Any:
    """A quantity that was written as a number, as text; anything else as it is."""
    if type(value) not in (int, float):
        return value
    try:
        return str(parse_quantity(value))
    except ValueError:
        return value
