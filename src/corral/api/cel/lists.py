"""The functions that Kubernetes adds to CEL for lists, and those for lists that are sets."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from corral.api.cel.function import Function

MOST_NUMBERS: Final = 10_000
_INT64: Final = range(-(2**63), 2**63)


def _comparable(value: Any) -> Any:
    """A value as Python compares it like the language does, to which true is not 1."""
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, list):
        return list(map(_comparable, value))
    if isinstance(value, dict):
        return {_comparable(key): _comparable(each) for key, each in value.items()}
    return value


def _index(items: Sequence[Any], item: Any) -> int:
    known, wanted = list(map(_comparable, items)), _comparable(item)
    return known.index(wanted) if wanted in known else -1


def _last_index(items: Sequence[Any], item: Any) -> int:
    before = _index(items[::-1], item)
    return before if before < 0 else len(items) - 1 - before


def _sum(items: Sequence[Any]) -> Any:
    """Raises ValueError where whole numbers become too large on the way."""
    made = 0
    for item in items:
        made += item
        if isinstance(made, int) and made not in _INT64:
            raise ValueError("integer overflow")
    return made


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(before <= after for before, after in pairwise(items))


def least(items: Sequence[Any]) -> Any:
    """Raises ValueError where there is none."""
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def most(items: Sequence[Any]) -> Any:
    """Raises ValueError where there is none."""
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def part(items: Sequence[Any], begin: int, end: int) -> Sequence[Any]:
    """Raises ValueError where the list is shorter."""
    if not 0 <= begin <= end <= len(items):
        raise ValueError(f"cannot slice({begin}, {end}), list is length {len(items)}")
    return items[begin:end]


def distinct(items: Sequence[Any]) -> list[Any]:
    """Each item once, where it is first."""
    known: list[Any] = []
    kept: list[Any] = []
    for item in items:
        if (comparable := _comparable(item)) not in known:
            known.append(comparable)
            kept.append(item)
    return kept


def backwards(items: Sequence[Any]) -> list[Any]:
    """The last item first."""
    return [*reversed(items)]


def _flat(items: Sequence[Any], levels: int = 1) -> list[Any]:
    """The items, and those of lists among them: so many levels deep.  Raises ValueError."""
    if levels < 0:
        raise ValueError("level must be non-negative")
    made = []
    left = [(each, levels) for each in reversed(items)]
    while left:
        item, deep = left.pop()
        if deep and isinstance(item, list):
            left += [(inner, deep - 1) for inner in reversed(item)]
        else:
            made.append(item)
    return made


def _numbers(count: int) -> list[int]:
    """Whole numbers from 0 on.  Raises ValueError for more than a loop has rounds."""
    if count > MOST_NUMBERS:
        raise ValueError(f"lists.range({count}) has more than {MOST_NUMBERS} numbers")
    return [*range(count)]


def _contains_all(items: Sequence[Any], wanted: Sequence[Any]) -> bool:
    known = list(map(_comparable, items))
    return all(_comparable(item) in known for item in wanted)


def _intersects(one: Sequence[Any], other: Sequence[Any]) -> bool:
    known = list(map(_comparable, other))
    return any(_comparable(item) in known for item in one)


LISTS: Final = (
    Function("indexOf", ("list", "dyn"), "int", _index),
    Function("lastIndexOf", ("list", "dyn"), "int", _last_index),
    Function("isSorted", ("list",), "bool", _is_sorted),
    Function("sum", ("list",), "dyn", _sum),
    Function("min", ("list",), "dyn", least),
    Function("max", ("list",), "dyn", most),
    Function("slice", ("list", "int", "int"), "list", part),
    Function("sort", ("list",), "list", sorted),
    Function("distinct", ("list",), "list", distinct),
    Function("reverse", ("list",), "list", backwards),
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
