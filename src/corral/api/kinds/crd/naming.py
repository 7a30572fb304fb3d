"""Which names a definition gets: those that no other of its group has (pure)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from corral.api.conditions import set_condition
from corral.api.kind import Kind, at
from corral.api.kinds.crd.well_known import (
    APPROVED,
    BYPASSED,
    CONFORMANT,
    ESTABLISHED,
    NAMES_ACCEPTED,
    holds,
    is_protected,
)
from corral.api.object import Document

_WITHOUT_KINDS: Final = frozenset(
    {"custom.metrics.k8s.io", "external.metrics.k8s.io", "subresources.kubevirt.io"}
)
"""Groups that are answered by code of their own, for objects of other groups."""


def reserved(kinds: Iterable[Kind]) -> frozenset[str]:
    """Groups in which no definition is served, by the kinds that the server has by itself.

    They are those that Kubernetes and its extensions answer themselves, which wins over definitions
    there, too.  Groups whose kinds are brought by operators elsewhere are open to more of them.
    """
    return _WITHOUT_KINDS | {each.group for each in kinds if each.native or not each.is_kept}


class Taken(NamedTuple):
    """The names that others in a group have, or the whole group."""

    resources: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    reserved: bool = False

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
    if taken.reserved:
        group = definition["spec"]["group"]
        message = f'group "{group}" is served by the server itself: no kinds can be added to it'
        accepted, faults = {"plural": "", "kind": ""}, [("GroupReserved", message)]
    conditions = old.get("conditions") or []
    reason, message = faults[-1] if faults else ("NoConflicts", "no conflicts found")

    def told(condition: str, value: str, why: str, text: str) -> None:
        nonlocal conditions
        conditions = set_condition(conditions, condition, value, reason=why, message=text, now=now)

    told(NAMES_ACCEPTED, "False" if faults else "True", reason, message)
    if taken.reserved or not holds(definition, ESTABLISHED):
        if faults:
            told(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
        else:
            told(ESTABLISHED, "True", "InitialNamesAccepted", _ESTABLISHED_TEXT)
    if is_protected(definition["spec"]["group"]):
        told(CONFORMANT, *_approval(definition))
    seen = {"observedGeneration": definition["metadata"].get("generation", 1)}
    conditions = [each | seen if each["type"] in _TOLD else each for each in conditions]
    return {**old, "acceptedNames": accepted, "conditions": conditions}


def _approval(definition: Document) -> tuple[str, str, str]:
    """Whether somebody has approved of a kind in a group of the community's, and where."""
    approval = (at(definition, "metadata", "annotations") or {}).get(APPROVED, "")
    if approval.startswith(BYPASSED):
        return "False", "UnapprovedAnnotation", f'not approved: "{approval}"'
    return "True", "ApprovedAnnotation", f"approved in {approval}"


_TOLD = (NAMES_ACCEPTED, ESTABLISHED, CONFORMANT)
"""Of these is told of which generation they are: kubectl waits for none of an earlier one."""
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
        "singular": kind.singular,
        "shortNames": kind.short,
        "kind": kind.name,
        "listKind": f"{kind.name}List",
    }
