"""Keeps one copy of what many cached objects have in common.

The machines of a set differ in a name, a uid and an address; the rest of their specifications, and
most of their pods', is the same.  Ten thousand copies of it would be most of a process's memory.
"""

from typing import TypeVar, cast

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def share(item: T, like: T) -> None:
    """Put the parts of ``like`` that are equal in the place of ``item``'s own.

    Both must be treated as constant from then on, as everything in a cache.
    """
    if item is like:
        return
    for name in item.__struct_fields__:
        mine, other = getattr(item, name), getattr(like, name)
        if mine is other or type(mine) is not type(other):
            continue
        if mine == other:
            setattr(item, name, other)
        elif isinstance(mine, msgspec.Struct):
            share(mine, cast("msgspec.Struct", other))
        elif isinstance(mine, list):
            _share_list(mine, other)


def _share_list(mine: list[object], other: list[object]) -> None:
    for index, (ours, theirs) in enumerate(zip(mine, other, strict=False)):
        if ours is theirs or type(ours) is not type(theirs):
            continue
        if ours == theirs:
            mine[index] = theirs
        elif isinstance(ours, msgspec.Struct):
            share(ours, cast("msgspec.Struct", theirs))
