"""The operations on kinds: paths, methods, the query parameters that each takes."""

from corral.api.kind import GroupVersion, Kind
from corral.api.object import Document
from corral.api.openapi.schemas import GVK, REFERENCE, kind_name, place
from corral.api.types import Schema

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


def operations(kind: Kind, group_version: GroupVersion) -> Document:
    base = f"/{place(group_version)}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    home = f"{base}{scope}/{kind.plural}"
    on = _Operations(kind, group_version)
    paths = {
        home: _served(kind, on.of_collection()),
        f"{home}/{{name}}": _served(kind, on.of_object(deletes=True)),
    }
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = on.of_collection(everywhere=True)
    if kind.status:
        paths[f"{home}/{{name}}/status"] = on.of_object(deletes=False)
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
        self.schema = {"$ref": REFERENCE + kind_name(kind, group_version)}
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
            GVK: self.gvk,
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
