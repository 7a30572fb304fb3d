"""Sharing of equal parts between cached objects, to save memory.

The VMIs of a set differ in a name, a uid and an address; the rest of their specs, and of their
pods', is equal.  Ten thousand copies of it would be most of a process's memory.
"""

from itertools import chain, repeat
from typing import Any, Final

import msgspec
from msgspec.structs import astuple


def share(
    item: msgspec.Struct, reference: msgspec.Struct, previous: msgspec.Struct | None = None
) -> None:
    """Replace parts of ``item`` by equal ones of ``reference``, else of ``previous``.

    A part that is equal as a whole is not descended into.  All three must be treated as constant
    from then on, as everything in a cache.
    """
    if item is reference or item is previous:
        return
    parts, first_parts = astuple(item), astuple(reference)
    second_parts = repeat(None) if previous is None else astuple(previous)
    fields = zip(item.__struct_fields__, parts, first_parts, second_parts, strict=False)
    for name, own, first, second in fields:
        if own is not first and (part := _shared(own, first, second)) is not own:
            setattr(item, name, part)


def _shared(own: Any, first: Any, second: Any) -> Any:
    """Return the first of the two others that equals ``own``, else ``own`` with shared parts.

    An other that is None does not count.
    """
    kind = type(own)
    if own is first or own is second or own is None:
        return own
    if kind in _LEAVES:  # the common case, so first
        if type(first) is kind and own == first:
            return first
        return second if type(second) is kind and own == second else _interned(own)
    second = second if type(second) is kind else None
    if type(first) is not kind:
        first, second = second, None
    if first is None:
        return own
    for each in (first, second):
        if each is not None and own == each and _encode_alike(own, each):
            return each
    if isinstance(own, msgspec.Struct):
        share(own, first, second)
    elif kind is list or kind is dict:
        _share_inside(own, first, second)
    return own


def _share_inside(own: Any, first: Any, second: Any) -> None:
    """Share the members of a list, or the values of a dictionary."""
    if type(own) is dict:
        for key, own_part in own.items():
            own[key] = _shared(own_part, first.get(key), second.get(key) if second else None)
        return
    rest = repeat(None)
    lists = zip(own, chain(first, rest), chain(second or (), rest), strict=False)
    for index, (own_part, first_part, second_part) in enumerate(lists):
        own[index] = _shared(own_part, first_part, second_part)


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
