"""OpenAPI v3: what kubectl asks for before it creates, applies, edits and explains.

One document for each group and version, made when it is first asked for: schemas of its kinds with
everything they refer to, and the operations on them with the query parameters that each takes.
kubectl looks a kind up by ``x-kubernetes-group-version-kind``, and leaves validation to a server
whose operations take ``fieldValidation``.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import msgspec
from lightkube.models import meta_v1

from corral import __version__
from corral.api import object as ours
from corral.api.kind import GroupVersion, Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.api.patch.strategic import MERGED_LISTS
from corral.api.types import Schema, descriptions, object_schema

_REFERENCE: Final = "#/components/schemas/"
_GVK: Final = "x-kubernetes-group-version-kind"

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

_DRY_RUN = ("dryRun", "string", "All: do everything but store it.")
_WRITES = (
    _DRY_RUN,
    ("fieldManager", "string", "Who makes this change."),
    ("fieldValidation", "string", "Ignore, Warn or Strict: what to do about unknown fields."),
)
_DELETES = (
    _DRY_RUN,
    ("gracePeriodSeconds", "integer", "Seconds that the object has to end."),
    ("orphanDependents", "boolean", "Deprecated: see propagationPolicy."),
    (
        "propagationPolicy",
        "string",
        "Orphan, Background or Foreground: what becomes of dependents.",
    ),
)
_LISTS = (
    ("allowWatchBookmarks", "boolean", "Whether a watch may tell how far it has come."),
    ("continue", "string", "Where the last page ended."),
    ("fieldSelector", "string", "Which objects, by their fields."),
    ("labelSelector", "string", "Which objects, by their labels."),
    ("limit", "integer", "How many objects a page has at most."),
    ("resourceVersion", "string", "How recent the answer must be."),
    ("resourceVersionMatch", "string", "Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Whether a watch begins with what there is."),
    ("timeoutSeconds", "integer", "When to end a watch."),
    ("watch", "boolean", "Tell changes as they come."),
)
_PRETTY = (("pretty", "string", "Ignored."),)
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")


@dataclass(frozen=True, slots=True)
class Made:
    """A document as bytes, of which kinds it tells, and its hash."""

    kinds: tuple[Kind, ...]
    body: bytes
    hash: str


class OpenAPI:
    """The documents of a table of kinds; each is made when it is asked for, and kept."""

    def __init__(self, kinds: KindTable) -> None:
        self._kinds = kinds
        self._made: dict[GroupVersion, Made] = {}

    def index(self) -> Document:
        """What ``/openapi/v3`` answers: the address of each document, with its hash."""
        return {
            "paths": {
                _place(group_version): {
                    "serverRelativeURL": f"/openapi/v3/{_place(group_version)}"
                    f"?hash={self.document(group_version).hash}"
                }
                for group_version in self._kinds.group_versions()
            }
        }

    def find(self, path: str) -> GroupVersion | None:
        """The group and version whose document is at ``/openapi/v3/{path}``."""
        served = self._kinds.group_versions()
        return next((each for each in served if _place(each) == path.strip("/")), None)

    def document(self, group_version: GroupVersion) -> Made:
        """The document of one group and version.

        Its hash changes when it does, and is part of its address, so that clients may keep it.
        """
        kinds = self._kinds.served(group_version)
        made = self._made.get(group_version)
        if made is None or made.kinds != kinds:
            body = msgspec.json.encode(_document(group_version, kinds))
            made = Made(kinds, body, hashlib.sha512(body).hexdigest().upper())
            self._made[group_version] = made
        return made


def _document(group_version: GroupVersion, kinds: tuple[Kind, ...]) -> Document:
    components = _Components()
    paths: Document = {}
    for kind in kinds:
        components.add_kind(kind, group_version)
        paths |= _paths(kind, group_version)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": __version__},
        "paths": paths,
        "components": {"schemas": components.schemas},
    }


class _Components:
    """Schemas by name.  What a Struct refers to becomes a schema of its own."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {name: dict(schema) for name, schema in _SHARED.items()}

    def add_kind(self, kind: Kind, group_version: GroupVersion) -> None:
        name = _kind_name(kind, group_version)
        schema = self.described(kind.view_of(group_version.version), "")
        gvk = dict(zip(("group", "version", "kind"), (*group_version, kind.name), strict=True))
        self.schemas[name] = schema | {_GVK: [gvk]}
        items = {"type": "array", "items": {"$ref": _REFERENCE + name}}
        meta = self.refer(meta_v1.ListMeta, "metadata")
        self.schemas[f"{name}List"] = {
            "type": "object",
            "description": f"A list of {kind.plural}.",
            "required": ["items"],
            "properties": {
                "apiVersion": _described_text("The version of this list."),
                "kind": _described_text(f"{kind.name}List."),
                "metadata": {"allOf": [meta], "default": {}},
                "items": items,
            },
            _GVK: [gvk | {"kind": f"{kind.name}List"}],
        }

    def refer(self, view: type[msgspec.Struct], field: str) -> Schema:
        """A reference to the schema of a Struct; ``field`` is where it was met."""
        view = _ELSEWHERE.get(view, view)
        name = _struct_name(view)
        if name not in self.schemas:
            self.schemas[name] = {}  # taken, should the Struct hold itself
            self.schemas[name] = self.described(view, field)
        return {"$ref": _REFERENCE + name}

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
        about: str = self.schemas[reference.removeprefix(_REFERENCE)].get("description", "")
        return about.casefold() == text.casefold()

    def resolved(self, schema: Schema, field: str) -> Schema:
        """A schema with references in place of Structs and of Kubernetes' two odd scalars."""
        if "$struct" in schema:
            return self.refer(schema["$struct"], field)
        if schema.get("x-kubernetes-int-or-string"):
            name = _QUANTITY if "pattern" in schema else _INT_OR_STRING
            return {"$ref": _REFERENCE + name}
        for inner in ("items", "additionalProperties"):
            if inner in schema:
                return schema | {inner: self.resolved(schema[inner], field)}
        return schema


