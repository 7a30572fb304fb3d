"""The documents themselves: made when they are first asked for, and kept until kinds change."""

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
from corral.api.openapi.names import kind_name, place
from corral.api.openapi.operations import Operations
from corral.api.openapi.schemas import Schemas
from corral.api.subresources import Subresource

TITLE: Final = "Kubernetes"


_NOTHING: Final = Tagged(b"", "")


@dataclass(frozen=True, slots=True)
class _Served:
    """What is served of one group and version."""

    group_version: GroupVersion
    kinds: tuple[Kind, ...]
    below: tuple[Subresource, ...]


@dataclass(frozen=True, slots=True)
class _New:
    """The document of one group and version in v3."""

    of: _Served
    document: Tagged


@dataclass(frozen=True, slots=True)
class _Old:
    """What v2 tells of one group and version: pieces of JSON, and of protobuf."""

    of: _Served
    definitions: dict[str, tuple[bytes, bytes]]
    paths: tuple[bytes, bytes]


class OpenAPI:
    """The documents of a table of kinds, which may change at any time.

    Making them takes as long as hundreds of requests: ``make_v3`` and ``make_v2`` do it, in any
    thread, where ``has_v3`` and ``has_v2`` say that kinds have changed since.  What did not change
    is not made again.  Everything else only looks up what is made.
    """

    def __init__(self, kinds: KindTable, subresources: Iterable[Subresource] = ()) -> None:
        self._kinds = kinds
        self._below: dict[GroupVersion, tuple[Subresource, ...]] = {}
        for each in subresources:
            group_version = GroupVersion(each.group, each.version)
            self._below[group_version] = (*self._below.get(group_version, ()), each)
        self._new: dict[str, _New] = {}
        self._index = _NOTHING
        self._old: dict[GroupVersion, _Old] = {}
        self._whole = (_NOTHING, _NOTHING)
        self._changes_v3 = self._changes_v2 = -1

    def _served(self) -> Iterator[_Served]:
        for group_version in dict.fromkeys((*self._kinds.group_versions(), *self._below)):
            kinds = self._kinds.served(group_version)
            below = self._below.get(group_version, ())
            if kinds or below:
                yield _Served(group_version, kinds, below)

    # -- v3

    @property
    def has_v3(self) -> bool:
        return self._changes_v3 == self._kinds.changes

    def make_v3(self) -> None:
        changes = self._kinds.changes
        new = {}
        for served in self._served():
            where = place(served.group_version)
            known = self._new.get(where)
            if known is None or known.of != served:
                known = _New(served, Tagged.of(msgspec.json.encode(_document(served))))
            new[where] = known
        paths = {
            where: {"serverRelativeURL": f"/openapi/v3/{where}?hash={each.document.tag}"}
            for where, each in new.items()
        }
        self._index = Tagged.of(msgspec.json.encode({"paths": paths}))
        self._new, self._changes_v3 = new, changes

    def index(self) -> Tagged:
        """What ``/openapi/v3`` answers: the address of each document, with its hash."""
        return self._index

    def document(self, path: str) -> Tagged | None:
        """The document at ``/openapi/v3/{path}``: of one group and version.

        Its tag is the hash in its address, so that clients may keep what is there.
        """
        found = self._new.get(path)
        return None if found is None else found.document

    # -- v2

    @property
    def has_v2(self) -> bool:
        return self._changes_v2 == self._kinds.changes

    def make_v2(self) -> None:
        changes = self._kinds.changes
        old = {}
        for served in self._served():
            known = self._old.get(served.group_version)
            if known is None or known.of != served:
                known = _pieces(served)
            old[served.group_version] = known
        self._old, self._whole, self._changes_v2 = old, _joined(old.values()), changes

    def whole(self, *, protobuf: bool) -> Tagged:
        """The one document of v2, in JSON or in gnostic's protobuf."""
        return self._whole[protobuf]


def _joined(pieces: Collection[_Old]) -> tuple[Tagged, Tagged]:
    """The whole document, in JSON and in protobuf; both have the same tag."""
    definitions = {name: forms for each in pieces for name, forms in each.definitions.items()}
    schemas = b",".join(text for text, _ in definitions.values())
    paths = b",".join(each.paths[0] for each in pieces if each.paths[0])
    head = msgspec.json.encode({"swagger": "2.0", "info": {"title": TITLE, "version": __version__}})
    json = Tagged.of(b'%b,"paths":{%b},"definitions":{%b}}' % (head[:-1], paths, schemas))
    message = gnostic.document(
        TITLE,
        __version__,
        b"".join(each.paths[1] for each in pieces),
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
    for each in served.below:
        operations.add_below(each, names.get(each.plural, each.responds[2]))
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": __version__},
        "paths": operations.paths,
        "components": {"schemas": schemas.named},
    }


def _pieces(served: _Served) -> _Old:
    new = _document(served)
    _open(new, served)
    definitions = {}
    for name, schema in new["components"]["schemas"].items():
        entry = {name: swagger.schema(schema)}
        definitions[name] = (_fields(entry), gnostic.definitions(entry))
    paths = {path: swagger.path(item) for path, item in new["paths"].items()}
    return _Old(served, definitions, (_fields(paths), gnostic.paths(paths)))


def _open(new: Document, served: _Served) -> None:
    """Let the specs of old forms be anything.

    Some versions take more than their schema knows, as ``Version.read`` turns it into what is
    known.  Clients that check objects by v2 would refuse that.
    """
    for kind in served.kinds:
        read = {version.name: version for version in kind.versions}[served.group_version.version]
        if read.read is not None and read.view is None:
            schema = new["components"]["schemas"][kind_name(kind, served.group_version)]
            spec = schema["properties"].get("spec", {})
            told = {word: value for word, value in spec.items() if word == "description"}
            schema["properties"]["spec"] = {**told, "x-kubernetes-preserve-unknown-fields": True}


def _fields(document: Document) -> bytes:
    """An object's fields without its braces, to be joined with those of others."""
    return msgspec.json.encode(document)[1:-1]
