"""The kinds of CustomResourceDefinitions: synced from the store into the table of kinds.

No background task: each request first checks whether any definition has changed since the last one,
which is cheap.  So a client that has seen a definition established finds its kind served, and after
a restart all kinds are served from the first request.
"""

from typing import TYPE_CHECKING, Any

from corral.api.kind import at
from corral.api.kinds.crd.custom_kinds import kind_of
from corral.api.kinds.crd.naming import reserved_groups
from corral.api.kinds.crd.well_known import RESOURCE
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.server.request.call import storage
from corral.store import Record, Store

if TYPE_CHECKING:
    from corral.api.kind import Kind


class Definitions:
    """Syncs the definitions in a store to a table of kinds."""

    def __init__(self, store: Store, kinds: KindTable) -> None:
        self._store = store
        self._kinds = kinds
        self._built_in = {(kind.group, kind.plural) for kind in kinds}
        self._reserved = reserved_groups(kinds)
        self._synced_revision = 0
        self._records: dict[str, Record] = {}
        self._served: dict[str, Kind] = {}

    def sync(self) -> None:
        """Update the table if a definition has changed."""
        last_changed = self._store.last_changed(RESOURCE)
        if last_changed != self._synced_revision:
            self._read()
            self._synced_revision = last_changed

    def _read(self) -> None:
        current = {record.key.name: record for record in self._store.objects(RESOURCE)}
        for name in self._served.keys() - current.keys():
            self._drop(name)
        for name, record in current.items():
            if self._records.get(name) is not record:
                self._add(record)
        self._records = current

    def _add(self, record: Record) -> None:
        definition = record.document()
        spec = definition["spec"]
        if (spec["group"], spec["names"]["plural"]) in self._built_in:
            return
        if spec["group"] in self._reserved:
            return  # even if another writer has set it established
        name, kind = record.key.name, kind_of(definition)
        if kind is None:
            self._drop(name)
        else:
            self._kinds.add(kind)
            self._served[name] = kind
            previous = self._records.get(name)
            if previous is not None and _schema_of(previous.document()) != _schema_of(definition):
                self._store.end_watches(storage(kind))  # their schema changed

    def _drop(self, name: str) -> None:
        """Stop serving a kind, and end its watches."""
        kind = self._served.pop(name, None)
        if kind is not None:
            self._kinds.remove(kind)
            self._store.end_watches(storage(kind))


def _schema_of(definition: Document) -> tuple[Any, Any]:
    """Return the parts of a definition on which objects depend: no conditions, no labels."""
    return definition["spec"], at(definition, "status", "acceptedNames")
