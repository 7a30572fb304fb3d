"""Managers of fields: ``metadata.managedFields``, and how an update changes it.

An *update* makes its writer the only manager of the fields that it changes.  An *apply* manages the
fields of its configuration: it conflicts with other managers whose fields it would change, and
removes fields that it applied before and that nobody else manages.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from corral.api.apply.field_sets import LEAF, Fields, difference, sorted_set, union, union_of
from corral.api.apply.types import Difference

Entry = dict[str, Any]
"""The fields of one manager (meta/v1 ManagedFieldsEntry)."""

MAX_UPDATERS: Final = 10
"""Entries of updates; the oldest of more are merged into one per version."""
ANCIENT: Final = "ancient-changes"
BEFORE_APPLY: Final = "before-first-apply"
"""The manager of the existing fields when an object without managed fields is first applied to."""


class Writer(NamedTuple):
    """The identity of a manager: its name, operation, version and subresource."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def owns(self, entry: Entry) -> bool:
        """Report whether an entry is this writer's; that of an apply is for all versions."""
        return (
            entry.get("manager") == self.manager
            and entry.get("operation") == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == "Apply" or entry.get("apiVersion") == self.api_version)
        )

    def entry(self, fields: Fields, time: str | None) -> Entry:
        """Return the entry of a sorted set."""
        entry: Entry = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
        }
        if time:
            entry["time"] = time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


Compare = Callable[[str], Difference | None]
"""Returns how the object changes in an apiVersion, in sorted sets; None if that is not served any
more."""


def updated(entries: Sequence[Entry], writer: Writer, compare: Compare, now: str) -> list[Entry]:
    """Return the managed fields after an update."""
    changed, _ = compare(writer.api_version) or (LEAF, LEAF)
    own: Fields = LEAF
    time = None
    managed_fields = []
    for entry in _without_changed(entries, compare):
        if writer.owns(entry):
            own, time = entry["fieldsV1"], entry.get("time")
        else:
            managed_fields.append(entry)
    if changed or own:
        fields = sorted_set(union(own, changed)) if own else changed
        managed_fields.append(writer.entry(fields, now if changed else time))
    return ordered(_capped(managed_fields))


def _without_changed(entries: Iterable[Entry], compare: Compare) -> Iterable[Entry]:
    """Yield the entries without the changed fields."""
    for entry in entries:
        compared = compare(entry["apiVersion"])
        if compared is None:
            continue
        fields = entry["fieldsV1"]
        left = difference(difference(fields, compared[0]), compared[1])
        if left:
            yield entry if left is fields else entry | {"fieldsV1": left}


def _capped(managed_fields: list[Entry]) -> list[Entry]:
    """Merge the oldest updates beyond MAX_UPDATERS into one entry per version."""
    if len(managed_fields) <= MAX_UPDATERS:
        return managed_fields
    updates = sorted((each for each in managed_fields if each["operation"] == "Update"), key=_age)
    excess = len(updates) - MAX_UPDATERS
    if excess <= 0:
        return managed_fields
    oldest: dict[str, list[Entry]] = {}
    for entry in updates:
        if excess <= 0:
            break
        same = oldest.setdefault(entry["apiVersion"], [])
        excess -= bool(same)
        same.append(entry)
    several = [same for same in oldest.values() if len(same) > 1]
    merged = {id(entry) for same in several for entry in same}
    return [each for each in managed_fields if id(each) not in merged] + [*map(_merged, several)]


def _merged(entries: Sequence[Entry]) -> Entry:
    """Return one entry for several of a version, which are sorted by age."""
    fields = sorted_set(union_of([entry["fieldsV1"] for entry in entries]))
    last = entries[-1]
    return Writer(ANCIENT, "Update", last["apiVersion"]).entry(fields, last.get("time"))


def _age(entry: Entry) -> tuple[str, ...]:
    return entry.get("time") or "", entry.get("manager", ""), entry["apiVersion"]


def ordered(managed_fields: list[Entry]) -> list[Entry]:
    """Sort managed fields as they are stored: applies first, then by age."""
    if len(managed_fields) > 1:
        managed_fields.sort(key=_sort_key)
    return managed_fields


def _sort_key(entry: Entry) -> tuple[str, ...]:
    return entry["operation"], *_age(entry), entry.get("subresource", "")
