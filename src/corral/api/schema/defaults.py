"""Defaults that a schema names: they stand where a document says nothing."""

from collections.abc import Mapping
from typing import Any

from corral.api.encoding import copied
from corral.api.schema.places import Place


class Defaults(Place):
    """The defaults at one place of a document, and below it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
        self._values = {
            name: inner["default"]
            for name, inner in properties.items()
            if inner.get("default") is not None
        }
        super().__init__(schema)

    @property
    def _is_told(self) -> bool:
        return bool(self._values)

    def complete(self, value: Any) -> None:
        """Put defaults where nothing is, in place."""
        if isinstance(value, dict):
            for name, default in self._values.items():
                if name not in value:
                    value[name] = copied(default)
        for place, inner, _path in self._within(value, ""):
            place.complete(inner)
