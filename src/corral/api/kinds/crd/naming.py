"""Acceptance of the names of CustomResourceDefinitions, as the naming controller does.  No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from corral.api.conditions import is_condition_true, set_condition
from corral.api.kind import Kind, at
from corral.api.kinds.crd.well_known import (
    APPROVED,
    BYPASSED,
    CONFORMANT,
    ESTABLISHED,
    NAMES_ACCEPTED,
    is_protected,
)
from corral.api.object import Document

_WITHOUT_KINDS: Final = frozenset(
    {"custom.metrics.k8s.io", "external.metrics.k8s.io", "subresources.kubevirt.io"}
)
"""Groups that are served by code of their own and have no kinds."""


def reserved_groups(kinds: Iterable[Kind]) -> frozenset[str]:
    """Return the groups to which definitions cannot add kinds, from the built-in kinds.

    They are the groups that kube-apiserver and aggregated servers serve, which take precedence over
    definitions in Kubernetes, too.  Groups of operators, such as KubeVirt's, are open.
    """
    return _WITHOUT_KINDS | {each.group for each in kinds if each.native or not each.is_kept}


class UsedNames(NamedTuple):
    """The names that other kinds of a group use.

    reserved: whether the group is closed to definitions.
    """

    resources: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    reserved: bool = False

    @classmethod
    def of(cls, definitions: Iterable[Document], kinds: Iterable[Kind]) -> "UsedNames":
        """Return the accepted names of definitions, and the names of built-in kinds."""
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


def updated_status(definition: Document, used: UsedNames, now: str) -> Document:
    """Return the status of a definition with its names accepted or refused.

    ``used`` are the names of all other kinds in its group.
    """
    old: Document = definition.get("status") or {}
    requested = definition["spec"]["names"]
    accepted, faults = _accept_names(requested, old.get("acceptedNames") or {}, used)
    if used.reserved:
        group = definition["spec"]["group"]
        message = f'group "{group}" is served by the server itself: no kinds can be added to it'
        accepted, faults = {"plural": "", "kind": ""}, [("GroupReserved", message)]
    conditions = old.get("conditions") or []
    reason, message = faults[-1] if faults else ("NoConflicts", "no conflicts found")

    def set_status(condition: str, value: str, why: str, text: str) -> None:
        nonlocal conditions
        conditions = set_condition(conditions, condition, value, reason=why, message=text, now=now)

    set_status(NAMES_ACCEPTED, "False" if faults else "True", reason, message)
    if used.reserved or not is_condition_true(definition, ESTABLISHED):
        if faults:
            set_status(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
        else:
            set_status(ESTABLISHED, "True", "InitialNamesAccepted", _ESTABLISHED_TEXT)
    if is_protected(definition["spec"]["group"]):
        set_status(CONFORMANT, *_approval(definition))
    observed = {"observedGeneration": definition["metadata"].get("generation", 1)}
    conditions = [
        each | observed if each["type"] in _WITH_GENERATION else each for each in conditions
    ]
    return {**old, "acceptedNames": accepted, "conditions": conditions}


def _approval(definition: Document) -> tuple[str, str, str]:
    """Return status, reason and message of the approval of a kind in a protected group."""
    approval = (at(definition, "metadata", "annotations") or {}).get(APPROVED, "")
    if approval.startswith(BYPASSED):
        return "False", "UnapprovedAnnotation", f'not approved: "{approval}"'
    return "True", "ApprovedAnnotation", f"approved in {approval}"


_WITH_GENERATION = (NAMES_ACCEPTED, ESTABLISHED, CONFORMANT)
"""Conditions with ``observedGeneration``: kubectl wait ignores those of earlier generations."""
_ESTABLISHED_TEXT = "the initial names have been accepted"


def _accept_names(
    requested: Mapping[str, Any], before: Mapping[str, Any], used: UsedNames
) -> tuple[Document, list[tuple[str, str]]]:
    accepted = dict(before)
    faults: list[tuple[str, str]] = []
    for name in ("plural", "singular"):
        _accept_name(accepted, faults, requested, name, used.resources)
    conflicts = [name for name in requested.get("shortNames", ()) if name in used.resources]
    if conflicts:
        conflicts = [f'"{name}" is already in use' for name in conflicts]
        message = conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
        faults.append(("ShortNamesConflict", message))
    else:
        _copy(accepted, requested, "shortNames")
    for name in ("kind", "listKind"):
        _accept_name(accepted, faults, requested, name, used.kinds)
    _copy(accepted, requested, "categories")
    return accepted, faults


def _accept_name(
    accepted: Document,
    faults: list[tuple[str, str]],
    requested: Mapping[str, Any],
    field: str,
    used: frozenset[str],
) -> None:
    """Accept a name, or add a fault if another kind uses it."""
    name = requested.get(field, "")
    if name in used:
        faults.append((f"{field[0].upper()}{field[1:]}Conflict", f'"{name}" is already in use'))
    else:
        accepted[field] = name


def _copy(accepted: Document, requested: Mapping[str, Any], field: str) -> None:
    if requested.get(field):
        accepted[field] = requested[field]
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
