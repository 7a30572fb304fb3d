"""The operations on the objects of kinds, and on what is below them, by path and method."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from lightkube.models import autoscaling_v1, meta_v1

from corral.api.kind import GroupVersion, Kind
from corral.api.object import Document
from corral.api.openapi import parameters
from corral.api.openapi.names import GVK, REFERENCE, group_id, gvk, kind_name, place, tag
from corral.api.openapi.parameters import Parameter
from corral.api.openapi.schemas import Schemas
from corral.api.subresources import Subresource
from corral.api.types import Schema

_JSON: Final = "application/json"
_DOCUMENTS: Final = (_JSON, "application/yaml")
_WATCHED: Final = (_JSON, "application/json;stream=watch")
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_METHODS: Final = {"get": "get", "create": "post", "update": "put", "delete": "delete"}
_V1: Final = GroupVersion("", "v1")
_TEXT: Final[Schema] = {"type": "string"}
_SAID: Final = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    """One way to act on what a path names.

    ``verb`` begins the operation's name, and ``manner`` goes on after the group.  ``action``
    is the method where it is not given.  ``answers`` is None where the answer is text.
    """

    method: str
    action: str = ""
    verb: str
    manner: str = ""
    about: str
    query: Sequence[Parameter] = ()
    takes: Schema | None = None
    medias: Sequence[str] = _DOCUMENTS
    takes_always: bool = True
    answers: Schema | None
    answered: Sequence[str] = (_JSON,)
    codes: Sequence[str] = ("200",)


class Operations:
    """The operations of one group and version; schemas that they refer to are added to others."""

    def __init__(self, group_version: GroupVersion, schemas: Schemas) -> None:
        self._group_version = group_version
        self._schemas = schemas
        self.paths: Document = {}
        self._status = schemas.refer(meta_v1.Status, gvk(_V1, "Status"))
        self._options = schemas.refer(meta_v1.DeleteOptions, gvk(_V1, "DeleteOptions"))
        self._patch = schemas.patch()

    def add_kind(self, kind: Kind) -> None:
        """What is done with objects of a kind, with their status and their scale."""
        one = {"$ref": REFERENCE + kind_name(kind, self._group_version)}
        named = gvk(self._group_version, kind.name)
        home = self._home(kind.plural, namespaced=kind.namespaced)
        scope = "Namespaced" if kind.namespaced else ""
        served = set(kind.verbs)
        self._add(home, f"{scope}{kind.name}", named, self._of_many(kind, one, served))
        self._add(f"{home}/{{name}}", f"{scope}{kind.name}", named, self._of_one(kind, one, served))
        if kind.namespaced and "list" in served:
            everywhere = self._home(kind.plural, namespaced=False)
            self._add(everywhere, f"{kind.name}ForAllNamespaces", named, [_listing(kind, one)])
        changed = {"get", "update", "patch"}
        for door in kind.updates:
            acts = self._of_one(kind, one, changed, below=door)
            self._add(f"{home}/{{name}}/{door}", f"{scope}{kind.name}{door.title()}", named, acts)
        if kind.scale is not None:
            answered = gvk(GroupVersion("autoscaling", "v1"), "Scale")
            scale = self._schemas.refer(autoscaling_v1.Scale, answered)
            acts = self._of_one(kind, scale, changed, below="scale")
            self._add(f"{home}/{{name}}/scale", f"{scope}{kind.name}Scale", answered, acts)

    def add_below(self, each: Subresource, kind: str) -> None:
        """What is done with something below the objects of a kind."""
        home = self._home(each.plural, namespaced=each.namespaced)
        parts = each.name.replace("-", "/").split("/")
        words = "".join(part[0].upper() + part[1:] for part in parts)
        scope = "Namespaced" if each.namespaced else ""
        group, version, answered = each.responds
        named = gvk(GroupVersion(group, version), answered)
        for count in range(len(each.varying) + 1):
            varying = each.varying[:count]
            path = "/".join((home, "{name}", each.name, *(f"{{{name}}}" for name in varying)))
            whose = f"{scope}{kind}{words}" + "".join(f"With{name.title()}" for name in varying)
            self._add(path, whose, named, self._of_subresource(each, kind, named))

    # -- acts

    def _of_many(self, kind: Kind, one: Schema, served: set[str]) -> Iterator[_Act]:
        if "list" in served:
            yield _listing(kind, one)
        if "create" in served:
            yield _Act(
                method="post",
                verb="create",
                about=f"create a {kind.name}",
                query=parameters.WRITES,
                takes=one,
                answers=one,
                codes=("200", "201", "202"),
            )
        if "deletecollection" in served:
            yield _Act(
                method="delete",
                action="deletecollection",
                verb="delete",
                manner="Collection",
                about=f"delete a collection of {kind.name}",
                query=parameters.DELETES_MANY,
                takes=self._options,
                takes_always=False,
                answers=self._status,
            )

    def _of_one(
        self, kind: Kind, one: Schema, served: set[str], *, below: str = ""
    ) -> Iterator[_Act]:
        what = f"{below} of the specified {kind.name}" if below else f"the specified {kind.name}"
        if "get" in served:
            about = f"read {what}"
            query = () if below else parameters.GETS
            yield _Act(method="get", verb="read", about=about, query=query, answers=one)
        if "update" in served:
            yield _Act(
                method="put",
                verb="replace",
                about=f"replace {what}",
                query=parameters.WRITES,
                takes=one,
                answers=one,
                codes=("200", "201"),
            )
        if "patch" in served:
            yield _Act(
                method="patch",
                verb="patch",
                about=f"partially update {what}",
                query=parameters.PATCHES,
                takes=self._patch,
                medias=(*_PATCHES, _STRATEGIC) if kind.native else _PATCHES,
                answers=one,
                codes=("200", "201"),
            )
        if "delete" in served:
            yield _Act(
                method="delete",
                verb="delete",
                about=f"delete a {kind.name}",
                query=parameters.DELETES,
                takes=self._options,
                takes_always=False,
                answers=self._status,
                codes=("200", "202"),
            )

    def _of_subresource(
        self, each: Subresource, kind: str, named: Mapping[str, str]
    ) -> Iterator[_Act]:
        query = [Parameter(name, "string", about) for name, about in each.query.items()]
        takes, answers = self._shape(each.takes, named), self._shape(each.answers, named)
        for verb in each.verbs:
            method = _METHODS[verb]
            written = each.answers is not None
            yield _Act(
                method=method,
                action=method if written else "connect",
                verb=verb if written else "connect",
                manner="" if written else method.title(),
                about=f"{verb} {each.name} of a {kind}",
                query=(*query, *parameters.WRITES) if written else query,
                takes=takes,
                takes_always=written,
                answers=answers,
                answered=(_JSON,) if written else ("*/*",),
                codes=("200", "201", "202") if written else ("200",),
            )

    def _shape(self, view: type[msgspec.Struct] | None, named: Mapping[str, str]) -> Schema | None:
        """What a request or an answer holds: a kind, if it bears its name."""
        if view is None:
            return None
        return self._schemas.refer(view, named if view.__name__ == named["kind"] else None)

    # -- paths

    def _home(self, plural: str, *, namespaced: bool) -> str:
        scope = "namespaces/{namespace}/" if namespaced else ""
        return f"/{place(self._group_version)}/{scope}{plural}"

    def _add(self, path: str, whose: str, named: Mapping[str, str], acts: Iterable[_Act]) -> None:
        found = {act.method: self._operation(act, whose, named) for act in acts}
        if not found:
            return
        about = parameters.VARYING
        varying = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        fixed = [
            Parameter(name, "string", about[name].format(kind=named["kind"])).document("path")
            for name in sorted(varying)
        ]
        self.paths[path] = found | {"parameters": [*fixed, parameters.PRETTY.document()]}

    def _operation(self, act: _Act, whose: str, named: Mapping[str, str]) -> Document:
        name = f"{act.verb}{group_id(self._group_version)}{act.manner}{whose}"
        content = {media: {"schema": act.answers or _TEXT} for media in act.answered}
        answers = {code: {"description": _SAID[code], "content": content} for code in act.codes}
        operation: Document = {
            "tags": [tag(self._group_version)],
            "description": act.about,
            "operationId": name,
            "responses": answers | {"401": {"description": _SAID["401"]}},
            "x-kubernetes-action": act.action or act.method,
            GVK: dict(named),
        }
        if act.query:
            operation["parameters"] = [parameter.document() for parameter in act.query]
        if act.takes:
            content = {media: {"schema": act.takes} for media in act.medias}
            required = {"required": True} if act.takes_always else {}
            operation["requestBody"] = {"content": content} | required
        return operation


def _listing(kind: Kind, one: Schema) -> _Act:
    return _Act(
        method="get",
        action="list",
        verb="list",
        about=f"list or watch objects of kind {kind.name}",
        query=parameters.LISTS,
        answers={"$ref": f"{one['$ref']}List"},
        answered=_WATCHED,
    )
