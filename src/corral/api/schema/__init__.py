"""Structural schemas: which fields a kind has, and what may stand in them.

``schema_of`` makes a schema of a view's types; ``Schema`` is one made ready for use on documents.
The texts of refusals are those of the real server (kube-openapi's validation of custom resources).
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

import msgspec

from corral.api.errors import UNCHECKED, Cause
from corral.api.kind import Kind
from corral.api.object import Document
from corral.api.schema.causes import Causes, EnoughError
from corral.api.schema.compiler import Compiler
from corral.api.schema.defaults import Defaults, zeros_of_status
from corral.api.schema.nodes import Node, Object
from corral.api.types import schema_of

__all__ = ["Schema", "Schemas", "schema_for", "schema_of", "structural"]

NONE_SETTLED: Final[frozenset[str]] = frozenset()
_encode = msgspec.json.Encoder().encode
_REMEMBERED: Final = 64
"""Specs that are known to fit: the objects of a set, or of a script, mostly have the same."""
_WORTHWHILE: Final = range(256, 16 << 10)
"""Bytes of an encoded spec that may be remembered: to look at less costs no more, and more of them
would keep much memory."""


class Schema:
    """A schema made ready to prune and check documents; built once for a kind, then shared.

    ``native`` is for Kubernetes' own kinds: quantities written as numbers become strings, and bytes
    one line of base64, as reading them into their Go types does.  ``foreign`` is for kinds that
    users bring: they use words that ours do without.
    """

    def __init__(
        self, schema: Mapping[str, Any], *, native: bool = False, foreign: bool = False
    ) -> None:
        self.native = native
        self._root = Compiler(native=native, foreign=foreign).compile(schema)
        self._defaults = Defaults(schema) if foreign else None
        self._zeros = zeros_of_status(schema) if native else None
        self._has_rules = _has_rules(schema) if foreign else not native
        self._fitting: dict[bytes, None] = {}
        """Encoded specs that fit, the one that was seen last at the end."""

    def fits(self, document: Document, settled: frozenset[str] = NONE_SETTLED) -> bool:
        """Whether nothing is to be pruned, completed or told of a document.

        Most documents fit, and to see that takes a third of the time.  It may say no where that is
        not known.
        """
        if self._defaults is not None:
            return False
        spec = document.get("spec")
        data = _encode(spec) if type(spec) is dict and "spec" not in settled else b""
        if len(data) not in _WORTHWHILE:
            return self._of_others(settled).fits(_without(document, settled))
        if data in self._fitting:
            settled |= {"spec"}
        fits = self._of_others(settled).fits(_without(document, settled))
        if fits:
            self._remember(data)
        return fits

    def _remember(self, spec: bytes) -> None:
        """Know the spec of these bytes, and that it was seen last."""
        self._fitting.pop(spec, None)
        self._fitting[spec] = None
        if len(self._fitting) > _REMEMBERED:
            del self._fitting[next(iter(self._fitting))]

    def prune(self, document: Document, settled: frozenset[str] = NONE_SETTLED) -> list[str]:
        """Removes fields that the schema does not know, and answers the paths of the first ones.

        Nulls are removed too where a field cannot be null, but are nothing to speak of.  At what is
        ``settled``, the names of fields that are known to fit, it does not look.
        """
        unknown: list[str] = []
        part = _without(document, settled)
        self._root.prune(part, "", unknown)
        if part is not document:
            for name in document.keys() - part.keys() - settled:
                del document[name]
        return unknown

    def complete(self, document: Document) -> None:
        """Put the schema's defaults where a pruned document says nothing.

        Kubernetes' own kinds have none here, but the zeros that reading a status into Go's types
        gives.
        """
        for defaults in (self._defaults, self._zeros):
            if defaults:
                defaults.complete(document)

    def check(self, document: Document, settled: frozenset[str] = NONE_SETTLED) -> list[Cause]:
        """What is wrong with a pruned document: types, missing fields, values out of bounds.

        At what is ``settled`` it does not look.

        It is not looked for more than can be told.  UNCHECKED comes last where more may be wrong:
        of custom resources, whose rules need the right types, that is known only without such.
        """
        causes = Causes()
        with suppress(EnoughError):
            self._of_others(settled).check(_without(document, settled), "", causes)
        if causes and (causes.full or self._has_rules):
            causes += (UNCHECKED,)
        return causes

    def _of_others(self, settled: frozenset[str]) -> Node:
        """The schema of a document without what is settled, which need not be there."""
        root = self._root
        if not settled or not isinstance(root, Object):
            return root
        others = Object(tuple(set(root.required) - settled), is_open=root.open)
        others.fields, others.forms = root.fields, root.forms
        return others


def _has_rules(schema: Mapping[str, Any]) -> bool:
    """Whether a schema asks by rules in CEL for more than its other words do."""
    if schema.get("x-kubernetes-validations"):
        return True
    below = [*(schema.get("properties") or {}).values()]
    below += (schema.get(word) for word in ("items", "additionalProperties"))
    return any(isinstance(each, Mapping) and _has_rules(each) for each in below)


def _without(document: Document, settled: frozenset[str]) -> Document:
    if not settled:
        return document
    return {name: inner for name, inner in document.items() if name not in settled}


class Schemas(Mapping[str, Mapping[str, Any]]):
    """The structural schemas of a kind's versions; each is made ready when it is first used."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = dict(schemas)
        self._ready: dict[str, Schema] = {}

    def __getitem__(self, version: str) -> Mapping[str, Any]:
        return self._schemas[version]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def ready(self, version: str) -> Schema:
        """The schema of a version, ready for use."""
        schema = self._ready.get(version)
        if schema is None:
            schema = self._ready[version] = Schema(self._schemas[version], foreign=True)
        return schema


def structural(kind: Kind, version: str = "") -> Mapping[str, Any]:
    """The structural schema of a kind as it is stored, or of one of its versions.

    It is shared, and must not be changed.
    """
    if kind.schemas is not None:
        return kind.schemas[version or kind.version]
    return schema_of(kind.view_of(version) if version else kind.view)


def schema_for(kind: Kind, version: str = "") -> Schema:
    """The schema of a kind as it is stored, or of one of its versions.

    It is made on the first call, and the same one ever after.
    """
    if kind.schemas is not None and isinstance(kind.schemas, Schemas):
        return kind.schemas.ready(version or kind.version)
    return _schema_for(kind.view_of(version) if version else kind.view, kind.native)


@cache
def _schema_for(view: type[msgspec.Struct], native: bool) -> Schema:  # noqa: FBT001 (a cache's key)
    return Schema(schema_of(view), native=native)
