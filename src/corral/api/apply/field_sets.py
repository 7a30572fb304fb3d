"""Sets of field paths, in the form of FieldsV1 in ``managedFields``.

A set is a tree of dictionaries.  A key is one step of a path: ``f:name`` a field, ``k:{…}`` a list
item with these keys, ``v:…`` a list item with this value, ``i:…`` the item at an index.  Its value
is the set of paths below the step.  The step itself is a member if ``.`` is among them, or if there
are none.  Functions do not change their arguments, and results may share parts with them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from corral.api.encoding import decode_as, encode_sorted
from corral.api.errors import shortened

Fields = dict[str, Any]
"""A set of paths; at the root, an empty dictionary is the empty set."""

LEAF: Final[Fields] = {}
"""The value of a member with no paths below it; must not be changed."""
ITSELF: Final = "."

_Operation = Callable[[Fields, Fields], Fields]


def sorted_set(fields: Fields) -> Fields:
    """Return a set with sorted steps, as it is stored."""
    ordered: Fields = msgspec.json.decode(encode_sorted(fields))
    return ordered


def with_sorted_steps(fields: Fields) -> Fields:
    """Return a set with sorted steps, if the sets below them are sorted."""
    return dict(sorted(fields.items())) if len(fields) > 1 else fields


def union(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in either set."""
    if not one or not other:
        return one or other
    united = dict(one)
    for step, below in other.items():
        present = united.get(step)
        united[step] = below if present is None else _united(present, below)
    return united


def union_of(sets: Sequence[Fields]) -> Fields:
    """Return the paths that are in any of the sets.

    Halves are united first, because a union copies its arguments: one by one would be quadratic.
    """
    if len(sets) < 2:
        return sets[0] if sets else LEAF
    half = len(sets) // 2
    return union(union_of(sets[:half]), union_of(sets[half:]))


def _united(one: Fields, other: Fields) -> Fields:
    if one and other:
        return union(one, other)
    whole = one or other
    return {ITSELF: LEAF, **whole} if whole else LEAF


def difference(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in one set and not in the other, path by path."""
    if not one or not other:
        return one
    left = {}
    for step, below in one.items():
        excluded = other.get(step)
        if excluded is None:
            left[step] = below
        elif (rest := _joined(below, excluded, stays=not has(excluded), of=difference)) is not None:
            left[step] = rest
    return left


def intersection(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in both sets."""
    if not one or not other:
        return LEAF
    common = {}
    for step, below in one.items():
        common_below = other.get(step)
        if common_below is None:
            continue
        if (
            rest := _joined(below, common_below, stays=has(common_below), of=intersection)
        ) is not None:
            common[step] = rest
    return common


def _joined(below: Fields, other: Fields, *, stays: bool, of: _Operation) -> Fields | None:
    """Return the result of an operation at a common step; None if it is empty."""
    kept = stays and has(below)
    rest = of(inside(below), inside(other))
    if rest:
        return {ITSELF: LEAF, **rest} if kept else rest
    return LEAF if kept else None


def has(below: Fields) -> bool:
    """Report whether a step with these paths below it is itself a member."""
    return not below or ITSELF in below


def inside(below: Fields) -> Fields:
    """Return the set of the paths below a step."""
    if ITSELF not in below:
        return below
    return {step: inner for step, inner in below.items() if step != ITSELF}


def paths(fields: Fields, before: str = "") -> Iterator[str]:
    """Yield the paths of a set as messages show them: ``.spec.ports[port=80].name``."""
    for step in sorted(fields, key=_order):
        path = before + shown(step)
        if has(fields[step]):
            yield path
        yield from paths(inside(fields[step]), path)


def _order(step: str) -> tuple[int, str]:
    return "fkvi".find(step[0]), step


def shown(step: str) -> str:
    """Return a step as messages show it."""
    kind, _, value = step.partition(":")
    if kind == "f":
        return f".{value}"
    if kind == "k":
        items = decode_as(value, Fields).items()
        keys = ",".join(f"{name}={_text(each)}" for name, each in items)
        return f"[{keys}]"
    return f"[={shortened(value)}]" if kind == "v" else f"[{value}]"


def _text(value: Any) -> str:
    return shortened(msgspec.json.encode(value).decode())


def are_valid(fields: Any) -> bool:
    """Report whether a value from a client is a valid set."""
    if not isinstance(fields, dict):
        return False
    return all(
        (step == ITSELF and below == LEAF) or (_is_step(step) and are_valid(below))
        for step, below in fields.items()
    )


def _is_step(step: str) -> bool:
    kind, colon, text = step.partition(":")
    if not colon or kind not in ("f", "k", "v", "i"):
        return False
    if kind == "f":
        return True
    try:
        value = decode_as(text, object)
    except msgspec.DecodeError:
        return False
    if kind == "k":
        return isinstance(value, dict) and bool(value)
    return kind == "v" or type(value) is int
