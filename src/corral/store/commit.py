"""What goes to the disk at once, and what comes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from corral.api.errors import StorageFull
from corral.store.damage import Discard
from corral.store.sqlite import Log
from corral.store.write import Write, parted


@dataclass(slots=True, kw_only=True, eq=False)
class Commit:
    """Staged writes, with what is dropped beside them.

    past: how many changes leave the window; forget and compacted: what that is on disk; discards:
    damaged objects that go; began: the monotonic clock then.  Afterwards ``error`` says why writes
    have failed, ``failed`` which, and ``is_stored`` whether the others have got to the disk.
    """

    writes: Sequence[Write]
    past: int
    forget: Sequence[int]
    compacted: int
    discards: Sequence[Discard]
    began: float
    failed: Sequence[Write] = ()
    error: Exception | None = None
    is_stored: bool = field(default=False, init=False)

    @property
    def fault(self) -> str:
        """Why writes have failed, in words; empty where none has."""
        return "" if self.error is None else str(self.error) or repr(self.error)

    def run(self, log: Log, make_room: Callable[[], bool]) -> None:
        """Commit; where the disk is full, at least the end of objects.

        ``make_room`` gives up some room that was kept for that; False where none is left.
        """
        self._append(log, self.writes, ())
        ends, others = parted(self.writes) if self._is_full else ([], [])
        while (ends or self.discards) and self._is_full and not self.is_stored and make_room():
            self._append(log, ends, others)

    @property
    def _is_full(self) -> bool:
        return isinstance(self.error, StorageFull)

    def _append(self, log: Log, writes: Sequence[Write], others: Sequence[Write]) -> None:
        rows = [each.row() for each in writes]
        damaged = [revision for each in self.discards for revision in each.damaged.revisions]
        try:
            log.append(rows, [*self.forget, *damaged], self.compacted)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are told
            self.error, self.failed = error, self.writes
        else:
            self.writes, self.failed, self.is_stored = writes, others, True
