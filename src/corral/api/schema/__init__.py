"""Structural schemas: pruning, defaulting and validation of documents.

``schema_of`` derives a schema from a view's types; ``Schema`` is one compiled for use on documents.
Messages are those of the real server (kube-openapi's validation of custom resources).
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

import msgspec

from corral.api.errors import UNCHECKED, Cause
from corral.api.kind import Kind
from corral.api.object import Document
from corral.api.schema.causes import Causes, TooManyCausesError
from corral.api.schema.compiler import Compiler
from corral.api.schema.defaults import Defaults, zeros_of_status
from corral.api.schema.nodes import Node, Object
from corral.api.types import schema_of

__all__ = ["Schema", "Schemas", "schema_for", "schema_of", "structural"]

NONE_VERIFIED: Final[frozenset[str]] = frozenset()
_encode = msgspec.json.Encoder().encode
_CACHED_SPECS: Final = 64
"""Cached specs that fit: the objects of a set, or of a script, mostly have the same."""
_CACHED_SIZES: Final = range(256, 16 << 10)
"""Bytes of an encoded spec that is cached: a smaller one is checked as fast, larger ones would take
much memory."""


class Schema:
    """A compiled schema that prunes and checks documents; built once for a kind, then shared.

    native: for Kubernetes' own kinds: quantities written as numbers become strings, and bytes one
        line of base64, as decoding into Go types does.
    foreign: for custom resources, whose schemas use keywords that ours do without.
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
        """Encoded specs that fit, in order of last use."""

    def fits(self, document: Document, verified: frozenset[str] = NONE_VERIFIED) -> bool:
        """Report whether a document needs no pruning and no defaults, and is valid.

        A fast path: most documents fit, and this takes a third of the time.  May return False for a
        document that fits.
        """
        if self._defaults is not None:
            return False
        spec = document.get("spec")
        data = _encode(spec) if type(spec) is dict and "spec" not in verified else b""
        if len(data) not in _CACHED_SIZES:
            return self._without_verified(verified).fits(_without(document, verified))
        if data in self._fitting:
            verified |= {"spec"}
        fits = self._without_verified(verified).fits(_without(document, verified))
        if fits:
            self._cache(data)
        return fits

    def _cache(self, spec: bytes) -> None:
        """Cache an encoded spec that fits, or renew its entry."""
        self._fitting.pop(spec, None)
        self._fitting[spec] = None
        if len(self._fitting) > _CACHED_SPECS:
            del self._fitting[next(iter(self._fitting))]

    def prune(self, document: Document, verified: frozenset[str] = NONE_VERIFIED) -> list[str]:
        """Remove unknown fields, and return the paths of the first MAX_CAUSES of them.

        Nulls in fields that are not nullable are removed silently.  ``verified`` are top-level
        fields that are known to fit, and are skipped.
        """
        unknown: list[str] = []
        part = _without(document, verified)
        self._root.prune(part, "", unknown)
        if part is not document:
            for name in document.keys() - part.keys() - verified:
                del document[name]
        return unknown

    def complete(self, document: Document) -> None:
        """Set the schema's defaults in a pruned document.

        Kubernetes' own kinds have none in the schema, only the zero values that decoding a status
        into Go types gives.
        """
        for defaults in (self._defaults, self._zeros):
            if defaults:
                defaults.complete(document)

    def check(self, document: Document, verified: frozenset[str] = NONE_VERIFIED) -> list[Cause]:
        """Return what is invalid in a pruned document: types, missing fields, bounds.

        ``verified`` are top-level fields to skip.  Checking ends when an answer is full; UNCHECKED
        is the last cause if more may be wrong.  That includes any invalid custom resource with CEL
        rules, because rules are only evaluated on values of the right types.
        """
        causes = Causes()
        with suppress(TooManyCausesError):
            self._without_verified(verified).check(_without(document, verified), "", causes)
        if causes and (causes.full or self._has_rules):
            causes += (UNCHECKED,)
        return causes

    def _without_verified(self, verified: frozenset[str]) -> Node:
        """Return the schema without the verified fields, which are not required then."""
        root = self._root
        if not verified or not isinstance(root, Object):
            return root
        others = Object(tuple(set(root.required) - verified), is_open=root.open)
        others.fields, others.forms = root.fields, root.forms
        return others


def _has_rules(schema: Mapping[str, Any]) -> bool:
    """Report whether a schema has CEL rules."""
    if schema.get("x-kubernetes-validations"):
        return True
    below = [*(schema.get("properties") or {}).values()]
    below += (schema.get(word) for word in ("items", "additionalProperties"))
    return any(isinstance(each, Mapping) and _has_rules(each) for each in below)


def _without(document: Document, verified: frozenset[str]) -> Document:
    if not verified:
        return document
    return {name: inner for name, inner in document.items() if name not in verified}


class Schemas(Mapping[str, Mapping[str, Any]]):
    """The structural schemas of a kind's versions; each is compiled when first used."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = dict(schemas)
        self._compiled: dict[str, Schema] = {}

    def __getitem__(self, version: str) -> Mapping[str, Any]:
        return self._schemas[version]

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def compiled(self, version: str) -> Schema:
        """Return the compiled schema of a version."""
        schema = self._compiled.get(version)
        if schema is None:
            schema = self._compiled[version] = Schema(self._schemas[version], foreign=True)
        return schema


def structural(kind: Kind, version: str = "") -> Mapping[str, Any]:
    """Return the structural schema of a kind's stored version, or of another version.

    It is shared, and must not be changed.
    """
    if kind.schemas is not None:
        return kind.schemas[version or kind.version]
    return schema_of(kind.view_of(version) if version else kind.view)


def schema_for(kind: Kind, version: str = "") -> Schema:
    """Return the compiled schema of a kind's stored version, or of another version; cached."""
    if kind.schemas is not None and isinstance(kind.schemas, Schemas):
        return kind.schemas.compiled(version or kind.version)
    return _schema_for(kind.view_of(version) if version else kind.view, kind.native)


@cache
def _schema_for(view: type[msgspec.Struct], native: bool) -> Schema:  # noqa: FBT001 (a cache's key)
    return Schema(schema_of(view), native=native)
