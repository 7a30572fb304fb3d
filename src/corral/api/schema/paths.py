"""Places: sparse trees of the parts of a schema that hold some keyword."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self


class Place(ABC):
    """A node of such a tree: what the schema holds for one path and below; false if nothing.

    Subclasses read their keyword.  A walk over a document visits only paths with content.
    """

    def __init__(self: Self, schema: Mapping[str, Any]) -> None:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        below = ((name, self._of(inner)) for name, inner in properties.items())
        self._below: dict[str, Self] = {name: inner for name, inner in below if inner}
        self._rest: Self | None = self._of(schema.get("additionalProperties"))
        self._items: Self | None = self._of(schema.get("items"))

    @classmethod
    def _of(cls, schema: Any) -> Self | None:
        return cls(schema) or None if isinstance(schema, Mapping) else None

    @property
    @abstractmethod
    def _has_content(self) -> bool:
        """True if the schema has content for this path itself."""

    def __bool__(self) -> bool:
        return bool(self._has_content or self._below or self._rest or self._items)

    def _within(self, value: Any, path: str) -> Iterator[tuple[Self, Any, str]]:
        """Yield the non-empty places right below, each with the value there and its path."""
        if isinstance(value, dict):
            for name, inner in value.items():
                if name in self._below:
                    yield self._below[name], inner, f"{path}.{name}" if path else name
                elif self._rest is not None:
                    yield self._rest, inner, f"{path}[{name}]"
        elif isinstance(value, list) and self._items is not None:
            for index, inner in enumerate(value):
                yield self._items, inner, f"{path}[{index}]"
