"""Field selections of CEL rules, checked against the schema of the rule.

The CEL library treats a document as dyn, so a missing field would be found only when a document is
checked.  Therefore the types of the schema are propagated through the expression: through fields,
items, values, comprehensions and the variables that these bind.  Results of other functions are
dyn.

The same pass finds strings whose format is a timestamp or a duration, and lists and maps of them:
they are parsed where they are used, so that times are never compared with strings.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from corral.api.cel.syntax_tree import UNUSED, Node
from corral.api.cel.text_literals import FORMAT_TYPES, parser_of, variant_of
from corral.api.kinds.crd.embedded_resources import EMBEDDED

SchemaProps = Mapping[str, Any]

_ANY: Final[SchemaProps] = {}
_NO_ITEMS: Final[SchemaProps] = {"type": "array"}
_EMPTY_OPTIONAL: Final[SchemaProps] = {"enum": ()}
"""The schema of ``optional.none()``, which fits every type."""
_TEXT: Final[SchemaProps] = {"type": "string"}
_OBJECT_FIELDS: Final[Mapping[str, SchemaProps]] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}
"""Fields that rules can select in every embedded resource, whatever its schema has."""
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_FORMAT_TYPES: Final = frozenset(FORMAT_TYPES.values())
_NAMES: Final = {"array": "list", "boolean": "bool", "integer": "int", "number": "double"}
_IDENTITIES: Final = frozenset({"value", "orValue", "or", "optional.of", "optional.ofNonZeroValue"})
"""Functions that return the type of their first argument."""
_SUBLISTS: Final = frozenset({"slice", "sort", "distinct", "reverse"})
"""Functions that return items of a list as a list."""
_LIST_FUNCTIONS: Final = _SUBLISTS | {"min", "max", "sum"}
"""The same, and functions that return one item, or a value of its type."""
_SELECTING: Final = frozenset({"_[_]", "_[?_]", "_?._", "size"})
"""Functions that use only a part of their first argument: the part is parsed, not the whole."""
_PARSERS: Final[Mapping[str, SchemaProps]] = {
    "timestamp": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "format": "duration"},
}
"""Functions that parse a string of a format."""
_ACCESSORS: Final = frozenset({"_[_]", "value", "orValue"})
"""Functions that return a value of the document."""


class UnknownFieldError(Exception):
    """A rule selects a field that its schema does not have; ``node`` is where."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(why)
        self.node = node
        self.why = why


class Selections(NamedTuple):
    """Facts about nodes of an expression, by their numbers.

    read: the function that parses a string, or a collection of strings, of a format.
    types: the types of variables and fields, as ``corral.api.cel`` names them.
    ranges: the schemas of what comprehensions range over.
    """

    read: Mapping[int, str]
    types: Mapping[int, str]
    ranges: Mapping[int, SchemaProps]


def read_fields(
    root: Node, variables: Mapping[str, SchemaProps], escaped: Callable[[str], str]
) -> Selections:
    """Propagate schemas through an expression.

    ``variables`` are the schemas of its variables, ``escaped`` escapes a field's name for CEL.
    Raises UnknownFieldError for a field that a schema does not have.
    """
    reader = _Reader(escaped)
    reader.read(root, variables)
    return Selections({**reader.whole, **reader.instead}, reader.types, reader.ranges)


