"""The normal form of a definition's schema: with the metadata that every whole object has."""

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
"""What a schema can ask of metadata beyond that it is such."""


def normal(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A whole object's schema: its metadata, and that of objects within it, is that of all."""
    return {"type": "object", **_whole(_within(schema))}


def _whole(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = dict(schema.get("properties") or {})
    metadata = _bounded(schema_of(ObjectMeta), properties.get("metadata") or {})
    for field in ("apiVersion", "kind"):
        properties[field] = {**(properties.get(field) or {}), **_TEXT}
    return {**schema, "properties": properties | {"metadata": metadata}}


def _bounded(own: Mapping[str, Any], told: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with the bounds of another: what is of which type, its own says alone."""
    made = {word: told[word] for word in _BOUNDS if word in told} | dict(own)
    if required := [*own.get("required", ()), *(told.get("required") or ())]:
        made["required"] = required
    for word in ("items", "additionalProperties"):
        if isinstance(own.get(word), Mapping) and isinstance(told.get(word), Mapping):
            made[word] = _bounded(own[word], told[word])
    if fields := told.get("properties"):
        known = own.get("properties") or {}
        bounds = {name: fields.get(name) or {} for name in known}
        made["properties"] = {name: _bounded(known[name], bounds[name]) for name in known}
    return made


def _within(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with those of whole objects in it made normal; itself, where there are none."""
    changed: dict[str, Any] = {}
    properties = schema.get("properties") or {}
    below = {name: _inner(inner) for name, inner in properties.items()}
    if any(below[name] is not properties[name] for name in below):
        changed["properties"] = below
    for word in ("items", "additionalProperties"):
        inner = schema.get(word)
        if isinstance(inner, Mapping) and (made := _inner(inner)) is not inner:
            changed[word] = made
    return {**schema, **changed} if changed else schema


def _inner(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    made = _within(schema)
    return _whole(made) if schema.get(EMBEDDED) else made
