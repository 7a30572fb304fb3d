"""Sets of field paths, in the form in which ``managedFields`` holds them (FieldsV1).

A set is a tree of dictionaries.  A key is one step of a path: ``f:name`` is a field, ``k:{…}`` the
item of a list with these keys, ``v:…`` the item of a list that is this value.  Below it are the
paths that go on from there; ``.`` says that the step itself belongs to the set, and so does an
empty dictionary.  No function changes its arguments, so results may share parts with them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from corral.api.encoding import decode_as, encode_sorted
from corral.api.errors import shortened

Fields = dict[str, Any]
"""A set of paths; as a whole set, an empty dictionary is the empty set."""

LEAF: Final[Fields] = {}
"""What stands below a path that is in the set with nothing below it; it must not be changed."""
ITSELF: Final = "."

_Operation = Callable[[Fields, Fields], Fields]


def in_order(fields: Fields) -> Fields:
    """A set whose steps are sorted, as it is stored."""
    ordered: Fields = msgspec.json.decode(encode_sorted(fields))
    return ordered


def union(one: Fields, other: Fields) -> Fields:
    """The paths that are in either set."""
    if not one or not other:
        return one or other
    united = dict(one)
    for step, below in other.items():
        mine = united.get(step)
        united[step] = below if mine is None else _united(mine, below)
    return united


def union_of(sets: Sequence[Fields]) -> Fields:
    """The paths that are in any of some sets.

    A union copies what it grows by: halves are united first, lest many sets take for ever.
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
    """The paths of one set that are not in the other; what lies below such a path stays."""
    if not one or not other:
        return one
    left = {}
    for step, below in one.items():
        gone = other.get(step)
        if gone is None:
            left[step] = below
        elif (rest := _joined(below, gone, stays=not has(gone), of=difference)) is not None:
            left[step] = rest
    return left


def intersection(one: Fields, other: Fields) -> Fields:
    """The paths that are in both sets."""
    if not one or not other:
        return LEAF
    common = {}
    for step, below in one.items():
        theirs = other.get(step)
        if theirs is None:
            continue
        if (rest := _joined(below, theirs, stays=has(theirs), of=intersection)) is not None:
            common[step] = rest
    return common


def _joined(below: Fields, other: Fields, *, stays: bool, of: _Operation) -> Fields | None:
    """What is left at a step that both sets have; None where nothing is."""
    kept = stays and has(below)
    rest = of(inside(below), inside(other))
    if rest:
        return {ITSELF: LEAF, **rest} if kept else rest
    return LEAF if kept else None


def has(below: Fields) -> bool:
    """Whether a step with this below it belongs to the set itself."""
    return not below or ITSELF in below


def inside(below: Fields) -> Fields:
    """The set of the paths that go on from a step."""
    if ITSELF not in below:
        return below
    return {step: inner for step, inner in below.items() if step != ITSELF}


def paths(fields: Fields, before: str = "") -> Iterator[str]:
    """The paths of a set as messages write them: ``.spec.ports[port=80,protocol="TCP"].name``."""
    for step in sorted(fields, key=_order):
        path = before + shown(step)
        if has(fields[step]):
            yield path
        yield from paths(inside(fields[step]), path)


def _order(step: str) -> tuple[int, str]:
    return "fkvi".find(step[0]), step


def shown(step: str) -> str:
    """A step as messages write it."""
    sort, _, said = step.partition(":")
    if sort == "f":
        return f".{said}"
    if sort == "k":
        keys = ",".join(f"{name}={_text(value)}" for name, value in decode_as(said, Fields).items())
        return f"[{keys}]"
    return f"[={shortened(said)}]" if sort == "v" else f"[{said}]"


def _text(value: Any) -> str:
    return shortened(msgspec.json.encode(value).decode())


def are_valid(fields: Any) -> bool:
    """Whether something that a client sent is such a tree."""
    if not isinstance(fields, dict):
        return False
    return all(
        (step == ITSELF and below == LEAF) or (_is_step(step) and are_valid(below))
        for step, below in fields.items()
    )


def _is_step(step: str) -> bool:
    sort, colon, said = step.partition(":")
    if not colon or sort not in ("f", "k", "v", "i"):
        return False
    if sort == "f":
        return True
    try:
        value = decode_as(said, object)
    except msgspec.DecodeError:
        return False
    if sort == "k":
        return isinstance(value, dict) and bool(value)
    return sort == "v" or type(value) is int
