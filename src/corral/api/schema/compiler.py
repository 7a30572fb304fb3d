"""The compiler of structural schemas into nodes that prune and check documents."""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.object import QUANTITY_PATTERN
from corral.api.schema.bounds import OBJECT_KEYWORDS, bounds_of
from corral.api.schema.canonical import Form, form_of, unquoted_quantity
from corral.api.schema.combinations import Junctors, Values
from corral.api.schema.definition import JSON_SCHEMA
from corral.api.schema.nodes import (
    Anything,
    Further,
    IfObject,
    List,
    Map,
    Narrowed,
    Node,
    Nullable,
    Object,
    Scalar,
)

_ANYTHING: Final[Mapping[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
_UNTYPED_KEYWORDS: Final = OBJECT_KEYWORDS | {"enum"}


class Compiler:
    """Compiles schemas into nodes; the same part of a schema becomes the same node.

    native: values have canonical forms, and null in a map is the empty value.
    foreign: schemas of custom resources.
    """

    def __init__(self, *, native: bool, foreign: bool = False) -> None:
        self.native = native
        self.foreign = foreign
        self.nodes: dict[int, Node] = {}

    def compile(self, schema: Mapping[str, Any]) -> Node:
        node = self.nodes.get(id(schema))
        if node is None:
            node = self.make(schema)
            if self.foreign:
                node = self.narrowed(node, schema)
            self.nodes[id(schema)] = node
        return node

    def narrowed(self, node: Node, schema: Mapping[str, Any]) -> Node:
        """Return a node with what only users' schemas have: junctors, enums, ``nullable``."""
        junctors = Junctors(schema)
        words = {word: value for word, value in schema.items() if word in _UNTYPED_KEYWORDS}
        further: list[Further] = [junctors] if junctors else []
        if words and type(node) is not Scalar:
            further.append(Values(words))
        for each in further:
            node = Narrowed(node, each)
        return Nullable(node) if schema.get("nullable") else node

    def make(self, schema: Mapping[str, Any]) -> Node:
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return self.make_open(schema)
        if schema.get("x-kubernetes-int-or-string"):
            return Scalar("integer,string", bounds_of(schema, foreign=self.foreign))
        values = schema.get("additionalProperties")
        if values:
            values = _ANYTHING if values is True else values
            form, empty = self.form(values), self.empty(values)
            return Map(self.compile(values), form=form, empty=empty)
        match schema["type"]:
            case "object":
                return self.make_object(schema)
            case "array":
                words = {word: value for word, value in schema.items() if word != "enum"}
                tests = bounds_of(words, foreign=self.foreign)
                return List(self.compile(schema["items"]), tests)
            case scalar:
                return Scalar(scalar, bounds_of(schema, foreign=self.foreign))

    def form(self, schema: Mapping[str, Any], field: str = "") -> Form | None:
        if self.native:
            return form_of(schema, field)
        is_quantity = schema.get("pattern") == QUANTITY_PATTERN and not self.foreign
        return unquoted_quantity if is_quantity else None

    def empty(self, values: Mapping[str, Any]) -> str | None:
        """Return what null in a Go map of strings or quantities is decoded to."""
        if not self.native or values.get("type", "string") != "string":
            return None
        return "0" if values.get("format") == "quantity" else ""

    def make_open(self, schema: Mapping[str, Any]) -> Node:
        """Return a node that keeps unknown fields; known ones are pruned and checked."""
        if not self.foreign and schema.get("format") == "json-schema":
            return self.compile(JSON_SCHEMA)
        if not self.foreign and schema.get("format") == "json-schema-or-flag":
            return IfObject(self.compile(JSON_SCHEMA))
        if schema.get("properties") and schema.get("type") == "object":
            return self.make_object(schema)
        if isinstance(schema.get("additionalProperties"), Mapping):
            return Map(self.compile(schema["additionalProperties"]))
        if schema.get("type") == "array" and "items" in schema:
            return List(self.compile(schema["items"]), bounds_of(schema, foreign=self.foreign))
        return Anything(must_be=schema.get("type", ""))

    def make_object(self, schema: Mapping[str, Any]) -> Object:
        is_open = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        node = Object(tuple(schema.get("required", ())), is_open=is_open)
        self.nodes[id(schema)] = node
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
        node.fields.update((name, self.compile(inner)) for name, inner in properties.items())
        forms = ((name, self.form(inner, name)) for name, inner in properties.items())
        node.forms = tuple((name, form) for name, form in forms if form is not None)
        return node