class _Reader:
    """Determines the schema of each node of an expression."""

    def __init__(self, escaped: Callable[[str], str]) -> None:
        self._escaped = escaped
        self.whole: dict[int, str] = {}
        """The parser of each node that is a string of a format, or a collection of them."""
        self.instead: dict[int, str] = {}
        """The replacement of each list function whose items are to be parsed."""
        self.types: dict[int, str] = {}
        self.ranges: dict[int, SchemaProps] = {}

    def read(self, node: Node, variables: Mapping[str, SchemaProps]) -> SchemaProps:
        """Return the schema of a node's value; empty if it is dyn."""
        schema = self._schema(node, variables)
        if node.kind in ("name", "field") and not schema.get("nullable"):
            self.types[node.number] = _type_of(schema)
        is_value = node.kind in ("name", "field") or node.text in _ACCESSORS or node.optional_parts
        if is_value and not node.is_presence_test and (reader := parser_of(_format_type(schema))):
            self.whole[node.number] = reader
        return schema

    def _read_operand(self, node: Node, variables: Mapping[str, SchemaProps]) -> SchemaProps:
        """Return the schema of an operand of a selection; a collection is not parsed as a whole."""
        schema = self.read(node, variables)
        if schema.get("type") in ("array", "object"):
            self.whole.pop(node.number, None)
        return schema

    def _schema(self, node: Node, variables: Mapping[str, SchemaProps]) -> SchemaProps:
        if node.kind == "name":
            return variables.get(node.text, _ANY)
        if node.kind == "loop":
            return self._loop(node, variables)
        if node.kind == "const":
            return _ANY
        is_selecting = node.kind == "field" or node.text in _SELECTING
        first, rest = node.parts[:1], node.parts[1:]
        parts = [
            (self._read_operand if is_selecting else self.read)(part, variables) for part in first
        ]
        parts += [self.read(part, variables) for part in rest]
        return self._composite(node, parts)

    def _composite(self, node: Node, parts: list[SchemaProps]) -> SchemaProps:
        """Return the schema of a node with operands."""
        if node.kind == "field":
            return self._field(node, parts[0], node.text)
        if node.kind == "list":
            return {"type": "array", "items": _common_item(parts)} if parts else _NO_ITEMS
        if node.kind == "map":
            return {"type": "object", "additionalProperties": _common_item(parts[1::2]) or True}
        if not parts:
            return _EMPTY_OPTIONAL if node.text == "optional.none" else _ANY
        return self._call(node, parts)

    def _call(self, node: Node, parts: list[SchemaProps]) -> SchemaProps:
        if node.text == "_?._":
            return self._field(node, parts[0], node.parts[1].text)
        if node.text in ("_[_]", "_[?_]"):
            return _inner(parts[0])
        if node.text == "_?_:_":
            return _common_type(parts[1], parts[2])
        if node.text == "_+_":
            return _common_type(*parts)
        return self._call_on_first(node, parts[0])

    def _call_on_first(self, node: Node, first: SchemaProps) -> SchemaProps:
        """Return the schema of a function's result, from that of its first argument."""
        if node.text not in _LIST_FUNCTIONS:
            is_same = node.text in _IDENTITIES or (node.text == "dyn" and _format_type(first))
            return first if is_same else _PARSERS.get(node.text, _ANY)
        result = first if node.text in _SUBLISTS else _inner(first)
        if variant := variant_of(node.text, _format_type(result)):
            self.whole.pop(node.parts[0].number, None)  # the variant parses its argument itself
            self.instead[node.number] = variant
        return result

    def _field(self, node: Node, schema: SchemaProps, name: str) -> SchemaProps:
        kind = schema.get("type")
        if kind is None or schema.get(_INT_OR_STRING):
            return _ANY
        if kind != "object":
            cel_type = _NAMES.get(kind, kind)
            raise UnknownFieldError(node, f"type '{cel_type}' does not support field selection")
        if isinstance(rest := schema.get("additionalProperties"), Mapping):
            return rest
        if rest is True:
            return _ANY
        fields: dict[str, SchemaProps] = {}
        for field, inner in (schema.get("properties") or {}).items():
            if inner.get("type") or inner.get(_INT_OR_STRING):  # CEL has no type for others
                fields[self._escaped(field)] = inner
        fields |= _OBJECT_FIELDS if schema.get(EMBEDDED) else {}
        if name not in fields:
            raise UnknownFieldError(node, f"undefined field '{name}'")
        return fields[name]

    def _loop(self, node: Node, variables: Mapping[str, SchemaProps]) -> SchemaProps:
        over, start, condition, step, result = node.parts
        item, accumulator, second = node.names
        range_schema, initial = self._read_operand(over, variables), self.read(start, variables)
        self.ranges[node.number] = range_schema
        if item == UNUSED:  # cel.bind: the library drops the loop
            return self.read(result, {**variables, accumulator: initial})
        scope = dict(variables)
        if second:
            scope |= {item: _ANY, second: _inner(range_schema)}
        else:
            scope[item] = _inner(range_schema) if range_schema.get("type") == "array" else _ANY
        scope[accumulator] = initial
        self.read(condition, scope)
        accumulated = self.read(step, scope)
        return self.read(result, {**variables, accumulator: _common_type(initial, accumulated)})


def _inner(schema: SchemaProps) -> SchemaProps:
    """Return the schema of a list's items, or of a map's values."""
    inner = schema.get("items" if schema.get("type") == "array" else "additionalProperties")
    return inner if isinstance(inner, Mapping) else _ANY


def _type_of(schema: SchemaProps) -> str:
    """Return the type of a scalar or of a collection of scalars; empty for objects and dyn."""
    kind = schema.get("type")
    if kind == "string":
        return FORMAT_TYPES.get(schema.get("format", ""), "string")
    if kind in ("boolean", "integer"):
        return _NAMES[kind]
    if kind not in ("array", "object"):
        return ""
    inner = _inner(schema)
    inner_type = "" if inner.get("nullable") else _type_of(inner)
    return f"{'list' if kind == 'array' else 'map'}_{inner_type}" if inner_type else ""


def _format_type(schema: SchemaProps) -> str:
    """Return the type that a string, or a collection of them, is parsed as; empty if it is not."""
    cel_type = _type_of(schema)
    return cel_type if cel_type.rpartition("_")[2] in _FORMAT_TYPES else ""


def _are_same_format(one: SchemaProps, other: SchemaProps) -> bool:
    """Return whether two schemas are the same, or have the same format."""
    if one is other:
        return True
    format_type = _format_type(one)
    return bool(format_type) and format_type == _format_type(other)


def _common_item(parts: Sequence[SchemaProps]) -> SchemaProps:
    """Return the schema that all have; empty if they differ, or there are none."""
    alike = parts and all(_are_same_format(part, parts[0]) for part in parts)
    return parts[0] if alike else _ANY


def _common_type(one: SchemaProps, other: SchemaProps) -> SchemaProps:
    """Return the schema of a value that has either of two; empty if they differ."""
    if one is _NO_ITEMS or one is _EMPTY_OPTIONAL or _are_same_format(one, other):
        return other
    if other is _NO_ITEMS or other is _EMPTY_OPTIONAL:
        return one
    both = one.get("type") == other.get("type") == "array"
    return one if both and _are_same_format(_inner(one), _inner(other)) else _ANY
