"""The documents themselves: made when they are first asked for, and kept until kinds change."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from corral import __version__
from corral.api.kind import GroupVersion, Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.api.openapi import gnostic, swagger
from corral.api.openapi.operations import operations
from corral.api.openapi.schemas import Schemas, place
from corral.api.tagged import Tagged

TITLE: Final = "Kubernetes"


_NOTHING: Final = Tagged(b"", "")


@dataclass(frozen=True, slots=True)
class _New:
    """The document of one group and version in v3, and the kinds that it tells of."""

    kinds: tuple[Kind, ...]
    document: Tagged


@dataclass(frozen=True, slots=True)
class _Old:
    """What v2 tells of one group and version: pieces of JSON, and of protobuf."""

    kinds: tuple[Kind, ...]
    definitions: dict[str, tuple[bytes, bytes]]
    paths: tuple[bytes, bytes]


class OpenAPI:
    """The documents of a table of kinds, which may change at any time.

    Making them takes as long as hundreds of requests: ``make_v3`` and ``make_v2`` do it, in any
    thread, where ``has_v3`` and ``has_v2`` say that kinds have changed since.  What did not change
    is not made again.  Everything else only looks up what is made.
    """

    def __init__(self, kinds: KindTable) -> None:
        self._kinds = kinds
        self._new: dict[str, _New] = {}
        self._index = _NOTHING
        self._old: dict[str, _Old] = {}
        self._whole = (_NOTHING, _NOTHING)
        self._changes_v3 = self._changes_v2 = -1

    # -- v3

    @property
    def has_v3(self) -> bool:
        return self._changes_v3 == self._kinds.changes

    def make_v3(self) -> None:
        changes = self._kinds.changes
        new = {}
        for group_version in self._kinds.group_versions():
            kinds, where = self._kinds.served(group_version), place(group_version)
            known = self._new.get(where)
            if known is None or known.kinds != kinds:
                body = msgspec.json.encode(_document(group_version, kinds))
                known = _New(kinds, Tagged.of(body))
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
        for group_version in self._kinds.group_versions():
            kinds, where = self._kinds.served(group_version), place(group_version)
            known = self._old.get(where)
            if known is None or known.kinds != kinds:
                known = _pieces(group_version, kinds)
            old[where] = known
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


def _document(group_version: GroupVersion, kinds: tuple[Kind, ...]) -> Document:
    schemas = Schemas()
    paths: Document = {}
    for kind in kinds:
        schemas.add_kind(kind, group_version)
        paths |= operations(kind, group_version)
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas.named},
    }


def _pieces(group_version: GroupVersion, kinds: tuple[Kind, ...]) -> _Old:
    new = _document(group_version, kinds)
    definitions = {}
    for name, schema in new["components"]["schemas"].items():
        entry = {name: swagger.schema(schema)}
        definitions[name] = (_fields(entry), gnostic.definitions(entry))
    paths = {path: swagger.path(item) for path, item in new["paths"].items()}
    return _Old(kinds, definitions, (_fields(paths), gnostic.paths(paths)))


def _fields(document: Document) -> bytes:
    """An object's fields without its braces, to be joined with those of others."""
    return msgspec.json.encode(document)[1:-1]
