"""The types of a kind's parts: what of them is merged piece by piece, what is replaced as a whole.

``Typed`` is made once of a structural schema and then walks documents.  Of metadata, what the
server gives and what names the object have no managers at all.
"""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.apply.field_sets import LEAF, Fields, inside
from corral.api.apply.items import Items
from corral.api.apply.parts import ANY, PLAIN, Leaf, Map, Part
from corral.api.errors import MOST_CAUSES
from corral.api.object import Document

UNMANAGED: Final = frozenset(
    [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
    ]
)
"""Metadata that nobody manages."""

_LEAVES: Final = {sort: Leaf(sort=sort) for sort in ("string", "boolean", "integer", "number")}

Difference = tuple[Fields, Fields]
"""The paths that are new or have other values, and those that are gone."""


class Typed:
    """A kind's type, in one version; documents must fit its schema but for ``faults``."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        compiler = _Compiler()
        self._root = root = Map()
        for name, inner in schema.get("properties", {}).items():
            if name in ("apiVersion", "kind"):
                root.add(name, PLAIN, managed=False)
            elif name == "metadata":
                root.add(name, _metadata(inner, compiler))
            else:
                root.add(name, compiler.compile(inner))
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            root.rest = ANY

    def compare(self, old: Document, new: Document) -> Difference:
        """What differs between two documents."""
        changed, removed = self._root.compare(old, new)
        return changed or LEAF, removed or LEAF

    def applied(self, configuration: Document) -> Fields:
        """The paths that somebody manages who applies this."""
        fields = dict(self._root.applied(configuration) or LEAF)
        metadata = inside(fields.pop("f:metadata", LEAF))
        return fields | {"f:metadata": metadata} if metadata else fields

    def named(self, fields: Fields) -> Fields:
        """A set with all fields of objects on the way to its paths, but for the metadata."""
        named = self._root.named(fields)
        metadata = named.get("f:metadata")
        return named if metadata is None else named | {"f:metadata": inside(metadata)}

    def without(self, document: Document, fields: Fields, *, bare: bool = False) -> Document:
        """The document without what lies at some paths.

        Objects and lists of which nothing is left go, too, unless they stay ``bare``.
        """
        left: Document = self._root.without(document, fields, bare=bare)
        return left

    def merged(self, live: Document, configuration: Document) -> Document:
        """The live document with a configuration laid over it."""
        merged: Document = self._root.merged(live, configuration)
        return merged

    def faults(self, configuration: Document) -> list[str]:
        """Why a configuration is none of this type: the first faults, each with its path."""
        found = self._root.faults(configuration)
        return [fault for fault, _ in zip(found, range(MOST_CAUSES), strict=False)]


class _Compiler:
    """Makes types of schemas; the same piece of a schema becomes the same type."""

    def __init__(self) -> None:
        self.made: dict[int, Part] = {}

    def compile(self, schema: Mapping[str, Any]) -> Part:
        made = self.made.get(id(schema))
        if made is None:
            made = self.made[id(schema)] = self.make(schema)
        return made

    def make(self, schema: Mapping[str, Any]) -> Part:
        if schema.get("x-kubernetes-int-or-string"):
            return PLAIN
        if schema.get("type") == "array":
            return self.make_list(schema)
        if "additionalProperties" in schema:
            made = Map(self.compile(schema["additionalProperties"]))
        elif "properties" in schema:
            made = self.make_map(schema)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            return ANY
        else:
            sort = schema.get("type", "")
            return Map() if sort == "object" else _LEAVES.get(sort, PLAIN)
        return Leaf(made) if schema.get("x-kubernetes-map-type") == "atomic" else made

    def make_map(self, schema: Mapping[str, Any]) -> Map:
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
        made = Map(ANY if open_ended else None)
        for name, inner in schema["properties"].items():
            made.add(name, self.compile(inner))
        return made

    def make_list(self, schema: Mapping[str, Any]) -> Part:
        items: Mapping[str, Any] = schema.get("items", {})
        match schema.get("x-kubernetes-list-type"):
            case "set":
                return Items({}, self.compile(items))
            case "map":
                told = items.get("properties", {})
                keys = {
                    name: told.get(name, {}).get("default")
                    for name in schema["x-kubernetes-list-map-keys"]
                }
                return Items(keys, self.compile(items))
            case _:
                return Leaf(self.compile(items))


def _metadata(schema: Mapping[str, Any], compiler: _Compiler) -> Map:
    """The type of the metadata of objects, of which some has no managers."""
    made = Map()
    for name, inner in schema["properties"].items():
        made.add(name, compiler.compile(inner), managed=name not in UNMANAGED)
    return made
