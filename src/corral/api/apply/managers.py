"""Who manages which fields of an object: the account that ``metadata.managedFields`` holds.

Every write is booked: what it changes belongs to its writer from then on, and to nobody else.  Who
*applies* says instead which fields are theirs: they collide with whoever else set them to something
else, and what they applied before and do not any more is taken away, where nobody else has it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from corral.api.apply.field_sets import LEAF, Fields, difference, in_order, union, union_of
from corral.api.apply.types import Difference

Entry = dict[str, Any]
"""One writer's part of the account (meta/v1 ManagedFieldsEntry)."""

MOST_UPDATERS: Final = 10
"""Writers that are kept apart; of further ones the oldest become one, by version."""
ANCIENT: Final = "ancient-changes"
BEFORE_APPLY: Final = "before-first-apply"
"""Who wrote what there is when an object without an account is first applied to."""


class Writer(NamedTuple):
    """Who writes, how, and in what terms."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def wrote(self, entry: Entry) -> bool:
        """Whether an entry is this writer's; who applies has one whatever the version."""
        return (
            entry.get("manager") == self.manager
            and entry.get("operation") == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == "Apply" or entry.get("apiVersion") == self.api_version)
        )

    def entry(self, fields: Fields, time: str | None) -> Entry:
        entry: Entry = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
        }
        if time:
            entry["time"] = time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": in_order(fields)}
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


Compare = Callable[[str], Difference | None]
"""How the object changes, in the terms of a version; None for one that is not served any more."""


def booked(entries: Sequence[Entry], writer: Writer, compare: Compare, now: str) -> list[Entry]:
    """The account after an ordinary write."""
    changed, _ = compare(writer.api_version) or (LEAF, LEAF)
    mine: Fields = LEAF
    time = None
    account = []
    for entry in _reduced(entries, compare):
        if writer.wrote(entry):
            mine, time = entry["fieldsV1"], entry.get("time")
        else:
            account.append(entry)
    if changed or mine:
        account.append(writer.entry(union(mine, changed), now if changed else time))
    return ordered(_capped(account))


def _reduced(entries: Iterable[Entry], compare: Compare) -> Iterable[Entry]:
    """The entries without the fields that change."""
    for entry in entries:
        compared = compare(entry["apiVersion"])
        if compared is None:
            continue
        fields = entry["fieldsV1"]
        left = difference(difference(fields, compared[0]), compared[1])
        if left:
            yield entry if left is fields else entry | {"fieldsV1": left}


def _capped(account: list[Entry]) -> list[Entry]:
    """The account with the oldest updates in one entry for each version, where there are many."""
    if len(account) <= MOST_UPDATERS:
        return account
    updates = sorted((each for each in account if each["operation"] == "Update"), key=_age)
    excess = len(updates) - MOST_UPDATERS
    if excess <= 0:
        return account
    oldest: dict[str, list[Entry]] = {}
    for entry in updates:
        if excess <= 0:
            break
        same = oldest.setdefault(entry["apiVersion"], [])
        excess -= bool(same)
        same.append(entry)
    several = [same for same in oldest.values() if len(same) > 1]
    gone = {id(entry) for same in several for entry in same}
    return [each for each in account if id(each) not in gone] + [*map(_ancient, several)]


def _ancient(entries: Sequence[Entry]) -> Entry:
    """One entry for several of a version, which are sorted by age."""
    fields = union_of([entry["fieldsV1"] for entry in entries])
    last = entries[-1]
    return Writer(ANCIENT, "Update", last["apiVersion"]).entry(fields, last.get("time"))


def _age(entry: Entry) -> tuple[str, ...]:
    return entry.get("time") or "", entry.get("manager", ""), entry["apiVersion"]


def ordered(account: list[Entry]) -> list[Entry]:
    """An account in the order in which it is stored: who applies first, then by age."""
    if len(account) > 1:
        account.sort(key=_place)
    return account


def _place(entry: Entry) -> tuple[str, ...]:
    return entry["operation"], *_age(entry), entry.get("subresource", "")
