"""Defaults that a schema names: they stand where a document says nothing."""

from collections.abc import Mapping
from typing import Any

from corral.api.encoding import copied


class Defaults:
    """The defaults at one place of a document, and below it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
        self._values = {
            name: inner["default"]
            for name, inner in properties.items()
            if inner.get("default") is not None
        }
        below = {name: Defaults(inner) for name, inner in properties.items()}
        self._below = {name: inner for name, inner in below.items() if inner}
        self._rest = _of(schema.get("additionalProperties"))
        self._items = _of(schema.get("items"))

    def __bool__(self) -> bool:
        return bool(self._values or self._below or self._rest or self._items)

    def complete(self, value: Any) -> None:
        """Put defaults where nothing is, in place."""
        if isinstance(value, dict):
            for name, default in self._values.items():
                if name not in value:
                    value[name] = copied(default)
            for name, inner in self._below.items():
                if name in value:
                    inner.complete(value[name])
            if self._rest is not None:
                for inner_value in value.values():
                    self._rest.complete(inner_value)
        elif isinstance(value, list) and self._items is not None:
            for inner_value in value:
                self._items.complete(inner_value)


def _of(schema: Any) -> Defaults | None:
    return Defaults(schema) or None if isinstance(schema, Mapping) else None
