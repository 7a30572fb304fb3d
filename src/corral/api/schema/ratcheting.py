"""Which faults an update brings: those of what it leaves as it was are let be.

So an object that was stored before its schema asked for more can be changed elsewhere.  Items of a
list that is a map are known by their keys; any other list is the same only as a whole.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.api.encoding import same
from corral.api.errors import UNCHECKED, Cause
from corral.api.object import Document

_ABOUT = re.compile(r'"(?P<path>[^"]*)" must ')
"""How refusals by alternatives begin, after the value that they do not tell."""
_VALUELESS = 'Invalid value: "": '
_ENDS = ("", ".", "[")
"""What stands behind a field's name in a path."""
_INDEX = re.compile(r"\[(?P<index>\d+)\]")


def brought(
    causes: Iterable[Cause], document: Document, old: Document, schema: Mapping[str, Any]
) -> list[Cause]:
    """The faults of what is not as it was."""
    changes = _Changes(document, old, schema)
    kept = [cause for cause in causes if cause == UNCHECKED or changes.include(cause)]
    return [] if all(cause == UNCHECKED for cause in kept) else kept


def correlated(schema: Mapping[str, Any], items: Sequence[Any], old: Any) -> list[Any]:
    """What each item of a list was before; None where nobody knows."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return [None] * len(items)
    keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()
    known = {_key(item, keys): item for item in old}
    return [known.get(_key(item, keys)) for item in items]


def _key(item: Any, keys: Sequence[str]) -> Any:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) else None


class _Changes:
    """What of a document is not as it was.

    Many faults may be about one long list: what is found of it is remembered.
    """

    def __init__(self, document: Document, old: Document, schema: Mapping[str, Any]) -> None:
        self._whole: tuple[Any, Any, Mapping[str, Any]] = document, old, schema
        self._before: dict[tuple[int, int], list[Any]] = {}
        self._same: dict[tuple[int, int], bool] = {}

    def include(self, cause: Cause) -> bool:
        """Whether what a cause is about is not as it was."""
        path = cause.field
        if path == "<nil>" and (match := _ABOUT.match(cause.message.removeprefix(_VALUELESS))):
            path = match["path"]
        if cause.reason == "FieldValueRequired":  # it is its holder who lacks it
            path = path.rpartition(".")[0]
        return self._differs(path)

    def _differs(self, path: str) -> bool:
        new, old, schema = self._whole
        while path:
            if isinstance(new, dict) and isinstance(old, dict):
                name = _first(new, path)
                if name is None or name not in old:
                    break
                new, old, rest = new[name], old[name], path[len(name) :]
                schema = _of_field(schema, name)
            elif isinstance(new, list) and (match := _INDEX.match(path)):
                index, rest = int(match["index"]), path[match.end() :]
                before = self._items(schema, new, old)[index]
                if before is None:
                    break
                new, old, schema = new[index], before, _part(schema, "items")
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


def _of_field(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    known = (schema.get("properties") or {}).get(name)
    return known if isinstance(known, Mapping) else _part(schema, "additionalProperties")


def _part(schema: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    found = schema.get(word)
    return found if isinstance(found, Mapping) else {}


def _first(value: Document, path: str) -> str | None:
    """The field that a path begins with; its name may hold dots."""
    names = [name for name in value if path.startswith(name) and path[len(name) :][:1] in _ENDS]
    return max(names, key=len, default=None)
