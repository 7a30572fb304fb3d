"""Ratcheting validation (KEP-4008): an update is refused only for invalid values that it changes.

So an object that was stored under a laxer schema can still be updated.  Items of a list of type map
are correlated by their keys; any other list is compared as a whole.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.api.encoding import same
from corral.api.errors import UNCHECKED, Cause
from corral.api.object import Document

_JUNCTOR_PATH = re.compile(r'"(?P<path>[^"]*)" must ')
"""The begin of a junctor's message, after the value, which is empty."""
_NO_VALUE = 'Invalid value: "": '
_ENDS = ("", ".", "[")
"""Text that may follow a field's name in a path."""
_INDEX = re.compile(r"\[(?P<index>\d+)\]")


def introduced(
    causes: Iterable[Cause], document: Document, old: Document, schema: Mapping[str, Any]
) -> list[Cause]:
    """Return the causes about changed values."""
    changes = _Changes(document, old, schema)
    kept = [cause for cause in causes if cause == UNCHECKED or changes.include(cause)]
    return [] if all(cause == UNCHECKED for cause in kept) else kept


def correlated(schema: Mapping[str, Any], items: Sequence[Any], old: Any) -> list[Any]:
    """Return the old value of each item of a list; None if it cannot be correlated."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return [None] * len(items)
    keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()
    by_key = {_key(item, keys): item for item in old}
    return [by_key.get(_key(item, keys)) for item in items]


def _key(item: Any, keys: Sequence[str]) -> Any:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) else None


class _Changes:
    """The differences between a document and its old version.

    Comparisons are cached, because many causes may be about one long list.
    """

    def __init__(self, document: Document, old: Document, schema: Mapping[str, Any]) -> None:
        self._document: tuple[Any, Any, Mapping[str, Any]] = document, old, schema
        self._before: dict[tuple[int, int], list[Any]] = {}
        self._same: dict[tuple[int, int], bool] = {}

    def include(self, cause: Cause) -> bool:
        """Report whether the value that a cause is about has changed."""
        path = cause.field
        if path == "<nil>" and (
            match := _JUNCTOR_PATH.match(cause.message.removeprefix(_NO_VALUE))
        ):
            path = match["path"]
        if cause.reason == "FieldValueRequired":  # the value is the object that lacks the field
            path = path.rpartition(".")[0]
        return self._differs(path)

    def _differs(self, path: str) -> bool:
        new, old, schema = self._document
        while path:
            if isinstance(new, dict) and isinstance(old, dict):
                name = _first_field(new, path)
                if name is None or name not in old:
                    break
                new, old, rest = new[name], old[name], path[len(name) :]
                schema = _field_schema(schema, name)
            elif isinstance(new, list) and (match := _INDEX.match(path)):
                index, rest = int(match["index"]), path[match.end() :]
                before = self._items(schema, new, old)[index]
                if before is None:
                    break
                new, old, schema = new[index], before, _subschema(schema, "items")
            else:
                break
            path = rest.lstrip(".")
        both = id(new), id(old)
        if both not in self._same:
            self._same[both] = same(new, old)
        return not self._same[both]

    def _items(self, schema: Mapping[str, Any], items: list[Any], old: Any) -> list[Any]:
        both = id(items), id(old)
        if both not in self._before:
            self._before[both] = correlated(schema, items, old)
        return self._before[both]


def _field_schema(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    field = (schema.get("properties") or {}).get(name)
    return field if isinstance(field, Mapping) else _subschema(schema, "additionalProperties")


def _subschema(schema: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    found = schema.get(word)
    return found if isinstance(found, Mapping) else {}


def _first_field(value: Document, path: str) -> str | None:
    """Return the field that a path begins with; its name may contain dots."""
    names = [name for name in value if path.startswith(name) and path[len(name) :][:1] in _ENDS]
    return max(names, key=len, default=None)
