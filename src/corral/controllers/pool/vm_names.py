"""The numbers by which a pool's VirtualMachines are named: ``<pool>-0``, ``<pool>-1``, …  Pure."""

from collections.abc import Callable
from itertools import count, islice


def ordinal(name: str) -> int:
    """The number behind the last dash of a name; 0 where none is."""
    text = name.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else 0


def free_names(pool: str, wanted: int, is_taken: Callable[[str], bool]) -> list[str]:
    """So many names of the lowest numbers that nobody has: gaps are filled first."""
    names = (f"{pool}-{number}" for number in count())
    return list(islice((name for name in names if not is_taken(name)), wanted))
