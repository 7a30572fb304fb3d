"""Files beside the store, which show whether the store was lost."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from corral.config import Layout
from corral.store import offline


def unknown(layout: Layout) -> str:
    """Describe data that belongs to a lost store; return "" if there is none.

    A data directory whose store was emptied or lost is not a new one.
    """
    if not offline.is_empty(layout.store):
        return ""
    volumes = sum(1 for _ in _entries(layout.storage / "volumes"))
    found = [_counted(len(layout.machines()), "machine"), _counted(volumes, "volume of claims")]
    if layout.options.exists():
        found.append("options of an earlier manager")
    return ", ".join(filter(None, found))


def _counted(number: int, what: str) -> str:
    first, _, rest = what.partition(" ")
    many = first if number == 1 else f"{first}s"
    return f"{number} {many} {rest}".rstrip() if number else ""


def _entries(directory: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from directory.iterdir()
