"""OpenAPI documents: built on the first request, and cached until kinds change."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from corral import __version__
from corral.api.etag import Tagged
from corral.api.kind import GroupVersion, Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.api.openapi import gnostic, swagger
from corral.api.openapi.names import kind_name, path_of
from corral.api.openapi.operations import Operations
from corral.api.openapi.schemas import Schemas
from corral.api.subresources import Subresource

TITLE: Final = "Kubernetes"


_EMPTY: Final = Tagged(b"", "")


@dataclass(frozen=True, slots=True)
class _Served:
    """The kinds and subresources of one group and version."""

    group_version: GroupVersion
    kinds: tuple[Kind, ...]
    subresources: tuple[Subresource, ...]


@dataclass(frozen=True, slots=True)
class _V3:
    """The v3 document of one group and version."""

    of: _Served
    document: Tagged


@dataclass(frozen=True, slots=True)
class _V2:
    """The parts of the v2 document of one group and version: in JSON, and in protobuf."""

    of: _Served
    definitions: dict[str, tuple[bytes, bytes]]
    paths: tuple[bytes, bytes]


class OpenAPI:
    """The documents of a table of kinds, which may change at any time.

    Building them takes as long as hundreds of requests: ``make_v3`` and ``make_v2`` do it, in any
    thread, when ``has_v3`` and ``has_v2`` are false because kinds have changed.  Documents of
    unchanged groups are reused.  All other methods return what is built.
    """

    def __init__(self, kinds: KindTable, subresources: Iterable[Subresource] = ()) -> None:
        self._kinds = kinds
        self._subresources: dict[GroupVersion, tuple[Subresource, ...]] = {}
        for each in subresources:
            group_version = GroupVersion(each.group, each.version)
            self._subresources[group_version] = (*self._subresources.get(group_version, ()), each)
        self._v3: dict[str, _V3] = {}
        self._index = _EMPTY
        self._v2: dict[GroupVersion, _V2] = {}
        self._whole = (_EMPTY, _EMPTY)
        self._changes_v3 = self._changes_v2 = -1

    def _served(self) -> Iterator[_Served]:
        for group_version in dict.fromkeys((*self._kinds.group_versions(), *self._subresources)):
            kinds = self._kinds.served(group_version)
            subresources = self._subresources.get(group_version, ())
            if kinds or subresources:
                yield _Served(group_version, kinds, subresources)

    # -- v3

    @property
    def has_v3(self) -> bool:
        return self._changes_v3 == self._kinds.changes

    def make_v3(self) -> None:
        changes = self._kinds.changes
        new = {}
        for served in self._served():
            where = path_of(served.group_version)
            cached = self._v3.get(where)
            if cached is None or cached.of != served:
                cached = _V3(served, Tagged.of(msgspec.json.encode(_document(served))))
            new[where] = cached
        paths = {
            where: {"serverRelativeURL": f"/openapi/v3/{where}?hash={each.document.tag}"}
            for where, each in new.items()
        }
        self._index = Tagged.of(msgspec.json.encode({"paths": paths}))
        self._v3, self._changes_v3 = new, changes

    def index(self) -> Tagged:
        """Return the document at ``/openapi/v3``: the URL of each document, with its hash."""
        return self._index

    def document(self, path: str) -> Tagged | None:
        """Return the document at ``/openapi/v3/{path}``, of one group and version.

        Its tag is the hash in its URL, so that clients may cache it.
        """
        found = self._v3.get(path)
        return None if found is None else found.document

    # -- v2

    @property
    def has_v2(self) -> bool:
        return self._changes_v2 == self._kinds.changes

    def make_v2(self) -> None:
        changes = self._kinds.changes
        old = {}
        for served in self._served():
            cached = self._v2.get(served.group_version)
            if cached is None or cached.of != served:
                cached = _v2_parts(served)
            old[served.group_version] = cached
        self._v2, self._whole, self._changes_v2 = old, _joined(old.values()), changes

    def whole(self, *, protobuf: bool) -> Tagged:
        """Return the v2 document, in JSON or in gnostic's protobuf."""
        return self._whole[protobuf]


def _joined(parts: Collection[_V2]) -> tuple[Tagged, Tagged]:
    """Return the v2 document in JSON and in protobuf, with the same tag."""
    definitions = {name: forms for each in parts for name, forms in each.definitions.items()}
    schemas = b",".join(text for text, _ in definitions.values())
    paths = b",".join(each.paths[0] for each in parts if each.paths[0])
    head = msgspec.json.encode({"swagger": "2.0", "info": {"title": TITLE, "version": __version__}})
    json = Tagged.of(b'%b,"paths":{%b},"definitions":{%b}}' % (head[:-1], paths, schemas))
    message = gnostic.document(
        TITLE,
        __version__,
        b"".join(each.paths[1] for each in parts),
        b"".join(message for _, message in definitions.values()),
    )
    return json, Tagged(message, json.tag)


def _document(served: _Served) -> Document:
    schemas = Schemas()
    operations = Operations(served.group_version, schemas)
    for kind in served.kinds:
        schemas.add_kind(kind, served.group_version)
        operations.add_kind(kind)
    names = {kind.plural: kind.name for kind in served.kinds}
    for each in served.subresources:
        operations.add_subresource(each, names.get(each.plural, each.response_kind[2]))
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": __version__},
        "paths": operations.paths,
        "components": {"schemas": schemas.named},
    }


def _v2_parts(served: _Served) -> _V2:
    new = _document(served)
    _allow_unknown_fields(new, served)
    definitions = {}
    for name, schema in new["components"]["schemas"].items():
        entry = {name: swagger.schema(schema)}
        definitions[name] = (_fields(entry), gnostic.definitions(entry))
    paths = {path: swagger.path(item) for path, item in new["paths"].items()}
    return _V2(served, definitions, (_fields(paths), gnostic.paths(paths)))


def _allow_unknown_fields(new: Document, served: _Served) -> None:
    """Allow unknown fields in the specs of versions that are converted.

    Such a version accepts fields that are not in its schema, because ``Version.read`` converts
    them.  Clients that validate by v2 would refuse them.
    """
    for kind in served.kinds:
        read = {version.name: version for version in kind.versions}[served.group_version.version]
        if read.read is not None and read.view is None:
            schema = new["components"]["schemas"][kind_name(kind, served.group_version)]
            spec = schema["properties"].get("spec", {})
            kept = {word: value for word, value in spec.items() if word == "description"}
            schema["properties"]["spec"] = {**kept, "x-kubernetes-preserve-unknown-fields": True}


def _fields(document: Document) -> bytes:
    """Return a JSON object without its braces, to be joined with others."""
    return msgspec.json.encode(document)[1:-1]
