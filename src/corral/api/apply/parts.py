"""The sorts of which the parts of a document are, and what walks do at each.

A *map* (an object) and a list of *items* that are told apart are made of parts that can have
several managers; all else is a *leaf*: plain values, atomic lists and objects.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from corral.api.apply.field_sets import ITSELF, LEAF, Fields, has, inside
from corral.api.errors import shortened

_SORTS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}
"""What a plain value must be, in words and in types."""
MISSING: Final = object()
BARE: Final[tuple[Any, ...]] = (None, {}, [])
"""What is left of an object or a list of which all is taken away."""
_encode = msgspec.json.Encoder().encode


class Part(Protocol):
    """The type of a place; of a value and of a set of paths that stand there."""

    def added(self, value: Any) -> Fields: ...
    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]: ...
    def applied(self, value: Any) -> Fields | None: ...
    def named(self, fields: Fields) -> Fields: ...
    def without(self, value: Any, fields: Fields, *, bare: bool) -> Any: ...  # bare ones stay
    def merged(self, live: Any, value: Any) -> Any: ...
    def faults(self, value: Any) -> Iterator[str]: ...  # each begins with its path from here


class Leaf:
    """A plain value, or a list or object that is replaced as a whole; ``content`` is its inside.

    A plain value is of a ``sort`` of JSON Schema, if one is told.
    """

    __slots__ = ("content", "sort")

    def __init__(self, content: Part | None = None, sort: str = "") -> None:
        self.content = content
        self.sort = sort

    def added(self, _value: Any) -> Fields:
        return LEAF

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        return (None if old == new else LEAF), None

    def applied(self, _value: Any) -> Fields | None:
        return LEAF

    def named(self, fields: Fields) -> Fields:
        return fields

    def without(self, value: Any, _fields: Fields, *, bare: bool) -> Any:  # noqa: ARG002
        return value

    def merged(self, _live: Any, value: Any) -> Any:
        return value

    def faults(self, value: Any) -> Iterator[str]:
        if value is None:
            return
        if self.content is None:
            if self.sort and type(value) not in _SORTS[self.sort][1]:
                yield f": expected {_SORTS[self.sort][0]}, got {_told(value, self.sort)}"
        elif isinstance(value, list):
            for index, item in enumerate(value):
                for fault in self.content.faults(item):
                    yield f"[{index}]{fault}"
        else:
            yield from self.content.faults(value)


class Map:
    """An object: fields with types of their own, and the type of all others, if any may be."""

    __slots__ = ("fields", "rest")

    def __init__(self, rest: Part | None = None) -> None:
        self.fields: dict[str, tuple[str, Part]] = {}
        self.rest = rest

    def add(self, name: str, inner: Part, *, managed: bool = True) -> None:
        self.fields[name] = (f"f:{name}" if managed else "", inner)

    def part(self, name: str) -> tuple[str, Part]:
        """The step to a field, which is empty where it has no managers, and its type."""
        known = self.fields.get(name)
        if known is not None:
            return known
        return ("", PLAIN) if self.rest is None else (f"f:{name}", self.rest)

    def added(self, value: Any) -> Fields:
        if type(value) is not dict or not value:
            return LEAF
        found = {ITSELF: LEAF}
        for name, inner in value.items():
            step, kind = self.fields.get(name) or self.part(name)
            if step:
                found[step] = LEAF if type(kind) is Leaf else kind.added(inner)
        return found if len(found) > 1 else LEAF

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is not dict or type(new) is not dict or not (old or new):
            return (None if old == new else LEAF), None
        changed: Fields = {}
        removed: Fields = {}
        for name, inner in new.items():
            before = old.get(name, MISSING)
            if before == inner:  # most parts stay as they were
                continue
            step, kind = self.fields.get(name) or self.part(name)
            if not step:
                continue
            if before is MISSING:
                changed[step] = kind.added(inner)
                continue
            more, less = kind.compare(before, inner)
            if more is not None:
                changed[step] = more
            if less is not None:
                removed[step] = less
        for name in old.keys() - new.keys():
            step, kind = self.part(name)
            if step:
                removed[step] = kind.added(old[name])
        return changed or None, removed or None

    def applied(self, value: Any) -> Fields | None:
        if type(value) is not dict:
            return None
        found: Fields = {}
        for name, inner in value.items():
            step, kind = self.part(name)
            below = kind.applied(inner) if step else None
            if step and (name not in self.fields or inner is None or inner == {}):
                below = itself(below)
            if below is not None:
                found[step] = below
        return found or None

    def named(self, fields: Fields) -> Fields:
        named = {}
        for step, below in fields.items():
            if not below:
                named[step] = LEAF
                continue
            name = step[2:]
            known = self.fields.get(name) if step[:2] == "f:" else None
            kind = known[1] if known is not None else self.rest
            inner = kind.named(below) if kind is not None else below
            if known is not None and ITSELF not in inner:
                inner = {ITSELF: LEAF, **inner}
            named[step] = inner
        return named

    def without(self, value: Any, fields: Fields, *, bare: bool) -> Any:
        if type(value) is not dict:
            return value
        kept = dict(value)
        for name, inner in value.items():
            step, kind = self.part(name)
            below = fields.get(step)
            if below is None:
                continue
            if has(below):
                del kept[name]
                continue
            left = kept[name] = kind.without(inner, below, bare=bare)
            if left in BARE and not bare:
                del kept[name]
        return kept

    def merged(self, live: Any, value: Any) -> Any:
        if type(live) is not dict or type(value) is not dict:
            return value
        merged = dict(live)
        for name, inner in value.items():
            merged[name] = self.part(name)[1].merged(live[name], inner) if name in live else inner
        return merged

    def faults(self, value: Any) -> Iterator[str]:
        if value is None:
            return
        if type(value) is not dict:
            yield f": expected map, got {shown(value)}"
            return
        for name, inner in value.items():
            _, kind = self.fields.get(name) or ("", self.rest)
            if kind is None:
                yield f".{shortened(name)}: field not declared in schema"
            else:
                for fault in kind.faults(inner):
                    yield f".{name}{fault}"


class _Anything:
    """What no schema tells: objects are maps of anything, all else is a leaf."""

    __slots__ = ()

    def added(self, value: Any) -> Fields:
        return _ANY_MAP.added(value) if type(value) is dict else LEAF

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is type(new) is dict:
            return _ANY_MAP.compare(old, new)
        if old == new:
            return None, None
        return itself(inside(self.added(new))), inside(self.added(old)) or None

    def applied(self, value: Any) -> Fields | None:
        return _ANY_MAP.applied(value) if type(value) is dict else LEAF

    def named(self, fields: Fields) -> Fields:
        return _ANY_MAP.named(fields)

    def without(self, value: Any, fields: Fields, *, bare: bool) -> Any:
        return _ANY_MAP.without(value, fields, bare=bare)

    def merged(self, live: Any, value: Any) -> Any:
        return _ANY_MAP.merged(live, value)

    def faults(self, _value: Any) -> Iterator[str]:
        return iter(())


PLAIN: Final = Leaf()
ANY: Final = _Anything()
_ANY_MAP: Final = Map(ANY)


def itself(below: Fields | None) -> Fields:
    """What stands below a step that is in the set itself."""
    return {ITSELF: LEAF, **below} if below else LEAF


def shown(value: Any) -> str:
    return shortened(_encode(value).decode())


def _told(value: Any, sort: str) -> str:
    """A value that is of another sort than it must be, in Kubernetes' words."""
    if sort in ("integer", "number"):
        return _GO_TYPES.get(type(value), "string")
    text = shown(value)
    return f"&value.valueUnstructured{{Value:{text}}}" if sort == "string" else f"&{{{text}}}"


_GO_TYPES: Final = {bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
