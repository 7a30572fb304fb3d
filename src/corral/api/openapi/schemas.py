"""OpenAPI schemas by name: of kinds, of their lists, and of everything that they refer to."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from lightkube.models import meta_v1

from corral.api import object as ours
from corral.api.kind import GroupVersion, Kind
from corral.api.openapi.names import GVK, REFERENCE, gvk, is_native, kind_name, struct_name
from corral.api.types import Schema, descriptions, object_schema

_NATIVE_TYPES: Mapping[type[msgspec.Struct], type[msgspec.Struct]] = {
    # The native types, for their descriptions.
    ours.ObjectMeta: meta_v1.ObjectMeta,
    ours.OwnerReference: meta_v1.OwnerReference,
}
_LISTS_OF_NAMES: Final = frozenset(("properties", "required", "allOf", "anyOf", "oneOf"))
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_PATCH: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
_SHARED: Mapping[str, Schema] = {
    _QUANTITY: {
        "description": "An amount such as 64M, 1Gi, 500m or 2.",
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    _INT_OR_STRING: {
        "description": "A number, or a name or percentage.",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}
_TYPE: Mapping[str, str] = {
    "apiVersion": "The group and version of this representation, such as kubevirt.io/v1.",
    "kind": "The kind of the object; it cannot change.",
}
_METADATA: Final = "Standard metadata: name, labels, owners, creation time."
_TYPED: Mapping[str, Schema] = {
    name: {"type": "string", "description": text} for name, text in _TYPE.items()
}


class Schemas:
    """Schemas by name.  A Struct that another refers to becomes a schema of its own."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {name: dict(schema) for name, schema in _SHARED.items()}

    def add_kind(self, kind: Kind, group_version: GroupVersion) -> None:
        """Add the schemas of a kind and of its list."""
        name = kind_name(kind, group_version)
        schema = self._custom(kind, group_version)
        if schema is None:
            schema = self.described(kind.view_of(group_version.version))
        named = gvk(group_version, kind.name)
        self.named[name] = schema | {GVK: [named]}
        metadata = {
            "description": "Of the list as a whole.",
            "allOf": [self.refer(meta_v1.ListMeta)],
        }
        self.named[f"{name}List"] = {
            "type": "object",
            "description": f"A list of {kind.name} objects.",
            "required": ["items"],
            "properties": {
                **_TYPED,
                "metadata": metadata,
                "items": {
                    "type": "array",
                    "description": f"The {kind.plural}, sorted by namespace and name.",
                    "items": {"$ref": REFERENCE + name},
                },
            },
            GVK: [named | {"kind": f"{kind.name}List"}],
        }

    def patch(self) -> Schema:
        """Return a reference to the schema of patches."""
        self.named[_PATCH] = {"type": "object", "description": "What is to change of an object."}
        return {"$ref": REFERENCE + _PATCH}

    def refer(self, view: type[msgspec.Struct], kind: Mapping[str, str] | None = None) -> Schema:
        """Return a reference to the schema of a Struct; ``kind`` marks it as that of a kind."""
        view = _NATIVE_TYPES.get(view, view)
        name = struct_name(view)
        if name not in self.named:
            self.named[name] = {}  # a placeholder, in case the Struct refers to itself
            self.named[name] = self.described(view)
        if kind is not None:
            self.named[name][GVK] = [dict(kind)]
        return {"$ref": REFERENCE + name}

    def _custom(self, kind: Kind, group_version: GroupVersion) -> Schema | None:
        """Return the schema of a custom resource, with the fields that every object has."""
        if kind.schemas is None:
            return None
        schema: Mapping[str, Any] = kind.schemas[group_version.version]
        schema = without_empty(schema)
        metadata = {"description": _METADATA, "allOf": [self.refer(meta_v1.ObjectMeta)]}
        properties = {**schema.get("properties", {}), **_TYPED, "metadata": metadata}
        return {**schema, "properties": properties}

    def described(self, view: type[msgspec.Struct]) -> Schema:
        """Return the schema of a Struct, with the descriptions of its docstring.

        Native types have a description of their own, which ``kubectl explain`` prints after that of
        the field.  The types of custom resources only have descriptions of fields.
        """
        about, fields = descriptions(view)
        if issubclass(view, ours.Object):
            fields = {**_TYPE, "metadata": _METADATA, **fields}
        schema = object_schema(view, lambda inner: {"$struct": inner})
        properties = {
            name: self._property(inner, fields.get(name) or _about(inner))
            for name, inner in schema["properties"].items()
        }
        is_described = is_native(view) or issubclass(view, ours.Object)
        description = {"description": about} if is_described else {}
        del schema["properties"]
        return description | schema | ({"properties": properties} if properties else {})

    def _property(self, schema: Schema, text: str) -> Schema:
        schema = self._resolved(schema)
        siblings = {word: value for word, value in schema.items() if word != "$ref"}
        if text:
            siblings = {"description": text} | siblings
        if "$ref" not in schema:
            return siblings
        # Siblings of $ref are ignored (OpenAPI 3.0).
        return siblings | {"allOf": [{"$ref": schema["$ref"]}]} if siblings else schema

    def _resolved(self, schema: Schema) -> Schema:
        """Return a schema with references to Structs, and to Quantity and IntOrString."""
        if "$struct" in schema:
            siblings = {word: value for word, value in schema.items() if word != "$struct"}
            return self.refer(schema["$struct"]) | siblings
        if schema.get("x-kubernetes-int-or-string"):
            name = _QUANTITY if "pattern" in schema else _INT_OR_STRING
            return {"$ref": REFERENCE + name}
        for inner in ("items", "additionalProperties"):
            if inner in schema:
                return schema | {inner: self._resolved(schema[inner])}
        return schema


def without_empty(schema: Any) -> Any:
    """Return a schema without empty keywords, which Go omits when it writes one."""
    if not isinstance(schema, Mapping):
        return schema
    tidy = {word: value for word, value in schema.items() if word not in _LISTS_OF_NAMES or value}
    if "properties" in tidy:
        inner = tidy["properties"].items()
        tidy["properties"] = {name: without_empty(each) for name, each in inner}
    for word in ("items", "additionalProperties", "not"):
        if word in tidy:
            tidy[word] = without_empty(tidy[word])
    for word in ("allOf", "anyOf", "oneOf"):
        if word in tidy:
            tidy[word] = [without_empty(each) for each in tidy[word]]
    return tidy


def _about(schema: Schema) -> str:
    """Return the description of one of our Structs, for a field without its own."""
    view = schema.get("$struct")
    return "" if view is None or is_native(view) else descriptions(view)[0]
