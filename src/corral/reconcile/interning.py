"""Sharing of equal parts between cached objects, to save memory.

The VMIs of a set differ in a name, a uid and an address; the rest of their specs, and of their
pods', is equal.  Ten thousand copies of it would be most of a process's memory.
"""

from itertools import chain, repeat
from typing import Any, Final

import msgspec


def share(
    item: msgspec.Struct, reference: msgspec.Struct, previous: msgspec.Struct | None = None
) -> None:
    """Replace parts of ``item`` by equal ones of ``reference``, else of ``previous``.

    A part that is equal as a whole is not descended into.  All three must be treated as constant
    from then on, as everything in a cache.
    """
    if item is reference or item is previous:
        return
    for name in item.__struct_fields__:
        own, first = getattr(item, name), getattr(reference, name)
        if own is not first:
            second = None if previous is None else getattr(previous, name)
            if (part := _shared(own, first, second)) is not own:
                setattr(item, name, part)


def _shared(own: Any, first: Any, second: Any) -> Any:
    """Return the first of the two others that equals ``own``, else ``own`` with shared parts.

    An other that is None does not count.
    """
    kind = type(own)
    if own is first or own is second:
        return own
    if kind in _LEAVES:  # the common case, so first
        if type(first) is kind and own == first:
            return first
        return second if type(second) is kind and own == second else _interned(own)
    candidates = [each for each in (first, second) if type(each) is kind]
    for each in candidates:
        if own == each and _encode_alike(own, each):
            return each
    if not candidates:
        return own
    if isinstance(own, msgspec.Struct):
        share(own, *candidates)
    elif kind is list or kind is dict:
        _share_inside(own, *candidates)
    return own


def _share_inside(own: Any, first: Any, second: Any = ()) -> None:
    """Share the members of a list, or the values of a dictionary."""
    if type(own) is dict:
        for key, own_part in own.items():
            own[key] = _shared(own_part, first.get(key), second.get(key) if second else None)
        return
    rest = repeat(None)
    lists = zip(own, chain(first, rest), chain(second, rest), strict=False)
    for index, (own_part, first_part, candidates) in enumerate(lists):
        own[index] = _shared(own_part, first_part, candidates)


_recent: dict[str, str] = {}
"""Recent strings, each with the copy to use."""


def _interned(leaf: Any) -> Any:
    """Return one copy of a string that occurs in several places: a name, a uid, a timestamp.

    An object repeats most of its own, and objects written together share timestamps.  A long string
    is content that occurs once, and would stay here after its object is deleted.
    """
    if type(leaf) is not str or len(leaf) > _MAX_CHARACTERS:
        return leaf
    if len(_recent) >= _MAX_RECENT:
        _recent.clear()
    return _recent.setdefault(leaf, leaf)


_MAX_RECENT: Final = 8192
"""Strings kept: those of some hundred objects that are created together."""
_MAX_CHARACTERS: Final = 64
"""Longer strings are not kept: most names, all uids and timestamps have fewer characters."""
_LEAVES = frozenset({str, int, float, bool})


def _encode_alike(own: Any, first: Any) -> bool:
    """Return whether equal values encode alike: in Python [1] equals [1.0] and [True].

    Encoding both takes a quarter of the time of a recursive comparison.
    """
    return msgspec.json.encode(own) == msgspec.json.encode(first)
