"""OpenAPI operations on kinds and subresources, by path and method."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from lightkube.models import autoscaling_v1, meta_v1

from corral.api.kind import GroupVersion, Kind
from corral.api.object import Document
from corral.api.openapi import parameters
from corral.api.openapi.names import GVK, REFERENCE, group_id, gvk, kind_name, path_of, tag
from corral.api.openapi.parameters import Parameter
from corral.api.openapi.schemas import Schemas
from corral.api.subresources import Subresource
from corral.api.types import Schema

_JSON: Final = "application/json"
_DOCUMENT_TYPES: Final = (_JSON, "application/yaml")
_WATCH_TYPES: Final = (_JSON, "application/json;stream=watch")
_PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_METHODS: Final = {"get": "get", "create": "post", "update": "put", "delete": "delete"}
_V1: Final = GroupVersion("", "v1")
_TEXT: Final[Schema] = {"type": "string"}
_STATUS_TEXT: Final = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """An operation of a path.

    action: ``x-kubernetes-action``; the method if empty.
    verb, suffix: parts of the operation id, before and after the group.
    request, response: schemas of the bodies; None for no request, and a response of text.
    """

    method: str
    action: str = ""
    verb: str
    suffix: str = ""
    description: str
    query: Sequence[Parameter] = ()
    request: Schema | None = None
    request_types: Sequence[str] = _DOCUMENT_TYPES
    request_required: bool = True
    response: Schema | None
    response_types: Sequence[str] = (_JSON,)
    status_codes: Sequence[str] = ("200",)


class Operations:
    """The operations of one group and version; schemas that they refer to are added."""

    def __init__(self, group_version: GroupVersion, schemas: Schemas) -> None:
        self._group_version = group_version
        self._schemas = schemas
        self.paths: Document = {}
        self._status = schemas.refer(meta_v1.Status, gvk(_V1, "Status"))
        self._options = schemas.refer(meta_v1.DeleteOptions, gvk(_V1, "DeleteOptions"))
        self._patch = schemas.patch()

    def add_kind(self, kind: Kind) -> None:
        """Add the operations on a kind, its status and its scale."""
        one = {"$ref": REFERENCE + kind_name(kind, self._group_version)}
        target_kind = gvk(self._group_version, kind.name)
        collection = self._collection_path(kind.plural, namespaced=kind.namespaced)
        scope = "Namespaced" if kind.namespaced else ""
        served = set(kind.verbs)
        self._add(
            collection, f"{scope}{kind.name}", target_kind, self._on_collection(kind, one, served)
        )
        self._add(
            f"{collection}/{{name}}",
            f"{scope}{kind.name}",
            target_kind,
            self._on_object(kind, one, served),
        )
        if kind.namespaced and "list" in served:
            everywhere = self._collection_path(kind.plural, namespaced=False)
            self._add(
                everywhere,
                f"{kind.name}ForAllNamespaces",
                target_kind,
                [_list_operation(kind, one)],
            )
        changed = {"get", "update", "patch"}
        for subresource in kind.updates:
            operations = self._on_object(kind, one, changed, part=subresource)
            self._add(
                f"{collection}/{{name}}/{subresource}",
                f"{scope}{kind.name}{subresource.title()}",
                target_kind,
                operations,
            )
        if kind.scale is not None:
            scale_kind = gvk(GroupVersion("autoscaling", "v1"), "Scale")
            scale = self._schemas.refer(autoscaling_v1.Scale, scale_kind)
            operations = self._on_object(kind, scale, changed, part="scale")
            self._add(
                f"{collection}/{{name}}/scale", f"{scope}{kind.name}Scale", scale_kind, operations
            )

    def add_subresource(self, each: Subresource, kind: str) -> None:
        """Add the operations on a subresource."""
        collection = self._collection_path(each.plural, namespaced=each.namespaced)
        parts = each.name.replace("-", "/").split("/")
        words = "".join(part[0].upper() + part[1:] for part in parts)
        scope = "Namespaced" if each.namespaced else ""
        group, version, response_kind = each.response_kind
        target_kind = gvk(GroupVersion(group, version), response_kind)
        for count in range(len(each.path_parameters) + 1):
            varying = each.path_parameters[:count]
            path = "/".join((collection, "{name}", each.name, *(f"{{{name}}}" for name in varying)))
            target = f"{scope}{kind}{words}" + "".join(f"With{name.title()}" for name in varying)
            self._add(path, target, target_kind, self._on_subresource(each, kind, target_kind))

    # -- operations

    def _on_collection(self, kind: Kind, one: Schema, served: set[str]) -> Iterator[_Operation]:
        if "list" in served:
            yield _list_operation(kind, one)
        if "create" in served:
            yield _Operation(
                method="post",
                verb="create",
                description=f"create a {kind.name}",
                query=parameters.WRITES,
                request=one,
                response=one,
                status_codes=("200", "201", "202"),
            )
        if "deletecollection" in served:
            yield _Operation(
                method="delete",
                action="deletecollection",
                verb="delete",
                suffix="Collection",
                description=f"delete a collection of {kind.name}",
                query=parameters.DELETES_MANY,
                request=self._options,
                request_required=False,
                response=self._status,
            )

    def _on_object(
        self, kind: Kind, one: Schema, served: set[str], *, part: str = ""
    ) -> Iterator[_Operation]:
        what = f"{part} of the specified {kind.name}" if part else f"the specified {kind.name}"
        if "get" in served:
            description = f"read {what}"
            query = () if part else parameters.GETS
            yield _Operation(
                method="get", verb="read", description=description, query=query, response=one
            )
        if "update" in served:
            yield _Operation(
                method="put",
                verb="replace",
                description=f"replace {what}",
                query=parameters.WRITES,
                request=one,
                response=one,
                status_codes=("200", "201"),
            )
        if "patch" in served:
            yield _Operation(
                method="patch",
                verb="patch",
                description=f"partially update {what}",
                query=parameters.PATCHES,
                request=self._patch,
                request_types=(*_PATCH_TYPES, _STRATEGIC) if kind.native else _PATCH_TYPES,
                response=one,
                status_codes=("200", "201"),
            )
        if "delete" in served:
            yield _Operation(
                method="delete",
                verb="delete",
                description=f"delete a {kind.name}",
                query=parameters.DELETES,
                request=self._options,
                request_required=False,
                response=self._status,
                status_codes=("200", "202"),
            )

    def _on_subresource(
        self, each: Subresource, kind: str, target_kind: Mapping[str, str]
    ) -> Iterator[_Operation]:
        query = [Parameter(name, "string", description) for name, description in each.query.items()]
        request, response = (
            self._body(each.request, target_kind),
            self._body(each.response, target_kind),
        )
        for verb in each.verbs:
            method = _METHODS[verb]
            written = each.response is not None
            yield _Operation(
                method=method,
                action=method if written else "connect",
                verb=verb if written else "connect",
                suffix="" if written else method.title(),
                description=f"{verb} {each.name} of a {kind}",
                query=(*query, *parameters.WRITES) if written else query,
                request=request,
                request_required=written,
                response=response,
                response_types=(_JSON,) if written else ("*/*",),
                status_codes=("200", "201", "202") if written else ("200",),
            )

    def _body(
        self, view: type[msgspec.Struct] | None, target_kind: Mapping[str, str]
    ) -> Schema | None:
        """Return the schema of a body; marked as the kind if it has its name."""
        if view is None:
            return None
        return self._schemas.refer(
            view, target_kind if view.__name__ == target_kind["kind"] else None
        )

    # -- paths

    def _collection_path(self, plural: str, *, namespaced: bool) -> str:
        scope = "namespaces/{namespace}/" if namespaced else ""
        return f"/{path_of(self._group_version)}/{scope}{plural}"

    def _add(
        self,
        path: str,
        target: str,
        target_kind: Mapping[str, str],
        operations: Iterable[_Operation],
    ) -> None:
        found = {each.method: self._operation(each, target, target_kind) for each in operations}
        if not found:
            return
        description = parameters.PATH_PARAMETERS
        varying = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        fixed = [
            Parameter(name, "string", description[name].format(kind=target_kind["kind"])).document(
                "path"
            )
            for name in sorted(varying)
        ]
        self.paths[path] = found | {"parameters": [*fixed, parameters.PRETTY.document()]}

    def _operation(self, each: _Operation, target: str, target_kind: Mapping[str, str]) -> Document:
        name = f"{each.verb}{group_id(self._group_version)}{each.suffix}{target}"
        content = {media: {"schema": each.response or _TEXT} for media in each.response_types}
        response = {
            code: {"description": _STATUS_TEXT[code], "content": content}
            for code in each.status_codes
        }
        operation: Document = {
            "tags": [tag(self._group_version)],
            "description": each.description,
            "operationId": name,
            "responses": response | {"401": {"description": _STATUS_TEXT["401"]}},
            "x-kubernetes-action": each.action or each.method,
            GVK: dict(target_kind),
        }
        if each.query:
            operation["parameters"] = [parameter.document() for parameter in each.query]
        if each.request:
            content = {media: {"schema": each.request} for media in each.request_types}
            required = {"required": True} if each.request_required else {}
            operation["requestBody"] = {"content": content} | required
        return operation


def _list_operation(kind: Kind, one: Schema) -> _Operation:
    return _Operation(
        method="get",
        action="list",
        verb="list",
        description=f"list or watch objects of kind {kind.name}",
        query=parameters.LISTS,
        response={"$ref": f"{one['$ref']}List"},
        response_types=_WATCH_TYPES,
    )
