"""A group commit, and its outcome."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from corral.api.errors import StorageFull
from corral.store.damage import Discard
from corral.store.sqlite import Log
from corral.store.write import Write, split_deletions


@dataclass(slots=True, kw_only=True, eq=False)
class Commit:
    """Staged writes, with the rows that are deleted in the same transaction.

    past: how many changes leave the window; forget: the revisions to delete from disk; compacted:
    the new compaction revision; discards: damaged objects to delete; began: monotonic seconds at
    the start.  After ``run``: ``failed`` are the writes that failed with ``error``, and
    ``is_stored``: the others are on disk.
    """

    writes: Sequence[Write]
    window_changes: int
    forget: Sequence[int]
    compacted: int
    discards: Sequence[Discard]
    started: float
    failed: Sequence[Write] = ()
    error: Exception | None = None
    is_stored: bool = field(default=False, init=False)

    @property
    def error_message(self) -> str:
        """The message of ``error``; empty if there is none."""
        return "" if self.error is None else str(self.error) or repr(self.error)

    def run(self, log: Log, make_room: Callable[[], bool]) -> None:
        """Commit; on a full disk, commit at least the deletions.

        ``make_room`` frees a part of the disk space reserved for that; it returns False if none is
        left.
        """
        self._append(log, self.writes, ())
        deletions, deferred = split_deletions(self.writes) if self._is_full else ([], [])
        while (deletions or self.discards) and self._is_full and not self.is_stored and make_room():
            self._append(log, deletions, deferred)

    @property
    def _is_full(self) -> bool:
        return isinstance(self.error, StorageFull)

    def _append(self, log: Log, writes: Sequence[Write], deferred: Sequence[Write]) -> None:
        rows = [each.row() for each in writes]
        damaged = [revision for each in self.discards for revision in each.damaged.revisions]
        try:
            log.append(rows, [*self.forget, *damaged], self.compacted)
        except Exception as error:  # noqa: BLE001 - passed on to the waiters, whatever it is
            self.error, self.failed = error, self.writes
        else:
            self.writes, self.failed, self.is_stored = writes, deferred, True