def _paths(kind: Kind, group_version: GroupVersion) -> Document:
    base = f"/{_place(group_version)}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    home = f"{base}{scope}/{kind.plural}"
    operations = _Operations(kind, group_version)
    paths = {
        home: _served(kind, operations.of_collection()),
        f"{home}/{{name}}": _served(kind, operations.of_object(deletes=True)),
    }
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = operations.of_collection(everywhere=True)
    if kind.status:
        paths[f"{home}/{{name}}/status"] = operations.of_object(deletes=False)
    return paths


def _served(kind: Kind, operations: Document) -> Document:
    """Of the operations on a path those that the kind knows."""
    verbs = {"post": "create", "put": "update"}
    served = {}
    for method, operation in operations.items():
        action = operation["x-kubernetes-action"] if method != "parameters" else "get"
        if verbs.get(action, action) in kind.verbs:
            served[method] = operation
    return served


class _Operations:
    """The operations on the objects of one kind."""

    def __init__(self, kind: Kind, group_version: GroupVersion) -> None:
        self.kind = kind
        self.gvk = {
            "group": group_version.group,
            "version": group_version.version,
            "kind": kind.name,
        }
        self.schema = {"$ref": _REFERENCE + _kind_name(kind, group_version)}
        self.list_schema = {"$ref": f"{self.schema['$ref']}List"}

    def of_collection(self, *, everywhere: bool = False) -> Document:
        listing = self.operation("list", _LISTS, answers=self.list_schema)
        if everywhere:
            return {"get": listing} | self.parameters()
        namespaced = ("namespace",) if self.kind.namespaced else ()
        return {
            "get": listing,
            "post": self.operation("post", _WRITES, takes=("application/json",)),
            "delete": self.operation("deletecollection", (*_DELETES, *_LISTS)),
        } | self.parameters(*namespaced)

    def of_object(self, *, deletes: bool) -> Document:
        patches: tuple[str, ...] = _PATCHES
        if self.kind.native:
            patches = (*_PATCHES, "application/strategic-merge-patch+json")
        document = {
            "get": self.operation("get", ()),
            "put": self.operation("put", _WRITES, takes=("application/json",)),
            "patch": self.operation("patch", _WRITES, takes=patches),
        }
        if deletes:
            document["delete"] = self.operation("delete", _DELETES)
        namespaced = ("namespace",) if self.kind.namespaced else ()
        return document | self.parameters("name", *namespaced)

    def operation(
        self,
        action: str,
        parameters: tuple[tuple[str, str, str], ...],
        *,
        takes: tuple[str, ...] = (),
        answers: Schema | None = None,
    ) -> Document:
        content = {"application/json": {"schema": answers or self.schema}}
        operation: Document = {
            "x-kubernetes-action": action,
            _GVK: self.gvk,
            "parameters": [_parameter(*each) for each in parameters],
            "responses": {"200": {"description": "OK", "content": content}},
        }
        if takes:
            body = {media: {"schema": self.schema if action != "patch" else {}} for media in takes}
            operation["requestBody"] = {"required": True, "content": body}
        return operation

    def parameters(self, *names: str) -> Document:
        """The parts of the path that vary, and what every operation takes."""
        varying = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
        return {"parameters": varying + [_parameter(*each) for each in _PRETTY]}


def _parameter(name: str, kind: str, description: str) -> Document:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind}}


def _described_text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _place(group_version: GroupVersion) -> str:
    """Where the objects of a group and version are served, without the leading slash."""
    prefix = "apis" if group_version.group else "api"
    return f"{prefix}/{group_version}"


def _kind_name(kind: Kind, group_version: GroupVersion) -> str:
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
