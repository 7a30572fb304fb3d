"""Types of the parts of a document, and the operations of structured-merge-diff on each.

A *map* (a granular object) and an associative list (``items``) consist of parts with managers of
their own; all else is a *leaf*: scalars, atomic lists and atomic objects.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec

from corral.api.apply.field_sets import ITSELF, LEAF, Fields, has, inside, with_sorted_steps
from corral.api.errors import shortened

_SORTS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}
"""Types of a scalar: in messages, and in Python."""
MISSING: Final = object()
BARE: Final[tuple[Any, ...]] = (None, {}, [])
"""Empty values: an object or a list has one of them once all parts are removed."""
_encode = msgspec.json.Encoder().encode
_CACHED_SPECS: Final = 64
_CACHED_SIZES: Final = range(256, 16 << 10)
"""Bytes of an encoded spec whose fields are cached, as its schema caches that it fits."""


class Part(Protocol):
    """The type of a part.  Field sets are relative to it.

    added: the fields of a new value, as Compare counts them; sorted.
    compare: changed fields, sorted, and removed ones.
    applied: the fields that an apply of a value manages (ToFieldSet).
    named: a set with the named fields on the way to its members (EnsureNamedFieldsAreMembers).
    without: the value without some fields (RemoveItems); empty objects stay if ``bare``.
    merged: a value merged into the live one (Merge).
    faults: why a value is not of this type, each beginning with its relative path.
    """

    def added(self, value: Any) -> Fields: ...
    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]: ...
    def applied(self, value: Any) -> Fields | None: ...
    def named(self, fields: Fields) -> Fields: ...
    def without(self, value: Any, fields: Fields, *, bare: bool) -> Any: ...
    def merged(self, live: Any, value: Any) -> Any: ...
    def faults(self, value: Any) -> Iterator[str]: ...


class Leaf:
    """A scalar, or an atomic list or object.

    content: the type of what is inside an atomic list or object.
    sort: the JSON Schema type of a scalar; "" for any.
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
                yield f": expected {_SORTS[self.sort][0]}, got {_go_value(value, self.sort)}"
        elif isinstance(value, list):
            for index, item in enumerate(value):
                for fault in self.content.faults(item):
                    yield f"[{index}]{fault}"
        else:
            yield from self.content.faults(value)


class Map:
    """A granular object: declared fields, and the type of all others, if allowed."""

    __slots__ = ("fields", "rest")

    def __init__(self, rest: Part | None = None) -> None:
        self.fields: dict[str, tuple[str, Part]] = {}
        self.rest = rest

    def add(self, name: str, inner: Part, *, managed: bool = True) -> None:
        self.fields[name] = (f"f:{name}" if managed else "", inner)

    def part(self, name: str) -> tuple[str, Part]:
        """Return the step to a field, which is empty if it is never managed, and its type."""
        declared = self.fields.get(name)
        if declared is not None:
            return declared
        return ("", PLAIN) if self.rest is None else (f"f:{name}", self.rest)

    def added(self, value: Any) -> Fields:
        if type(value) is not dict or not value:
            return LEAF
        found = {ITSELF: LEAF}
        for name, inner in sorted(value.items()):
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
            if before == inner:  # fast path: most parts do not change
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
        return with_sorted_steps(changed) or None, removed or None

    def applied(self, value: Any) -> Fields | None:
        if type(value) is not dict:
            return None
        found: Fields = {}
        for name, inner in value.items():
            step, kind = self.part(name)
            below = kind.applied(inner) if step else None
            if step and (name not in self.fields or inner is None or inner == {}):
                below = member(below)
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
            declared = self.fields.get(name) if step[:2] == "f:" else None
            kind = declared[1] if declared is not None else self.rest
            inner = kind.named(below) if kind is not None else below
            if declared is not None and ITSELF not in inner:
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


class Spec(Map):
    """The spec of a kind, of which many objects have the same: those of a set, or of a script."""

    __slots__ = ("_added",)

    def __init__(self, part: Map) -> None:
        super().__init__(part.rest)
        self.fields = part.fields
        self._added: dict[bytes, Fields] = {}
        """Fields of new specs, by their encoding, in order of last use."""

    def added(self, value: Any) -> Fields:
        data = _encode(value)
        if len(data) not in _CACHED_SIZES:
            return super().added(value)
        found = self._added.pop(data, None)
        if found is None:
            found = super().added(value)
        self._added[data] = found
        if len(self._added) > _CACHED_SPECS:
            del self._added[next(iter(self._added))]
        return found


class _Anything:
    """A part without a schema: objects are granular, all else is a leaf."""

    __slots__ = ()

    def added(self, value: Any) -> Fields:
        return _ANY_MAP.added(value) if type(value) is dict else LEAF

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is type(new) is dict:
            return _ANY_MAP.compare(old, new)
        if old == new:
            return None, None
        return member(inside(self.added(new))), inside(self.added(old)) or None

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


def member(below: Fields | None) -> Fields:
    """Return the paths below a step, with the step itself as a member."""
    return {ITSELF: LEAF, **below} if below else LEAF


def shown(value: Any) -> str:
    return shortened(_encode(value).decode())


def _go_value(value: Any, sort: str) -> str:
    """Return a value of the wrong type as Kubernetes' messages show it."""
    if sort in ("integer", "number"):
        return _GO_TYPES.get(type(value), "string")
    text = shown(value)
    return f"&value.valueUnstructured{{Value:{text}}}" if sort == "string" else f"&{{{text}}}"


_GO_TYPES: Final = {bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
