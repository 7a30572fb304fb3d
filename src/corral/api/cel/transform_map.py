"""``transformMap`` and ``transformMapEntry``, which the library checks but cannot evaluate.

They expand to calls of ``cel.@mapInsert``, which the library's runtime does not implement; nor can
an extension, because the name is declared.  So the checked expression is patched to call a function
of ours, whose name has the same length.
"""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.cel.function import Function

_MISSING: Final = b"@mapInsert"
_OURS: Final = b"@mapinsert"
FUNCTION: Final = f"cel.{_OURS.decode()}"


def _insert(entries: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if key in entries:
        raise ValueError(f"insert failed: key '{key}' already exists")
    return {**entries, key: value}


def _merge(entries: Mapping[Any, Any], added: Mapping[Any, Any]) -> dict[Any, Any]:
    for key in added:
        if key in entries:
            raise ValueError(f"insert failed: key '{key}' already exists")
    return {**entries, **added}


INSERTIONS: Final = tuple(
    Function(
        FUNCTION,
        parameters,
        "entries",
        implementation,
        is_method=False,
        overload_id=f"{_OURS.decode()}{signature}",
    )
    for parameters, implementation, signature in (
        (("entries", "dyn", "dyn"), _insert, "_map_key_value"),
        (("entries", "entries"), _merge, "_map_map"),
    )
)


def is_needed(serialized: bytes) -> bool:
    """Report whether a checked expression calls the missing function."""
    return _MISSING in serialized


def renamed(serialized: bytes) -> bytes:
    """Return the expression with our function in its place."""
    return serialized.replace(_MISSING, _OURS)
