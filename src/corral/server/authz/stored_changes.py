"""Changes in the store since an index of it was last synced."""

from collections.abc import Iterable, Iterator, Sequence

from corral.api.errors import Gone
from corral.store import Event, Store


class StoredChanges:
    """The changes of some kinds, named as the store names them; each is returned once."""

    def __init__(self, store: Store, kinds: Iterable[str]) -> None:
        self._store = store
        self._synced_revisions = dict.fromkeys(kinds, -1)

    def __iter__(self) -> Iterator[tuple[str, Sequence[Event] | None]]:
        """Yield each kind that has changed, with its changes.

        None in their place asks for a new index of the kind: at first, and when the changes are no
        longer in the store's window.
        """
        for kind, synced in self._synced_revisions.items():
            revision = self._store.last_changed(kind)
            if revision == synced:
                continue
            self._synced_revisions[kind] = revision
            yield kind, self._since(kind, synced)

    def _since(self, kind: str, revision: int) -> Sequence[Event] | None:
        if revision < 0:
            return None
        try:
            return self._store.changes(kind, revision)
        except Gone:
            return None
