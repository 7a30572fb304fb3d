"""Objects damaged on disk: set aside, so that all others can be served.

A row whose checksum does not match is not loaded.  If it is the newest row of an object, the object
neither exists nor is deleted: it is not listed, requests for it fail with StoreReadError, and
nothing that follows from a deletion may happen.  It stays so until a user deletes the object or
restores it from a backup.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from corral.api.errors import StoreReadError
from corral.api.object import Key
from corral.store.row import Row

_MAX_NAMED: Final = 5
Address = tuple[str, Key]
"""The kind's resource name, and the key."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object whose newest version is damaged, and its revisions on disk."""

    kind: str
    key: Key
    revisions: tuple[int, ...]

    def __str__(self) -> str:
        namespace, name = self.key
        return f'{self.kind} "{name}"' + (f" in namespace {namespace}" if namespace else "")


@dataclass(slots=True)
class ScanResult:
    """The rows of a log, divided into intact ones and damaged objects.

    floor: the history has gaps up to this revision.  litter: revisions to delete.
    """

    whole: Sequence[Row]
    damaged: Mapping[Address, Damaged] = field(default_factory=dict)
    floor: int = 0
    garbage: Sequence[int] = ()


def classify(rows: Iterable[tuple[Row, bool]], ephemeral_kinds: Collection[str] = ()) -> ScanResult:
    """Divide rows, oldest first, each with whether it is intact, into intact and damaged objects.

    Damaged objects of ``ephemeral_kinds`` kinds, which expire anyway, are deleted.
    """
    entries = list(rows)
    broken = {row.revision for row, whole in entries if not whole}
    if not broken:
        return ScanResult([row for row, _ in entries])
    versions: defaultdict[Address, list[int]] = defaultdict(list)
    for row, _ in entries:
        versions[_address(row)].append(row.revision)
    lost = {each for each, revisions in versions.items() if revisions[-1] in broken}
    garbage = {
        row.revision
        for row, whole in entries
        if (not whole and _address(row) not in lost)
        or (_address(row) in lost and row.kind in ephemeral_kinds)
    }
    return ScanResult(
        [row for row, whole in entries if whole and _address(row) not in lost],
        {
            each: Damaged(*each, tuple(versions[each]))
            for each in sorted(lost)
            if each[0] not in ephemeral_kinds
        },
        max(_next(versions[_address(row)], row.revision) for row, whole in entries if not whole),
        sorted(garbage),
    )


def _next(revisions: Sequence[int], revision: int) -> int:
    """Return the revision from which an object's state is known again after a damaged one."""
    return next((each for each in revisions if each > revision), revision)


def _address(row: Row) -> Address:
    return str(row.kind), Key(str(row.namespace), str(row.name))


def describe_damage(damaged: Collection[Damaged]) -> str:
    """Return a message with the first few damaged objects and the count of others; "" for none."""
    if not damaged:
        return ""
    names = ", ".join(map(str, islice(damaged, _MAX_NAMED)))
    more = len(damaged) - _MAX_NAMED
    return f"{names} and {more} more cannot be read" if more > 0 else f"{names} cannot be read"


@dataclass(slots=True, eq=False)
class Discard:
    """A staged deletion of a damaged object, with the future of its waiter."""

    damaged: Damaged
    done: asyncio.Future[None]

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, kind: type[Exception], why: str) -> None:
        if not self.done.done():
            self.done.set_exception(kind(why))


class DamagedObjects:
    """The damaged objects of a store, and their staged deletions."""

    def __init__(self, damaged: Mapping[Address, Damaged]) -> None:
        self._damaged = dict(damaged)
        self._staged: list[Discard] = []

    def __iter__(self) -> Iterator[Damaged]:
        return iter(tuple(self._damaged.values()))

    def require(self, kind: str, key: Key) -> None:
        """Check that an object is not damaged.  Raises StoreReadError."""
        if self._damaged and (damaged := self._damaged.get((kind, key))) is not None:
            raise StoreReadError(
                f"{damaged} is damaged on disk and cannot be read. Stop corral and run "
                "corral restore --damaged FILE with a backup that holds it, or delete it"
            )

    def stage(self, kind: str, key: Key) -> asyncio.Future[None]:
        """Stage an object's deletion for the next commit.  Raises KeyError if it is not damaged."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._staged.append(Discard(self._damaged[kind, key], done))
        return done

    @property
    def is_staged(self) -> bool:
        """True if any deletion is staged."""
        return bool(self._staged)

    def pop_staged(self) -> list[Discard]:
        """Remove and return the staged deletions."""
        staged, self._staged = self._staged, []
        return staged

    def drop(self, gone: Iterable[Discard]) -> None:
        """Forget damaged objects that are deleted on disk, and complete their futures."""
        for each in gone:
            self._damaged.pop((each.damaged.kind, each.damaged.key), None)
            each.succeed()
