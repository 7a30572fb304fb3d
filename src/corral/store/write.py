"""A change on its way to the disk, and those who wait for it."""

import asyncio
from dataclasses import dataclass, field

from corral.store.record import Record
from corral.store.sqlite import Row


@dataclass(slots=True, eq=False)
class Write:
    """A version that is staged: ``record``, or the end of the object that it was."""

    record: Record
    deleted: bool
    waiting: list[asyncio.Future[Record]] = field(default_factory=list, repr=False)
    """Each who waits has a future of their own: who gives up takes nobody along."""

    def done(self) -> asyncio.Future[Record]:
        """A future that is done when the commit has ended, as it ended."""
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return future

    def succeed(self) -> None:
        """Tell those who wait that it is on disk."""
        for each in self.waiting:
            if not each.done():
                each.set_result(self.record)

    def fail(self, kind: type[Exception], why: str) -> None:
        """Tell those who wait that it is not stored, each by an error of their own."""
        for each in self.waiting:
            if not each.done():
                each.set_exception(kind(why))

    def row(self) -> Row:
        record = self.record
        return Row(
            record.revision,
            record.kind,
            record.key.namespace,
            record.key.name,
            self.deleted,
            record.written,
            record.data,
        )
