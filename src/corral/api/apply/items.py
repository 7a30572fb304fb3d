"""Associative lists, whose items have managers of their own (list types ``map`` and ``set``)."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from corral.api.apply.field_sets import ITSELF, LEAF, Fields, has, shown, with_sorted_steps
from corral.api.apply.parts import BARE, MISSING, Part, member, shown as text

_encode = msgspec.json.Encoder().encode


class Items:
    """An associative list: a map with ``keys``, or a set without; ``kind`` is that of its items."""

    __slots__ = ("keys", "kind", "only")

    def __init__(self, keys: Mapping[str, Any], kind: Part) -> None:
        self.keys = sorted(keys.items())
        self.kind = kind
        self.only = self.keys[0] if len(self.keys) == 1 else None

    def step(self, item: Any, index: int) -> str:
        """Return the step to an item; its index if it has no keys or no plain value."""
        if not self.keys:
            if isinstance(item, dict | list) or item is None:
                return f"i:{index}"
            return "v:" + _encode(item).decode()
        if type(item) is not dict:
            return f"i:{index}"
        if self.only is not None:  # fast path: most lists have one key, and may have many items
            name, default = self.only
            value = item.get(name, default)
            return f"i:{index}" if value is None else f'k:{{"{name}":{_encode(value).decode()}}}'
        keys = {}
        for name, default in self.keys:
            value = item.get(name, default)
            if value is None:
                return f"i:{index}"
            keys[name] = value
        return "k:" + _encode(keys).decode()

    def indexed(self, items: list[Any]) -> dict[str, Any]:
        """Return the items by their steps; duplicates are one value, a list."""
        steps = [self.step(item, index) for index, item in enumerate(items)]
        found: dict[str, Any] = dict(zip(steps, items, strict=True))
        if len(found) == len(items):
            return found
        found = {}
        for step, item in zip(steps, items, strict=True):
            if step not in found:
                found[step] = item
            elif type(found[step]) is _Duplicates:
                found[step].append(item)
            else:
                found[step] = _Duplicates([found[step], item])
        return found

    def added(self, value: Any) -> Fields:
        if type(value) is not list or not value:
            return LEAF
        found = {ITSELF: LEAF}
        for step, item in sorted(self.indexed(value).items()):
            found[step] = self.added_item(item)
        return found

    def added_item(self, item: Any) -> Fields:
        return LEAF if type(item) is _Duplicates else self.kind.added(item)

    def compare(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is not list or type(new) is not list or not (old or new):
            return (None if old == new else LEAF), None
        before, after = self.indexed(old), self.indexed(new)
        changed: Fields = {}
        removed = {
            step: self.added_item(item) for step, item in before.items() if step not in after
        }
        for step, item in after.items():
            old_item = before.get(step, MISSING)
            if old_item is MISSING:
                changed[step] = self.added_item(item)
            elif old_item != item:
                more, less = self.compare_item(old_item, item)
                if more is not None:
                    changed[step] = more
                if less is not None:
                    removed[step] = less
        return with_sorted_steps(changed) or None, removed or None

    def compare_item(self, old: Any, new: Any) -> tuple[Fields | None, Fields | None]:
        if type(old) is _Duplicates or type(new) is _Duplicates:
            return LEAF, None
        return self.kind.compare(old, new)

    def applied(self, value: Any) -> Fields | None:
        if type(value) is not list:
            return None
        found = {
            step: member(self.kind.applied(item)) for step, item in self.indexed(value).items()
        }
        return found or None

    def named(self, fields: Fields) -> Fields:
        return {step: self.kind.named(below) for step, below in fields.items()}

    def without(self, value: Any, fields: Fields, *, bare: bool) -> Any:
        if type(value) is not list:
            return value
        kept = []
        for index, item in enumerate(value):
            below = fields.get(self.step(item, index))
            if below is None:
                kept.append(item)
            elif not has(below):
                left = self.kind.without(item, below, bare=bare)
                if bare or left not in BARE:
                    kept.append(left)
        return kept

    def merged(self, live: Any, value: Any) -> Any:
        """Merge the items of both lists in the order of ``value``.

        Items that are only in the live list stay before the shared item that followed them.
        """
        if type(live) is not list or type(value) is not list:
            return value
        applied = self.indexed(value)
        present = [(self.step(item, index), item) for index, item in enumerate(live)]
        by_step = dict(present)
        shared = iter([step for step in applied if step in by_step])
        next_shared = next(shared, None)
        merged: list[Any] = []
        place = 0
        for step, item in applied.items():
            while place < len(present) and present[place][0] != next_shared:
                if present[place][0] not in applied:
                    merged.append(present[place][1])
                place += 1
            merged.append(self.kind.merged(by_step[step], item) if step in by_step else item)
            if step == next_shared:
                next_shared = next(shared, None)
        return merged + [item for step, item in present[place:] if step not in applied]

    def faults(self, value: Any) -> Iterator[str]:
        if value is None:
            return
        if type(value) is not list:
            yield f": expected list, got {text(value)}"
            return
        steps = set()
        for index, item in enumerate(value):
            step = self.step(item, index)
            if step[0] == "i":
                yield f": element {index}: {self.key_fault(item)}"
            elif step in steps:
                yield f": duplicate entries for key {shown(step)}"
            else:
                for fault in self.kind.faults(item):
                    yield shown(step) + fault
            steps.add(step)

    def key_fault(self, item: Any) -> str:
        """Return why an item has no identity."""
        if not self.keys:
            found = "an explicit null" if item is None else f"a {_kind(item)} type"
            return f"associative list without keys has an element that's {found}"
        if type(item) is not dict:
            return "associative list with keys has an element that's not a map"
        absent = next(name for name, other in self.keys if item.get(name, other) is None)
        return (
            f'associative list with keys has an element that omits key field "{absent}" '
            "(and doesn't have default value)"
        )


class _Duplicates(list[Any]):
    """Duplicate items of a list, which are one leaf."""


def _kind(value: Any) -> str:
    return "map" if isinstance(value, dict) else "list"
