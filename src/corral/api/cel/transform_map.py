"""``transformMap`` and ``transformMapEntry``: the library checks them, and cannot run them.

What they expand to calls ``cel.@mapInsert``, which has no implementation in the library's runtime,
and cannot be given one, as its name is taken.  So the checked expression is made to call a function
of ours, with a name of the same length.
"""

from collections.abc import Mapping
from typing import Any, Final

from corral.api.cel.function import Function

_THEIRS: Final = b"@mapInsert"
_OURS: Final = b"@mapinsert"
FUNCTION: Final = f"cel.{_OURS.decode()}"


def _insert(known: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if key in known:
        raise ValueError(f"insert failed: key '{key}' already exists")
    return {**known, key: value}


def _merge(known: Mapping[Any, Any], entries: Mapping[Any, Any]) -> dict[Any, Any]:
    for key in entries:
        if key in known:
            raise ValueError(f"insert failed: key '{key}' already exists")
    return {**known, **entries}


INSERTIONS: Final = tuple(
    Function(FUNCTION, takes, "entries", act, is_method=False, form=f"{_OURS.decode()}{form}")
    for takes, act, form in (
        (("entries", "dyn", "dyn"), _insert, "_map_key_value"),
        (("entries", "entries"), _merge, "_map_map"),
    )
)


def is_needed(serialized: bytes) -> bool:
    """Whether a checked expression cannot be run as it is."""
    return _THEIRS in serialized


def renamed(serialized: bytes) -> bytes:
    """The same expression with the function that there is."""
    return serialized.replace(_THEIRS, _OURS)
