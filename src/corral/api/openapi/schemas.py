"""Schemas by name: of kinds, of their lists, and of everything that they refer to."""

from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec
from lightkube.models import meta_v1

from corral.api import object as ours
from corral.api.kind import GroupVersion, Kind
from corral.api.patch.strategic import MERGED_LISTS
from corral.api.types import Schema, descriptions, object_schema

REFERENCE: Final = "#/components/schemas/"
GVK: Final = "x-kubernetes-group-version-kind"

_ELSEWHERE: Mapping[type[msgspec.Struct], type[msgspec.Struct]] = {
    # Kubernetes' own descriptions of what every object has
    ours.ObjectMeta: meta_v1.ObjectMeta,
    ours.OwnerReference: meta_v1.OwnerReference,
}
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
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


class Schemas:
    """Schemas by name.  What a Struct refers to becomes a schema of its own."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {name: dict(schema) for name, schema in _SHARED.items()}

    def add_kind(self, kind: Kind, group_version: GroupVersion) -> None:
        name = kind_name(kind, group_version)
        schema = self.described(kind.view_of(group_version.version), "")
        gvk = dict(zip(("group", "version", "kind"), (*group_version, kind.name), strict=True))
        self.named[name] = schema | {GVK: [gvk]}
        items = {"type": "array", "items": {"$ref": REFERENCE + name}}
        meta = self.refer(meta_v1.ListMeta, "metadata")
        self.named[f"{name}List"] = {
            "type": "object",
            "description": f"A list of {kind.plural}.",
            "required": ["items"],
            "properties": {
                "apiVersion": _described_text("The version of this list."),
                "kind": _described_text(f"{kind.name}List."),
                "metadata": {"allOf": [meta], "default": {}},
                "items": items,
            },
            GVK: [gvk | {"kind": f"{kind.name}List"}],
        }

    def refer(self, view: type[msgspec.Struct], field: str) -> Schema:
        """A reference to the schema of a Struct; ``field`` is where it was met."""
        view = _ELSEWHERE.get(view, view)
        name = _struct_name(view)
        if name not in self.named:
            self.named[name] = {}  # taken, should the Struct hold itself
            self.named[name] = self.described(view, field)
        return {"$ref": REFERENCE + name}

    def described(self, view: type[msgspec.Struct], field: str) -> Schema:
        about, fields = descriptions(view)
        native = view.__module__.startswith("lightkube.")
        schema = object_schema(view, lambda inner: {"$struct": inner})
        properties = {
            name: self.property(name, inner, fields.get(name, ""), field if native else None)
            for name, inner in schema["properties"].items()
        }
        return {"description": about} | schema | {"properties": properties}

    def property(self, name: str, schema: Schema, text: str, holder: str | None) -> Schema:
        schema = self.resolved(schema, name)
        if "$ref" in schema and text:
            if self.says_as_much(schema["$ref"], text):
                return schema
            schema = {"allOf": [schema]}  # what stands beside $ref is ignored
        if text:
            schema = {"description": text} | schema
        if holder is not None and (merged := MERGED_LISTS.get(holder, {}).get(name)):
            schema = schema | {"x-kubernetes-patch-strategy": merged.strategy}
            if merged.key:
                schema["x-kubernetes-patch-merge-key"] = merged.key
        return schema

    def says_as_much(self, reference: str, text: str) -> bool:
        """Whether what is referred to describes itself in the same words."""
        about: str = self.named[reference.removeprefix(REFERENCE)].get("description", "")
        return about.casefold() == text.casefold()

    def resolved(self, schema: Schema, field: str) -> Schema:
        """A schema with references in place of Structs and of Kubernetes' two odd scalars."""
        if "$struct" in schema:
            return self.refer(schema["$struct"], field)
        if schema.get("x-kubernetes-int-or-string"):
            name = _QUANTITY if "pattern" in schema else _INT_OR_STRING
            return {"$ref": REFERENCE + name}
        for inner in ("items", "additionalProperties"):
            if inner in schema:
                return schema | {inner: self.resolved(schema[inner], field)}
        return schema


def _described_text(description: str) -> Schema:
    return {"type": "string", "description": description}


def place(group_version: GroupVersion) -> str:
    """Where the objects of a group and version are served, without the leading slash."""
    prefix = "apis" if group_version.group else "api"
    return f"{prefix}/{group_version}"


def kind_name(kind: Kind, group_version: GroupVersion) -> str:
    view = kind.view_of(group_version.version)
    if view.__module__.startswith("lightkube."):
        return _struct_name(view)
    reversed_group = ".".join(reversed(group_version.group.split(".")))
    return f"{reversed_group}.{group_version.version}.{kind.name}"


@cache
def _struct_name(view: type[msgspec.Struct]) -> str:
    """A name that no other Struct has; for Kubernetes' own the one that its OpenAPI gives them."""
    module = view.__module__.rpartition(".")[2]
    if not view.__module__.startswith("lightkube."):
        return f"io.kubevirt.{module}.{view.__name__}"
    group, _, version = module.rpartition("_")
    home = "apimachinery.pkg.apis" if group == "meta" else "api"
    return f"io.k8s.{home}.{group}.{version}.{view.__name__}"
