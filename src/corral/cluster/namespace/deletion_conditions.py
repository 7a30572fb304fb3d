"""What a namespace says while it is emptied: five conditions, in Kubernetes' words.  Pure.

Each is False with a reason of its own as long as all goes well, so that whoever reads them finds
all of them (Kubernetes' namespaced_resources_deleter.go and status_condition_utils.go).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.api.conditions import ConditionDocument, set_condition
from corral.api.errors import ApiError
from corral.reconcile.objects import Partial, finalizers_of

_WELL = {
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
"""Reason and message of each condition while it is False, in the order in which they are told."""


@dataclass(slots=True)
class Emptied:
    """What has come of deleting what is in a namespace.

    unknown: why it is not known which kinds there are, if it is not.
    left: by plural and group (``pods.``, since that has none) the objects that are still there.
    refusals: why kinds could not be deleted.
    """

    unknown: str = ""
    left: dict[str, Sequence[Partial]] = field(default_factory=dict)
    refusals: list[ApiError] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return not (self.unknown or self.refusals or any(self.left.values()))


def conditions(
    old: Sequence[ConditionDocument], emptied: Emptied, now: str
) -> list[ConditionDocument]:
    """The namespace's conditions; equal to the old ones where nothing has changed."""
    wrong = _wrong(emptied)
    told = list(old)
    for name, well in _WELL.items():
        reason, message = wrong.get(name, well)
        status = "True" if name in wrong else "False"
        told = set_condition(told, name, status, reason=reason, message=message, now=now)
    return told


def _wrong(emptied: Emptied) -> Mapping[str, tuple[str, str]]:
    """Reason and message of the conditions that are True."""
    wrong = {
        "NamespaceDeletionDiscoveryFailure": ("DiscoveryFailed", emptied.unknown),
        "NamespaceDeletionContentFailure": ("ContentDeletionFailed", _failed(emptied.refusals)),
        "NamespaceContentRemaining": ("SomeResourcesRemain", _remaining(emptied.left)),
        "NamespaceFinalizersRemaining": ("SomeFinalizersRemain", _held(emptied.left.values())),
    }
    return {name: said for name, said in wrong.items() if said[1]}


def _failed(refusals: Sequence[ApiError]) -> str:
    told = sorted({str(each) for each in refusals})
    why = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    return f"Failed to delete all resource types, {len(refusals)} remaining: {why}" if told else ""


def _remaining(left: Mapping[str, Sequence[Partial]]) -> str:
    counted = sorted(
        f"{resource} has {len(objects)} resource instances"
        for resource, objects in left.items()
        if objects
    )
    return f"Some resources are remaining: {', '.join(counted)}" if counted else ""


def _held(left: Iterable[Sequence[Partial]]) -> str:
    held = Counter(name for objects in left for one in objects for name in finalizers_of(one))
    counted = sorted(f"{name} in {count} resource instances" for name, count in held.items())
    said = "Some content in the namespace has finalizers remaining: "
    return f"{said}{', '.join(counted)}" if counted else ""
