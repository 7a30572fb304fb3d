"""Serves the kinds that CustomResourceDefinitions bring: the table of kinds follows the store.

Nothing runs in the background.  Before a request is looked at, it is asked whether any definition
has changed since the last one, which hardly ever is the case.  So who has seen that a definition is
established finds its kind served, and after a restart all is there with the first request.
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
    """The kinds of the definitions in a store, as rows of a table."""

    def __init__(self, store: Store, kinds: KindTable) -> None:
        self._store = store
        self._kinds = kinds
        self._built_in = {(kind.group, kind.plural) for kind in kinds}
        self._reserved = reserved_groups(kinds)
        self._seen = 0
        self._records: dict[str, Record] = {}
        self._brought: dict[str, Kind] = {}

    def follow(self) -> None:
        """Bring the table up to date."""
        changed = self._store.last_changed(RESOURCE)
        if changed != self._seen:
            self._read()
            self._seen = changed

    def _read(self) -> None:
        present = {record.key.name: record for record in self._store.objects(RESOURCE)}
        for name in self._brought.keys() - present.keys():
            self._drop(name)
        for name, record in present.items():
            if self._records.get(name) is not record:
                self._take(record)
        self._records = present

    def _take(self, record: Record) -> None:
        definition = record.document()
        spec = definition["spec"]
        if (spec["group"], spec["names"]["plural"]) in self._built_in:
            return
        if spec["group"] in self._reserved:
            return  # also where somebody else has called it established
        name, kind = record.key.name, kind_of(definition)
        if kind is None:
            self._drop(name)
        else:
            self._kinds.add(kind)
            self._brought[name] = kind
            known = self._records.get(name)
            if known is not None and _told(known.document()) != _told(definition):
                self._store.end_watches(storage(kind))  # objects have another form from now on

    def _drop(self, name: str) -> None:
        """Serve a kind no more; who watches its objects is told that nothing comes any more."""
        kind = self._brought.pop(name, None)
        if kind is not None:
            self._kinds.remove(kind)
            self._store.end_watches(storage(kind))


def _told(definition: Document) -> tuple[Any, Any]:
    """What objects depend on: not conditions, nor labels."""
    return definition["spec"], at(definition, "status", "acceptedNames")
