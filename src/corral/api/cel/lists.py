"""Functions that Kubernetes adds to CEL for lists, and for lists as sets."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from corral.api.cel.function import Function

MAX_NUMBERS: Final = 10_000
_INT64: Final = range(-(2**63), 2**63)


def _comparable(value: Any) -> Any:
    """Return a value that Python compares as CEL does, where true is not 1."""
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, list):
        return list(map(_comparable, value))
    if isinstance(value, dict):
        return {_comparable(key): _comparable(each) for key, each in value.items()}
    return value


def _index(items: Sequence[Any], item: Any) -> int:
    values, value = list(map(_comparable, items)), _comparable(item)
    return values.index(value) if value in values else -1


def _last_index(items: Sequence[Any], item: Any) -> int:
    before = _index(items[::-1], item)
    return before if before < 0 else len(items) - 1 - before


def _sum(items: Sequence[Any]) -> Any:
    """Add up the items.  Raises ValueError if a sum of integers overflows on the way."""
    total = 0
    for item in items:
        total += item
        if isinstance(total, int) and total not in _INT64:
            raise ValueError("integer overflow")
    return total


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(before <= after for before, after in pairwise(items))


def minimum(items: Sequence[Any]) -> Any:
    """Return the least item.  Raises ValueError for an empty list."""
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def maximum(items: Sequence[Any]) -> Any:
    """Return the greatest item.  Raises ValueError for an empty list."""
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def slice_of(items: Sequence[Any], begin: int, end: int) -> Sequence[Any]:
    """Return the items from ``begin`` to before ``end``.  Raises ValueError if out of range."""
    if not 0 <= begin <= end <= len(items):
        raise ValueError(f"cannot slice({begin}, {end}), list is length {len(items)}")
    return items[begin:end]


def distinct(items: Sequence[Any]) -> list[Any]:
    """Return each item once, in the order of first occurrence."""
    seen: list[Any] = []
    unique: list[Any] = []
    for item in items:
        if (comparable := _comparable(item)) not in seen:
            seen.append(comparable)
            unique.append(item)
    return unique


def reverse(items: Sequence[Any]) -> list[Any]:
    """Return the items in reverse order."""
    return [*reversed(items)]


def _flat(items: Sequence[Any], levels: int = 1) -> list[Any]:
    """Flatten lists among the items, to a depth of ``levels``.  Raises ValueError."""
    if levels < 0:
        raise ValueError("level must be non-negative")
    flat = []
    left = [(each, levels) for each in reversed(items)]
    while left:
        item, deep = left.pop()
        if deep and isinstance(item, list):
            left += [(inner, deep - 1) for inner in reversed(item)]
        else:
            flat.append(item)
    return flat


def _numbers(count: int) -> list[int]:
    """Return integers from 0.  Raises ValueError for more than a loop has iterations."""
    if count > MAX_NUMBERS:
        raise ValueError(f"lists.range({count}) has more than {MAX_NUMBERS} numbers")
    return [*range(count)]


def _contains_all(items: Sequence[Any], others: Sequence[Any]) -> bool:
    values = list(map(_comparable, items))
    return all(_comparable(item) in values for item in others)


def _intersects(one: Sequence[Any], other: Sequence[Any]) -> bool:
    values = list(map(_comparable, other))
    return any(_comparable(item) in values for item in one)


LISTS: Final = (
    Function("indexOf", ("list", "dyn"), "int", _index),
    Function("lastIndexOf", ("list", "dyn"), "int", _last_index),
    Function("isSorted", ("list",), "bool", _is_sorted),
    Function("sum", ("list",), "dyn", _sum),
    Function("min", ("list",), "dyn", minimum),
    Function("max", ("list",), "dyn", maximum),
    Function("slice", ("list", "int", "int"), "list", slice_of),
    Function("sort", ("list",), "list", sorted),
    Function("distinct", ("list",), "list", distinct),
    Function("reverse", ("list",), "list", reverse),
    Function("flatten", ("list",), "list", _flat),
    Function("flatten", ("list", "int"), "list", _flat),
    Function("lists.range", ("int",), "list", _numbers, is_method=False),
    Function("sets.contains", ("list", "list"), "bool", _contains_all, is_method=False),
    Function(
        "sets.equivalent",
        ("list", "list"),
        "bool",
        lambda one, two: _contains_all(one, two) and _contains_all(two, one),
        is_method=False,
    ),
    Function("sets.intersects", ("list", "list"), "bool", _intersects, is_method=False),
)
