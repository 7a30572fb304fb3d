"""Normalization of a definition's schema: adds apiVersion, kind and metadata of every object."""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.kinds.crd.cel_rules import RULES
from corral.api.kinds.crd.embedded_resources import EMBEDDED
from corral.api.object import ObjectMeta
from corral.api.types import schema_of

_TEXT: Final = {"type": "string"}
_BOUNDS: Final = (
    *("format", "pattern", "enum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "allOf", "anyOf", "oneOf", "not", RULES),
)
"""Keywords by which a schema can further restrict metadata."""


def normalized(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with the metadata of the object and of embedded resources filled in."""
    return {"type": "object", **_with_object_fields(_normalized_parts(schema))}


def _with_object_fields(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = dict(schema.get("properties") or {})
    metadata = _with_bounds(schema_of(ObjectMeta), properties.get("metadata") or {})
    for field in ("apiVersion", "kind"):
        properties[field] = {**(properties.get(field) or {}), **_TEXT}
    return {**schema, "properties": properties | {"metadata": metadata}}


def _with_bounds(own: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema restricted by the bounds of another; types are those of ``own``."""
    result = {word: declared[word] for word in _BOUNDS if word in declared} | dict(own)
    if required := [*own.get("required", ()), *(declared.get("required") or ())]:
        result["required"] = required
    for word in ("items", "additionalProperties"):
        if isinstance(own.get(word), Mapping) and isinstance(declared.get(word), Mapping):
            result[word] = _with_bounds(own[word], declared[word])
    if fields := declared.get("properties"):
        own_fields = own.get("properties") or {}
        bounds = {name: fields.get(name) or {} for name in own_fields}
        result["properties"] = {
            name: _with_bounds(own_fields[name], bounds[name]) for name in own_fields
        }
    return result


def _normalized_parts(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with embedded resources normalized; the same one if there are none."""
    changed: dict[str, Any] = {}
    properties = schema.get("properties") or {}
    below = {name: _normalized_part(inner) for name, inner in properties.items()}
    if any(below[name] is not properties[name] for name in below):
        changed["properties"] = below
    for word in ("items", "additionalProperties"):
        inner = schema.get(word)
        if isinstance(inner, Mapping) and (part := _normalized_part(inner)) is not inner:
            changed[word] = part
    return {**schema, **changed} if changed else schema


def _normalized_part(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    normal = _normalized_parts(schema)
    return _with_object_fields(normal) if schema.get(EMBEDDED) else normal
