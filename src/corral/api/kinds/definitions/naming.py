"""Which names a definition gets: those that no other of its group has (pure)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from corral.api.conditions import get_condition, set_condition
from corral.api.kind import Kind, at
from corral.api.kinds.definitions.names import ESTABLISHED, NAMES_ACCEPTED, holds
from corral.api.object import Document


class Taken(NamedTuple):
    """The names that others in a group have."""

    resources: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def by(cls, definitions: Iterable[Document], kinds: Iterable[Kind]) -> "Taken":
        """The names of definitions where they were accepted, and those of kinds of ours."""
        accepted = [at(each, "status", "acceptedNames") or {} for each in definitions]
        accepted += [_names_of(kind) for kind in kinds]
        resources = {
            name
            for each in accepted
            for name in (each.get("plural"), each.get("singular"), *each.get("shortNames", ()))
        }
        named = {name for each in accepted for name in (each.get("kind"), each.get("listKind"))}
        return cls(
            frozenset(name for name in resources if name),
            frozenset(name for name in named if name),
        )


def status(definition: Document, taken: Taken, now: str) -> Document:
    """The status of a definition once its names were looked at; equal to the old one if it stays.

    ``taken`` are the names of all others in its group.
    """
    old: Document = definition.get("status") or {}
    wanted = definition["spec"]["names"]
    accepted, faults = _accept(wanted, old.get("acceptedNames") or {}, taken)
    conditions = old.get("conditions") or []
    reason, message = faults[-1] if faults else ("NoConflicts", "no conflicts found")
    generation = definition["metadata"].get("generation", 1)

    def told(condition: str, value: str, why: str, text: str) -> None:
        nonlocal conditions
        before = get_condition(conditions, condition)
        same = before is not None and (before["status"], before.get("reason")) == (value, why)
        if same and before is not None and before.get("message") == text:
            return
        conditions = set_condition(conditions, condition, value, reason=why, message=text, now=now)
        conditions = [
            each | {"observedGeneration": generation} if each["type"] == condition else each
            for each in conditions
        ]

    told(NAMES_ACCEPTED, "False" if faults else "True", reason, message)
    if not holds(definition, ESTABLISHED):
        if faults:
            told(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
        else:
            told(ESTABLISHED, "True", "InitialNamesAccepted", _ESTABLISHED_TEXT)
    return {**old, "acceptedNames": accepted, "conditions": conditions}


_ESTABLISHED_TEXT = "the initial names have been accepted"


def _accept(
    wanted: Mapping[str, Any], before: Mapping[str, Any], taken: Taken
) -> tuple[Document, list[tuple[str, str]]]:
    accepted = dict(before)
    faults: list[tuple[str, str]] = []
    for name in ("plural", "singular"):
        _claim(accepted, faults, wanted, name, taken.resources)
    conflicts = [name for name in wanted.get("shortNames", ()) if name in taken.resources]
    if conflicts:
        told = [f'"{name}" is already in use' for name in conflicts]
        message = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        faults.append(("ShortNamesConflict", message))
    else:
        _take(accepted, wanted, "shortNames")
    for name in ("kind", "listKind"):
        _claim(accepted, faults, wanted, name, taken.kinds)
    _take(accepted, wanted, "categories")
    return accepted, faults


def _claim(
    accepted: Document,
    faults: list[tuple[str, str]],
    wanted: Mapping[str, Any],
    field: str,
    used: frozenset[str],
) -> None:
    """Take a name, or say that another one has it."""
    name = wanted.get(field, "")
    if name in used:
        faults.append((f"{field[0].upper()}{field[1:]}Conflict", f'"{name}" is already in use'))
    else:
        accepted[field] = name


def _take(accepted: Document, wanted: Mapping[str, Any], field: str) -> None:
    if wanted.get(field):
        accepted[field] = wanted[field]
    else:
        accepted.pop(field, None)


def _names_of(kind: Kind) -> Document:
    return {
        "plural": kind.plural,
        "singular": kind.singular or kind.name.lower(),
        "shortNames": kind.short,
        "kind": kind.name,
        "listKind": f"{kind.name}List",
    }
