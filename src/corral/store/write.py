"""A staged write, and the futures of its waiters."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from corral.api.object import Document
from corral.store.damage import Address
from corral.store.object_version import Record, may_be_deleting
from corral.store.row import Row


@dataclass(slots=True, eq=False)
class Write:
    """A staged version of an object, or its deletion with the final state in ``record``.

    ``is_deletion``: it deletes the object or advances its deletion, which must work on a full disk.
    """

    record: Record
    deleted: bool
    is_deletion: bool = False
    waiters: list[asyncio.Future[Record]] = field(default_factory=list, repr=False)
    """A future per waiter: cancelling one does not affect the others."""

    @property
    def address(self) -> Address:
        return self.record.kind, self.record.key

    def done(self) -> asyncio.Future[Record]:
        """Return a future with the outcome of the commit."""
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self.waiters.append(future)
        return future

    def succeed(self) -> None:
        """Complete the futures of all waiters."""
        for each in self.waiters:
            if not each.done():
                each.set_result(self.record)

    def fail(self, kind: type[Exception], why: str) -> None:
        """Fail the futures of all waiters, each with its own exception."""
        for each in self.waiters:
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


def advances_deletion(document: Document, before: Record | None) -> bool:
    """Return whether a version advances an object's deletion, or reports its progress.

    Other writes to an object being deleted get no disk space that is reserved for deletions.
    """
    if not document["metadata"].get("deletionTimestamp"):
        return False
    if before is None or not may_be_deleting(before):
        return True
    return _progress(before.document()) != _progress(document)


def _progress(document: Document) -> tuple[object, ...]:
    """Return the fields of an object that change as its deletion advances."""
    metadata = document["metadata"]
    is_namespace = (document.get("apiVersion"), document.get("kind")) == ("v1", "Namespace")
    return (
        bool(metadata.get("deletionTimestamp")),
        bool(metadata.get("deletionGracePeriodSeconds")),
        frozenset(metadata.get("finalizers") or ()),
        (document.get("spec") or {}).get("finalizers") if is_namespace else None,
        document.get("status"),
    )


def split_deletions(
    writes: Iterable[Write], failed: Iterable[Write] = ()
) -> tuple[list[Write], list[Write]]:
    """Divide writes into those that advance a deletion, and the rest.

    A write based on a failed one, or on one of the rest, belongs to the rest.
    """
    failed_addresses = {each.address for each in failed}
    is_deletion, rest = list[Write](), list[Write]()
    for write in writes:
        if write.is_deletion and write.address not in failed_addresses:
            is_deletion.append(write)
        else:
            failed_addresses.add(write.address)
            rest.append(write)
    return is_deletion, rest
