"""What users have configured of one kind, read once for each change of it."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from corral.api.kind import Kind
from corral.api.object import Document
from corral.server.request.call import storage
from corral.store import Store

Read = TypeVar("Read")


class Configured(Generic[Read]):
    """The objects of a kind, each as ``read`` made it of its document, in the order of names."""

    def __init__(self, store: Store, kind: Kind, read: Callable[[Document], Read]) -> None:
        self._store = store
        self._count = store.count  # asked of each write
        self._stored = storage(kind)
        self._read = read
        self._known: dict[str, tuple[int, Read]] = {}

    def __bool__(self) -> bool:
        return self._count(self._stored) > 0

    def all(self) -> Sequence[Read]:
        """All of them as they are now."""
        found: dict[str, tuple[int, Read]] = {}
        for record in self._store.objects(self._stored):
            known = self._known.get(record.key.name)
            if known is None or known[0] != record.revision:
                known = record.revision, self._read(record.document())
            found[record.key.name] = known
        self._known = found
        return [read for _revision, read in found.values()]
