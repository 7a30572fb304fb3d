"""Lists that are sets or maps hold nothing twice."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from corral.api.errors import Cause
from corral.api.kinds.causes import duplicate, invalid

_encode = msgspec.json.Encoder(order="sorted").encode


class Uniqueness:
    """The sets and maps at one place of a document, and below it; false where there are none."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._type = schema.get("x-kubernetes-list-type", "")
        self._keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys") or ()
        properties: Mapping[str, Any] = schema.get("properties") or {}
        below = {name: Uniqueness(inner) for name, inner in properties.items()}
        self._below = {name: inner for name, inner in below.items() if inner}
        self._rest = _of(schema.get("additionalProperties"))
        self._items = _of(schema.get("items"))

    def __bool__(self) -> bool:
        own = self._type in ("set", "map")
        return bool(own or self._below or self._rest or self._items)

    def check(self, value: Any, path: str = "") -> Iterator[Cause]:
        """What stands twice."""
        if isinstance(value, dict):
            for name, inner in value.items():
                if name in self._below:
                    where = f"{path}.{name}" if path else name
                    yield from self._below[name].check(inner, where)
                elif self._rest is not None:
                    yield from self._rest.check(inner, f"{path}[{name}]")
        elif isinstance(value, list):
            if self._type == "set":
                yield from _repeated(path, value)
            elif self._type == "map":
                yield from self._map(path, value)
            for index, inner in enumerate(value if self._items is not None else ()):
                assert self._items is not None
                yield from self._items.check(inner, f"{path}[{index}]")

    def _map(self, path: str, value: list[Any]) -> Iterator[Cause]:
        keys = []
        for index, inner in enumerate(value):
            if not isinstance(inner, dict | None):
                fault = "must be an object for an array of list-type map"
                yield invalid(f"{path}[{index}]", inner, fault)
                return
            known = inner or {}
            keys.append({key: known[key] for key in self._keys if key in known})
        yield from _repeated(path, keys)


def _repeated(path: str, values: Sequence[Any]) -> Iterator[Cause]:
    """Each value that was there before is told once."""
    seen: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        form = _encode(value)
        seen[form] = seen.get(form, 0) + 1
        if seen[form] == 2:
            yield duplicate(f"{path}[{index}]", value)


def _of(schema: Any) -> Uniqueness | None:
    return Uniqueness(schema) or None if isinstance(schema, Mapping) else None
