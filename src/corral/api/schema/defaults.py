"""Defaults of a schema, set in fields that a document leaves out."""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.encoding import copied
from corral.api.schema.paths import Place

_ZEROS: Final[Mapping[str, Any]] = {
    "string": "",
    "boolean": False,
    "integer": 0,
    "number": 0,
    "object": {},
    "array": [],
}


def zeros_of_status(schema: Mapping[str, Any]) -> "Defaults | None":
    """Return the Go zero values of required fields in the status of a native kind.

    The real server decodes a status into Go types, whose fields are always there, and does not
    validate that a request has them: ``required`` in OpenAPI is about what the server writes.
    """
    status = (schema.get("properties") or {}).get("status")
    if status is None:
        return None
    return Defaults({"properties": {"status": _with_zeros(status)}}) or None


def _with_zeros(schema: Any) -> Any:
    """Return a schema with the zero value as the default of every required field."""
    if not isinstance(schema, Mapping):
        return schema
    properties = {
        name: _with_zeros(inner) | ({"default": _zero(inner)} if name in required else {})
        for required in [frozenset(schema.get("required") or ())]
        for name, inner in (schema.get("properties") or {}).items()
    }
    below = {
        word: _with_zeros(schema[word])
        for word in ("items", "additionalProperties")
        if word in schema
    }
    return {**schema, **below, "properties": properties}


def _zero(schema: Mapping[str, Any]) -> Any:
    if schema.get("format") == "quantity":
        return "0"
    return _ZEROS[schema.get("type", "integer")]


class Defaults(Place):
    """The defaults of one path of a document, and below it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
        self._values = {
            name: inner["default"]
            for name, inner in properties.items()
            if inner.get("default") is not None
        }
        super().__init__(schema)

    @property
    def _has_content(self) -> bool:
        return bool(self._values)

    def complete(self, value: Any) -> None:
        """Set the defaults of missing fields, in place."""
        if isinstance(value, dict):
            for name, default in self._values.items():
                if name not in value:
                    value[name] = copied(default)
        for place, inner, _path in self._within(value, ""):
            place.complete(inner)
