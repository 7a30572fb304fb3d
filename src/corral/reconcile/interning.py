"""Keeps one copy of what many cached objects have in common.

The machines of a set differ in a name, a uid and an address; the rest of their specifications, and
most of their pods', is the same.  Ten thousand copies of it would be most of a process's memory.
"""

from itertools import chain, repeat
from typing import Any, Final

import msgspec


def share(
    item: msgspec.Struct, like: msgspec.Struct, further: msgspec.Struct | None = None
) -> None:
    """Put the parts of ``like`` that are the same in the place of ``item``'s own.

    Else those of ``further``.  What one of them has as a whole is not looked into.  All must be
    treated as constant from then on, as everything in a cache.
    """
    if item is like or item is further:
        return
    for name in item.__struct_fields__:
        mine, other = getattr(item, name), getattr(like, name)
        if mine is not other:
            another = None if further is None else getattr(further, name)
            if (part := _shared(mine, other, another)) is not mine:
                setattr(item, name, part)


def _shared(mine: Any, other: Any, another: Any) -> Any:
    """The first of the two others that is the same, else ``mine``, with what parts of it are.

    None is no other.
    """
    kind = type(mine)
    if mine is other or mine is another:
        return mine
    if kind in _LEAVES:  # nearly all parts are
        if type(other) is kind and mine == other:
            return other
        return another if type(another) is kind and mine == another else _kept(mine)
    others = [each for each in (other, another) if type(each) is kind]
    for each in others:
        if mine == each and _are_written_alike(mine, each):
            return each
    if not others:
        return mine
    if isinstance(mine, msgspec.Struct):
        share(mine, *others)
    elif kind is list or kind is dict:
        _share_inside(mine, *others)
    return mine


def _share_inside(mine: Any, other: Any, another: Any = ()) -> None:
    """The same with what lies in lists, or in dictionaries."""
    if type(mine) is dict:
        for key, ours in mine.items():
            mine[key] = _shared(ours, other.get(key), another.get(key) if another else None)
        return
    rest = repeat(None)
    lists = zip(mine, chain(other, rest), chain(another, rest), strict=False)
    for index, (ours, theirs, others) in enumerate(lists):
        mine[index] = _shared(ours, theirs, others)


_recent: dict[str, str] = {}
"""Texts that were new lately, by what they are."""


def _kept(leaf: Any) -> Any:
    """One copy of a text that stands in several places: a name, a uid, the time of a change.

    An object has most of its own in more than one, and others of its time in theirs.  A long text
    is content, which stands nowhere else, and would stay here when its object is gone.
    """
    if type(leaf) is not str or len(leaf) > _LONGEST:
        return leaf
    if len(_recent) >= _RECENT:
        _recent.clear()
    return _recent.setdefault(leaf, leaf)


_RECENT: Final = 8192
"""So many texts are remembered: those of some hundred objects that come up at once."""
_LONGEST: Final = 64
"""Longer texts are not remembered: names of most objects, uids and times have fewer characters."""
_LEAVES = frozenset({str, int, float, bool})


def _are_written_alike(mine: Any, other: Any) -> bool:
    """Of equal things of one type: to Python a list of 1 is equal to those of 1.0 and of True.

    To write both takes a quarter of the time of a walk through them.
    """
    return msgspec.json.encode(mine) == msgspec.json.encode(other)
