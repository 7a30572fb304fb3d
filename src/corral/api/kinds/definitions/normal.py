"""The normal form of a definition's schema: with the metadata that every object has."""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.object import ObjectMeta
from corral.api.types import schema_of

_TEXT: Final = {"type": "string"}


def normal(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A whole object's schema, whose metadata is that of every object."""
    properties = dict(schema.get("properties") or {})
    metadata = dict(schema_of(ObjectMeta))
    bounded = (properties.get("metadata") or {}).get("properties") or {}
    metadata["properties"] = {**metadata["properties"], **bounded}
    properties |= {"apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata}
    return {"type": "object", **schema, "properties": properties}
