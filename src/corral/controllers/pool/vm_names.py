"""Names of a pool's VirtualMachines: ``<pool>-0``, ``<pool>-1``, … Pure."""

import itertools
from collections.abc import Callable


def ordinal(name: str) -> int:
    """Return the number behind the last dash of a name; 0 without one."""
    text = name.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else 0


def free_names(pool: str, count: int, is_used: Callable[[str], bool]) -> list[str]:
    """Return the first ``count`` free names; gaps are filled first."""
    names = (f"{pool}-{number}" for number in itertools.count())
    return list(itertools.islice((name for name in names if not is_used(name)), count))
