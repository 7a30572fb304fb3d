"""A change on its way to the disk, and those who wait for it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from corral.api.object import Document
from corral.store.damage import Address
from corral.store.object_version import Record, may_be_marked
from corral.store.row import Row


@dataclass(slots=True, eq=False)
class Write:
    """A version that is staged: ``record``, or the end of the object that it was.

    ``ends``: it belongs to the end of an object, which has to go on where the disk is full.
    """

    record: Record
    deleted: bool
    ends: bool = False
    waiting: list[asyncio.Future[Record]] = field(default_factory=list, repr=False)
    """Each who waits has a future of their own: who gives up takes nobody along."""

    @property
    def address(self) -> Address:
        return self.record.kind, self.record.key

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


def goes_on(document: Document, before: Record | None) -> bool:
    """Whether a version takes an object's deletion a step further, or tells how far it has come.

    Who just rewrites what is being deleted has no need of room that is kept for its end.
    """
    if not document["metadata"].get("deletionTimestamp"):
        return False
    if before is None or not may_be_marked(before):
        return True
    return _progress(before.document()) != _progress(document)


def _progress(document: Document) -> tuple[object, ...]:
    """What holds an object back, in whatever order, and what its components tell of it."""
    metadata = document["metadata"]
    is_namespace = (document.get("apiVersion"), document.get("kind")) == ("v1", "Namespace")
    return (
        bool(metadata.get("deletionTimestamp")),
        bool(metadata.get("deletionGracePeriodSeconds")),
        frozenset(metadata.get("finalizers") or ()),
        (document.get("spec") or {}).get("finalizers") if is_namespace else None,
        document.get("status"),
    )


def parted(
    writes: Iterable[Write], failed: Iterable[Write] = ()
) -> tuple[list[Write], list[Write]]:
    """Those that belong to the end of an object and are built on none that fails; the others."""
    lost = {each.address for each in failed}
    ends, others = list[Write](), list[Write]()
    for write in writes:
        if write.ends and write.address not in lost:
            ends.append(write)
        else:
            lost.add(write.address)
            others.append(write)
    return ends, others
