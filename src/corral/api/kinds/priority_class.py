"""PriorityClass: the priority of the pods that name it."""

from collections.abc import Iterator, Mapping
from typing import Final

from lightkube.models.scheduling_v1 import PriorityClass

from corral.api.errors import Cause
from corral.api.kind import Column, Verdict
from corral.api.kinds.causes import forbidden, invalid, unsupported
from corral.api.kinds.columns import age, field, number
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document

PREEMPT: Final = "PreemptLowerPriority"
POLICIES: Final = (PREEMPT, "Never")
HIGHEST: Final = 1_000_000_000
"""The highest priority of a user-defined class."""
SYSTEM_PREFIX: Final = "system-"
CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority and above are not evicted under node pressure (system classes)."""
SYSTEM: Mapping[str, tuple[int, str]] = {
    "system-node-critical": (2_000_001_000, "Pods that must run, and on the node where they are."),
    "system-cluster-critical": (CRITICAL_PRIORITY, "Pods that must run, be it on another node."),
}
"""The system classes, with their value and description."""


def _default(document: Document) -> None:
    document.setdefault("value", 0)
    document.setdefault("preemptionPolicy", PREEMPT)


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    return Verdict([*_causes(document), *_changes(document, old)])


def _causes(document: Document) -> Iterator[Cause]:
    name, value = document["metadata"]["name"], document["value"]
    if name.startswith(SYSTEM_PREFIX):
        if fault := _system_fault(document):
            reserved = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved"
            yield forbidden("metadata.name", f"{reserved} for system use only. error: {fault}")
    elif value > HIGHEST:
        why = f"maximum allowed value of a user defined priority is {HIGHEST}"
        yield forbidden("value", why)
    if document["preemptionPolicy"] not in POLICIES:
        yield unsupported("preemptionPolicy", document["preemptionPolicy"], POLICIES)


def _system_fault(document: Document) -> str:
    name = document["metadata"]["name"]
    if name not in SYSTEM:
        return f"{name} is not a known system priority class"
    if document["value"] != SYSTEM[name][0]:
        return f"value of {name} PriorityClass must be {SYSTEM[name][0]}"
    if document.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def _changes(document: Document, old: Document | None) -> Iterator[Cause]:
    if old is None:
        return
    if document["value"] != old["value"]:
        yield forbidden("value", "may not be changed in an update.")
    if document["preemptionPolicy"] != old["preemptionPolicy"]:
        yield invalid("preemptionPolicy", document["preemptionPolicy"], "field is immutable")


PRIORITY_CLASS = kubernetes_kind(
    group="scheduling.k8s.io",
    plural="priorityclasses",
    short=("pc",),
    view=PriorityClass,
    namespaced=False,
    status=False,
    columns=(
        number("Value", "value", description="its value"),
        Column(
            name="Global-Default",
            type="boolean",
            cell=lambda document: "true" if document.get("globalDefault") else "false",
            description="whether it is the class of pods that name none",
        ),
        age(),
        field(
            "PreemptionPolicy",
            "preemptionPolicy",
            description="whether pods of lower priority may be evicted for it",
        ),
    ),
    default=_default,
    validate=_validate,
)
