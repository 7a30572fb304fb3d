"""A cache of webhook configurations or policies, parsed once per change."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from corral.api.kind import Kind
from corral.api.object import Document
from corral.server.request.call import storage
from corral.store import Store

T = TypeVar("T")


class ConfigurationCache(Generic[T]):
    """The objects of a kind, parsed by ``read``, in the order of names."""

    def __init__(self, store: Store, kind: Kind, read: Callable[[Document], T]) -> None:
        self._store = store
        self._count = store.count  # called for each write
        self._stored = storage(kind)
        self._read = read
        self._cached: dict[str, tuple[int, T]] = {}

    def __bool__(self) -> bool:
        return self._count(self._stored) > 0

    def all(self) -> Sequence[T]:
        """Return all objects, parsed."""
        current: dict[str, tuple[int, T]] = {}
        for record in self._store.objects(self._stored):
            cached = self._cached.get(record.key.name)
            if cached is None or cached[0] != record.revision:
                cached = record.revision, self._read(record.document())
            current[record.key.name] = cached
        self._cached = current
        return [read for _revision, read in current.values()]
