"""The type of a kind, compiled from its structural schema: granular and atomic parts.

Metadata that identifies the object or is set by the server is never managed.
"""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.apply.field_sets import LEAF, Fields, inside
from corral.api.apply.items import Items
from corral.api.apply.parts import ANY, PLAIN, Leaf, Map, Part, Spec
from corral.api.errors import MAX_CAUSES
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
"""Fields of metadata that are never managed."""

_LEAVES: Final = {sort: Leaf(sort=sort) for sort in ("string", "boolean", "integer", "number")}

Difference = tuple[Fields, Fields]
"""The paths that are added or changed, and those that are removed."""


class Typed:
    """The type of a kind in one version; documents must be valid, except for ``faults``."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        compiler = _Compiler()
        self._root = root = Map()
        for name, inner in schema.get("properties", {}).items():
            if name in ("apiVersion", "kind"):
                root.add(name, PLAIN, managed=False)
            elif name == "metadata":
                root.add(name, _metadata(inner, compiler))
            else:
                part = compiler.compile(inner)
                if name == "spec" and isinstance(part, Map):
                    part = Spec(part)
                root.add(name, part)
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            root.rest = ANY

    def compare(self, old: Document, new: Document) -> Difference:
        """Return the changed and the removed paths."""
        changed, removed = self._root.compare(old, new)
        return changed or LEAF, removed or LEAF

    def applied(self, configuration: Document) -> Fields:
        """Return the paths that an apply of this configuration manages."""
        fields = dict(self._root.applied(configuration) or LEAF)
        metadata = inside(fields.pop("f:metadata", LEAF))
        return fields | {"f:metadata": metadata} if metadata else fields

    def named(self, fields: Fields) -> Fields:
        """Return a set with the named fields on the way to its paths, except ``metadata``."""
        named = self._root.named(fields)
        metadata = named.get("f:metadata")
        return named if metadata is None else named | {"f:metadata": inside(metadata)}

    def without(self, document: Document, fields: Fields, *, bare: bool = False) -> Document:
        """Return the document without some paths.

        Objects and lists that become empty are removed, too, unless ``bare``.
        """
        left: Document = self._root.without(document, fields, bare=bare)
        return left

    def merged(self, live: Document, configuration: Document) -> Document:
        """Return the live document with a configuration merged into it."""
        merged: Document = self._root.merged(live, configuration)
        return merged

    def faults(self, configuration: Document) -> list[str]:
        """Return why a configuration is not of this type: the first faults, each with its path."""
        found = self._root.faults(configuration)
        return [fault for fault, _ in zip(found, range(MAX_CAUSES), strict=False)]


class _Compiler:
    """Compiles schemas into types; the same part of a schema becomes the same type."""

    def __init__(self) -> None:
        self.compiled: dict[int, Part] = {}

    def compile(self, schema: Mapping[str, Any]) -> Part:
        part = self.compiled.get(id(schema))
        if part is None:
            part = self.compiled[id(schema)] = self.make(schema)
        return part

    def make(self, schema: Mapping[str, Any]) -> Part:
        if schema.get("x-kubernetes-int-or-string"):
            return PLAIN
        if schema.get("type") == "array":
            return self.make_list(schema)
        if "additionalProperties" in schema:
            part = Map(self.compile(schema["additionalProperties"]))
        elif "properties" in schema:
            part = self.make_map(schema)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            return ANY
        else:
            sort = schema.get("type", "")
            return Map() if sort == "object" else _LEAVES.get(sort, PLAIN)
        return Leaf(part) if schema.get("x-kubernetes-map-type") == "atomic" else part

    def make_map(self, schema: Mapping[str, Any]) -> Map:
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields")
        part = Map(ANY if open_ended else None)
        for name, inner in schema["properties"].items():
            part.add(name, self.compile(inner))
        return part

    def make_list(self, schema: Mapping[str, Any]) -> Part:
        items: Mapping[str, Any] = schema.get("items", {})
        match schema.get("x-kubernetes-list-type"):
            case "set":
                return Items({}, self.compile(items))
            case "map":
                properties = items.get("properties", {})
                keys = {
                    name: properties.get(name, {}).get("default")
                    for name in schema["x-kubernetes-list-map-keys"]
                }
                return Items(keys, self.compile(items))
            case _:
                return Leaf(self.compile(items))


def _metadata(schema: Mapping[str, Any], compiler: _Compiler) -> Map:
    """Return the type of the metadata of objects."""
    part = Map()
    for name, inner in schema["properties"].items():
        part.add(name, compiler.compile(inner), managed=name not in UNMANAGED)
    return part
