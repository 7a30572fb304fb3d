"""The paths by which rules say what they are about (``fieldPath``): ``.sizes['x-large'].count``."""

import re
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)+)'\]")
_ESCAPED = re.compile(r"\\(.)")


def normal(path: str, schema: Mapping[str, Any]) -> str | None:
    """A path as messages write it: ``.sizes[x-large].count``; None where it leads to no field.

    It leads through fields and the keys of maps, never through the items of lists.
    """
    at, told = 0, ""
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        name = step["name"] or _ESCAPED.sub(r"\1", step["quoted"])
        fields, rest = schema.get("properties"), schema.get("additionalProperties")
        if fields:
            told += f".{name}"
            inner = fields.get(name)
        else:
            told += f"[{name}]"
            inner = rest
        if not isinstance(inner, Mapping):
            return None
        schema, at = inner, step.end()
    return told
