"""Uniqueness of items in lists of type set and map (``x-kubernetes-list-type``)."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from corral.api.encoding import encode_sorted
from corral.api.errors import Cause
from corral.api.kinds.causes import duplicate, invalid
from corral.api.schema.paths import Place


class Uniqueness(Place):
    """The sets and maps of a schema and of the schemas in it; false if there are none."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._type = schema.get("x-kubernetes-list-type", "")
        self._keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()
        super().__init__(schema)

    @property
    def _has_content(self) -> bool:
        return self._type in ("set", "map")

    def check(self, value: Any, path: str = "") -> Iterator[Cause]:
        """Yield a cause for each duplicate item."""
        if isinstance(value, list):
            if self._type == "set":
                yield from _duplicates(path, value)
            elif self._type == "map":
                yield from self._map(path, value)
        for place, inner, where in self._within(value, path):
            yield from place.check(inner, where)

    def _map(self, path: str, value: list[Any]) -> Iterator[Cause]:
        keys = []
        for index, inner in enumerate(value):
            if not isinstance(inner, dict | None):
                fault = "must be an object for an array of list-type map"
                yield invalid(f"{path}[{index}]", inner, fault)
                return
            fields = inner or {}
            keys.append({key: fields[key] for key in self._keys if key in fields})
        yield from _duplicates(path, keys)


def _duplicates(path: str, values: Sequence[Any]) -> Iterator[Cause]:
    """Yield one cause for each value that occurs more than once."""
    seen: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        form = encode_sorted(value)
        seen[form] = seen.get(form, 0) + 1
        if seen[form] == 2:
            yield duplicate(f"{path}[{index}]", value)
