"""Objects that the disk has damaged: set aside, so that all the others can be used.

A row that does not fit its checksum is not read.  Where it is the newest of an object, the object
is neither there nor gone: it is not listed, whoever asks for it is told so, and nothing that would
follow from its end may happen.  It stays so until somebody deletes it or restores it from a backup.
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

_MOST_NAMED: Final = 5
Address = tuple[str, Key]
"""The kind's resource name, and the key."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """An object whose newest version is damaged, and the revisions that are kept of it."""

    kind: str
    key: Key
    revisions: tuple[int, ...]

    def __str__(self) -> str:
        namespace, name = self.key
        return f'{self.kind} "{name}"' + (f" in namespace {namespace}" if namespace else "")


@dataclass(slots=True)
class Findings:
    """What a log holds: what can be read, and what was found damaged.

    floor: up to which revision the history has gaps.  litter: revisions that nobody needs.
    """

    whole: Sequence[Row]
    damaged: Mapping[Address, Damaged] = field(default_factory=dict)
    floor: int = 0
    litter: Sequence[int] = ()


def sort_out(rows: Iterable[tuple[Row, bool]], fleeting: Collection[str] = ()) -> Findings:
    """Tell what can be read of rows, oldest first, each with whether it is whole.

    Of ``fleeting`` kinds, whose objects vanish by themselves, damaged ones are thrown away.
    """
    known = list(rows)
    broken = {row.revision for row, whole in known if not whole}
    if not broken:
        return Findings([row for row, _ in known])
    versions: defaultdict[Address, list[int]] = defaultdict(list)
    for row, _ in known:
        versions[_address(row)].append(row.revision)
    lost = {each for each, revisions in versions.items() if revisions[-1] in broken}
    litter = {
        row.revision
        for row, whole in known
        if (not whole and _address(row) not in lost)
        or (_address(row) in lost and row.kind in fleeting)
    }
    return Findings(
        [row for row, whole in known if whole and _address(row) not in lost],
        {
            each: Damaged(*each, tuple(versions[each]))
            for each in sorted(lost)
            if each[0] not in fleeting
        },
        max(_next(versions[_address(row)], row.revision) for row, whole in known if not whole),
        sorted(litter),
    )


def _next(revisions: Sequence[int], revision: int) -> int:
    """From which revision on it is known what an object was, in spite of a damaged one."""
    return next((each for each in revisions if each > revision), revision)


def _address(row: Row) -> Address:
    return str(row.kind), Key(str(row.namespace), str(row.name))


def told(damaged: Collection[Damaged]) -> str:
    """Damaged objects, in words: the first few, and how many more there are; empty for none."""
    if not damaged:
        return ""
    names = ", ".join(map(str, islice(damaged, _MOST_NAMED)))
    more = len(damaged) - _MOST_NAMED
    return f"{names} and {more} more cannot be read" if more > 0 else f"{names} cannot be read"


@dataclass(slots=True, eq=False)
class Discard:
    """A damaged object that is to go, and who waits for that."""

    damaged: Damaged
    done: asyncio.Future[None]

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, kind: type[Exception], why: str) -> None:
        if not self.done.done():
            self.done.set_exception(kind(why))


class DamagedObjects:
    """What a store has set aside, and what of it goes with the next commit."""

    def __init__(self, damaged: Mapping[Address, Damaged]) -> None:
        self._known = dict(damaged)
        self._staged: list[Discard] = []

    def __iter__(self) -> Iterator[Damaged]:
        return iter(tuple(self._known.values()))

    def require(self, kind: str, key: Key) -> None:
        """Raises StoreReadError for an object that is neither there nor gone."""
        if self._known and (found := self._known.get((kind, key))) is not None:
            raise StoreReadError(
                f"{found} is damaged on disk and cannot be read. Stop corral and run "
                "corral restore --damaged FILE with a backup that holds it, or delete it"
            )

    def stage(self, kind: str, key: Key) -> asyncio.Future[None]:
        """Let an object go with the next commit.  Raises KeyError where it is not damaged."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._staged.append(Discard(self._known[kind, key], done))
        return done

    @property
    def is_staged(self) -> bool:
        """Whether any is to go."""
        return bool(self._staged)

    def take(self) -> list[Discard]:
        """What is to go now."""
        staged, self._staged = self._staged, []
        return staged

    def drop(self, gone: Iterable[Discard]) -> None:
        """They are gone from the disk."""
        for each in gone:
            self._known.pop((each.damaged.kind, each.damaged.key), None)
            each.succeed()
