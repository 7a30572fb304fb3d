"""Validation of embedded resources (``x-kubernetes-embedded-resource``).

The messages are those of apiextensions-apiserver (its schema/objectmeta).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.api.errors import Cause
from corral.api.kinds.causes import invalid, required
from corral.api.metadata import check_embedded_metadata
from corral.api.names import service_name_faults
from corral.api.object import ObjectMeta
from corral.api.schema import Schema
from corral.api.schema.paths import Place
from corral.api.types import schema_of

EMBEDDED: Final = "x-kubernetes-embedded-resource"
_EMPTY: Final = "must not be empty"
_TEXT: Final = {"type": "string"}
_OBJECT_SCHEMA: Final = Schema(
    {
        "type": "object",
        "properties": {"apiVersion": _TEXT, "kind": _TEXT, "metadata": schema_of(ObjectMeta)},
    }
)
"""The schema of every embedded resource.  Values that were stored before the field became one may
not conform; they are skipped here, and left to the check of schemas, which ratchets."""


class Embedded(Place):
    """The embedded resources of a schema and of the schemas in it; false if there are none."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._is_embedded = bool(schema.get(EMBEDDED))
        super().__init__(schema)

    @property
    def _has_content(self) -> bool:
        return self._is_embedded

    def check(self, value: Any, path: str = "") -> Iterator[Cause]:
        """Yield the causes for which they are invalid."""
        if self._is_embedded and isinstance(value, dict) and not _OBJECT_SCHEMA.check(value):
            yield from _check_resource(value, path)
        for place, inner, where in self._within(value, path):
            yield from place.check(inner, where)


def _check_resource(value: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for field in ("apiVersion", "kind"):
        if field not in value:
            yield required(f"{path}.{field}", _EMPTY)
        elif not value[field]:
            yield invalid(f"{path}.{field}", value[field], _EMPTY)
    version, kind = value.get("apiVersion") or "", value.get("kind") or ""
    if version.count("/") > 1:
        fault = f"unexpected GroupVersion string: {version}"
        yield invalid(f"{path}.apiVersion", version, fault)
    if kind and (faults := service_name_faults(kind.lower())):
        fault = f"may have mixed case, but should otherwise match: {','.join(faults)}"
        yield invalid(f"{path}.kind", kind, fault)
    yield from check_embedded_metadata(value.get("metadata") or {}, f"{path}.metadata")
