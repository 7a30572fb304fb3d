"""The sorts of which the parts of a document are, and what walks do at each.

A *map* (an object) and a list of *items* that are told apart are made of parts that can have
several managers; all else is a *leaf*: plain values, atomic lists and objects.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from corral.api.apply.fields import ITSELF, LEAF, Fields, has, inside, shown
from corral.api.errors import shortened

_MISSING: Final = object()
_encode = msgspec.json.Encoder().encode


class Part(Protocol):
    """The type of a place; of a value and of a set of paths that stand there."""

    def added(self, value: Any) -> Fields: ...
    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]: ...
    def applied(self, value: Any) -> Fields | None: ...
    def named(self, fields: Fields) -> Fields: ...
    def without(self, value: Any, fields: Fields) -> Any: ...
    def merged(self, live: Any, value: Any) -> Any: ...
    def faults(self, value: Any, path: str) -> Iterator[str]: ...


class Leaf:
    """A plain value, or a list or object that is replaced as a whole; ``content`` is its inside."""

    __slots__ = ("content",)

    def __init__(self, content: Part | None = None) -> None:
        self.content = content

    def added(self, _value: Any) -> Fields:
        return LEAF

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        return (None if old == new else LEAF), None

    def applied(self, _value: Any) -> Fields | None:
        return LEAF

    def named(self, fields: Fields) -> Fields:
        return fields

    def without(self, value: Any, _fields: Fields) -> Any:
        return value

    def merged(self, _live: Any, value: Any) -> Any:
        return value

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if self.content is None or value is None:
            return
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.content.faults(item, f"{path}[{index}]")
        else:
            yield from self.content.faults(value, path)


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
            step, kind = self.part(name)
            if step:
                found[step] = LEAF if type(kind) is Leaf else kind.added(inner)
        return found if len(found) > 1 else LEAF

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is not dict or type(new) is not dict or not (old or new):
            return (None if old == new else LEAF), None
        changed: Fields = {}
        removed: Fields = {}
        for name, inner in new.items():
            before = old.get(name, _MISSING)
            if before == inner:  # most parts stay as they were
                continue
            step, kind = self.part(name)
            if not step:
                continue
            if before is _MISSING:
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
                below = _itself(below)
            if below is not None:
                found[step] = below
        return found or None

    def named(self, fields: Fields) -> Fields:
        named = {}
        for step, below in fields.items():
            name = step[2:]
            known = self.fields.get(name) if step[:2] == "f:" else None
            kind = known[1] if known is not None else self.rest
            inner = kind.named(inside(below)) if kind is not None else inside(below)
            named[step] = _itself(inner) if known is not None or has(below) else inner
        return named

    def without(self, value: Any, fields: Fields) -> Any:
        if type(value) is not dict:
            return value
        kept = dict(value)
        for name, inner in value.items():
            step, kind = self.part(name)
            below = fields.get(step)
            if below is None:
                continue
            left = None if has(below) else kind.without(inner, below)
            if left is None:
                del kept[name]
            else:
                kept[name] = left
        return kept or None

    def merged(self, live: Any, value: Any) -> Any:
        if type(live) is not dict or type(value) is not dict:
            return value
        merged = dict(live)
        for name, inner in value.items():
            merged[name] = self.part(name)[1].merged(live[name], inner) if name in live else inner
        return merged

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if value is None:
            return
        if type(value) is not dict:
            yield f"{path or '.'}: expected map, got {_shown(value)}"
            return
        for name, inner in value.items():
            _, kind = self.fields.get(name) or ("", self.rest)
            if kind is None:
                yield f"{path}.{shortened(name)}: field not declared in schema"
            else:
                yield from kind.faults(inner, f"{path}.{name}")


class Items:
    """A list whose items are told apart: by keys in them, or without keys by what they are."""

    __slots__ = ("keys", "kind")

    def __init__(self, keys: Mapping[str, Any], kind: Part) -> None:
        self.keys = sorted(keys.items())
        self.kind = kind

    def step(self, item: Any, index: int) -> str:
        """The step to an item; its index where it has none of its own."""
        if not self.keys:
            if isinstance(item, dict | list) or item is None:
                return f"i:{index}"
            return "v:" + _encode(item).decode()
        if type(item) is not dict:
            return f"i:{index}"
        keys = {}
        for name, default in self.keys:
            value = item.get(name, default)
            if value is None:
                return f"i:{index}"
            keys[name] = value
        return "k:" + _encode(keys).decode()

    def indexed(self, items: list[Any]) -> dict[str, Any]:
        """The items by their steps; items that cannot be told apart are one list."""
        found: dict[str, Any] = {}
        for index, item in enumerate(items):
            step = self.step(item, index)
            if step not in found:
                found[step] = item
            elif type(found[step]) is _Alike:
                found[step].append(item)
            else:
                found[step] = _Alike([found[step], item])
        return found

    def added(self, value: Any) -> Fields:
        if type(value) is not list or not value:
            return LEAF
        found = {ITSELF: LEAF}
        for step, item in self.indexed(value).items():
            found[step] = self.added_item(item)
        return found

    def added_item(self, item: Any) -> Fields:
        return LEAF if type(item) is _Alike else self.kind.added(item)

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is not list or type(new) is not list or not (old or new):
            return (None if old == new else LEAF), None
        before, after = self.indexed(old), self.indexed(new)
        changed: Fields = {}
        removed = {
            step: self.added_item(item) for step, item in before.items() if step not in after
        }
        for step, item in after.items():
            known = before.get(step, _MISSING)
            if known is _MISSING:
                changed[step] = self.added_item(item)
            elif known != item:
                more, less = self.compare_item(known, item)
                if more is not None:
                    changed[step] = more
                if less is not None:
                    removed[step] = less
        return changed or None, removed or None

    def compare_item(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is _Alike or type(new) is _Alike:
            return LEAF, None
        return self.kind.compare(old, new)

    def applied(self, value: Any) -> Fields | None:
        if type(value) is not list:
            return None
        found = {
            step: _itself(self.kind.applied(item)) for step, item in self.indexed(value).items()
        }
        return found or None

    def named(self, fields: Fields) -> Fields:
        named = {}
        for step, below in fields.items():
            inner = self.kind.named(inside(below))
            named[step] = _itself(inner) if has(below) else inner
        return named

    def without(self, value: Any, fields: Fields) -> Any:
        if type(value) is not list:
            return value
        kept = []
        for index, item in enumerate(value):
            below = fields.get(self.step(item, index))
            if below is None:
                kept.append(item)
            elif not has(below) and (left := self.kind.without(item, below)) is not None:
                kept.append(left)
        return kept or None

    def merged(self, live: Any, value: Any) -> Any:
        """The items of both; those that only live ones hold stay before what they stood before."""
        if type(live) is not list or type(value) is not list:
            return value
        wanted = self.indexed(value)
        present = [(self.step(item, index), item) for index, item in enumerate(live)]
        known = dict(present)
        shared = iter([step for step in wanted if step in known])
        awaited = next(shared, None)
        merged: list[Any] = []
        place = 0
        for step, item in wanted.items():
            while place < len(present) and present[place][0] != awaited:
                if present[place][0] not in wanted:
                    merged.append(present[place][1])
                place += 1
            merged.append(self.kind.merged(known[step], item) if step in known else item)
            if step == awaited:
                awaited = next(shared, None)
        return merged + [item for step, item in present[place:] if step not in wanted]

    def faults(self, value: Any, path: str) -> Iterator[str]:
        if value is None:
            return
        if type(value) is not list:
            yield f"{path}: expected list, got {_shown(value)}"
            return
        steps = set()
        for index, item in enumerate(value):
            step = self.step(item, index)
            if step[0] == "i":
                yield f"{path}: element {index}: {self.unclear(item)}"
            elif step in steps:
                yield f"{path}: duplicate entries for key {shown(step)}"
            else:
                yield from self.kind.faults(item, path + shown(step))
            steps.add(step)

    def unclear(self, item: Any) -> str:
        """Why an item cannot be told from others."""
        if not self.keys:
            found = "an explicit null" if item is None else f"a {_sort(item)} type"
            return f"associative list without keys has an element that's {found}"
        if type(item) is not dict:
            return "associative list with keys has an element that's not a map"
        absent = next(name for name, other in self.keys if item.get(name, other) is None)
        return (
            f'associative list with keys has an element that omits key field "{absent}" '
            "(and doesn't have default value)"
        )


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
        return _itself(inside(self.added(new))), inside(self.added(old)) or None

    def applied(self, value: Any) -> Fields | None:
        return _ANY_MAP.applied(value) if type(value) is dict else LEAF

    def named(self, fields: Fields) -> Fields:
        return _ANY_MAP.named(fields)

    def without(self, value: Any, fields: Fields) -> Any:
        return _ANY_MAP.without(value, fields)

    def merged(self, live: Any, value: Any) -> Any:
        return _ANY_MAP.merged(live, value)

    def faults(self, _value: Any, _path: str) -> Iterator[str]:
        return iter(())


class _Alike(list[Any]):
    """Items of a list that have the same keys: they are one leaf."""


PLAIN: Final = Leaf()
ANY: Final = _Anything()
_ANY_MAP: Final = Map(ANY)


def _itself(below: Fields | None) -> Fields:
    """What stands below a step that is in the set itself."""
    return {ITSELF: LEAF, **below} if below else LEAF


def _shown(value: Any) -> str:
    return shortened(_encode(value).decode())


def _sort(value: Any) -> str:
    return "map" if isinstance(value, dict) else "list"
