"""Whether a definition's schema is structural, and what else it must be."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corral.api.errors import Cause
from corral.api.kinds.causes import invalid, required


def check(path: str, schema: Mapping[str, Any]) -> Iterator[Cause]:
    """What is wrong with a schema."""
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield invalid(f"{path}.type", schema["type"], "must be object at the root")


def field_at(schema: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any] | None:
    """The schema of a field of an object; None where there is no such field."""
    for name in names:
        found = (schema.get("properties") or {}).get(name)
        if not isinstance(found, Mapping):
            return None
        schema = found
    return schema
