"""Field paths of CEL rules (``fieldPath``), such as ``.sizes['x-large'].count``."""

import re
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)+)'\]")
_ESCAPED = re.compile(r"\\(.)")


def formatted(path: str, schema: Mapping[str, Any]) -> str | None:
    """Return a path as in messages: ``.sizes[x-large].count``; None if there is no such field.

    A path goes through fields and keys of maps, never through items of lists.
    """
    at, result = 0, ""
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        name = step["name"] or _ESCAPED.sub(r"\1", step["quoted"])
        fields, rest = schema.get("properties"), schema.get("additionalProperties")
        if fields:
            result += f".{name}"
            inner = fields.get(name)
        else:
            result += f"[{name}]"
            inner = rest
        if not isinstance(inner, Mapping):
            return None
        schema, at = inner, step.end()
    return result
