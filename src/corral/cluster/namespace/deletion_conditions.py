"""Conditions of a namespace during its deletion. Pure.

Each is False, with a reason, while nothing fails, so that clients find all of them (Kubernetes'
namespaced_resources_deleter.go and status_condition_utils.go).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.api.conditions import ConditionDocument, set_condition
from corral.api.errors import ApiError
from corral.reconcile.objects import Partial, finalizers_of

_NORMAL = {
    "NamespaceDeletionDiscoveryFailure": (
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}
"""Reason and message of each condition while it is False, in order."""


@dataclass(slots=True)
class DeletionResult:
    """Result of deleting the content of a namespace.

    discovery_error: the error of discovery, if it failed.
    remaining: objects that still exist, by plural and group (``pods.``, whose group is empty).
    errors: errors of deletion.
    """

    discovery_error: str = ""
    remaining: dict[str, Sequence[Partial]] = field(default_factory=dict)
    errors: list[ApiError] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.discovery_error or self.errors or any(self.remaining.values()))


def conditions(
    old: Sequence[ConditionDocument], result: DeletionResult, now: str
) -> list[ConditionDocument]:
    """Return the namespace's conditions; equal to the old ones if nothing changed."""
    failures = _failures(result)
    new = list(old)
    for name, normal in _NORMAL.items():
        reason, message = failures.get(name, normal)
        status = "True" if name in failures else "False"
        new = set_condition(new, name, status, reason=reason, message=message, now=now)
    return new


def _failures(result: DeletionResult) -> Mapping[str, tuple[str, str]]:
    """Return reason and message of the conditions that are True."""
    failures = {
        "NamespaceDeletionDiscoveryFailure": ("DiscoveryFailed", result.discovery_error),
        "NamespaceDeletionContentFailure": ("ContentDeletionFailed", _failed(result.errors)),
        "NamespaceContentRemaining": ("SomeResourcesRemain", _remaining(result.remaining)),
        "NamespaceFinalizersRemaining": (
            "SomeFinalizersRemain",
            _finalizers(result.remaining.values()),
        ),
    }
    return {name: text for name, text in failures.items() if text[1]}


def _failed(errors: Sequence[ApiError]) -> str:
    texts = sorted({str(each) for each in errors})
    why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f"Failed to delete all resource types, {len(errors)} remaining: {why}" if texts else ""


def _remaining(remaining: Mapping[str, Sequence[Partial]]) -> str:
    counted = sorted(
        f"{resource} has {len(objects)} resource instances"
        for resource, objects in remaining.items()
        if objects
    )
    return f"Some resources are remaining: {', '.join(counted)}" if counted else ""


def _finalizers(remaining: Iterable[Sequence[Partial]]) -> str:
    counts = Counter(
        name for objects in remaining for one in objects for name in finalizers_of(one)
    )
    texts = sorted(f"{name} in {count} resource instances" for name, count in counts.items())
    prefix = "Some content in the namespace has finalizers remaining: "
    return f"{prefix}{', '.join(texts)}" if texts else ""
