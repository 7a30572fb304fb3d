"""What a namespace says while it is emptied."""

from corral.api.errors import Forbidden
from corral.cluster.namespace.deletion_conditions import DeletionResult, conditions
from corral.reconcile.objects import Partial, PartialMeta

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def objects(*finalizers):
    return [Partial(metadata=PartialMeta(name="a", finalizers=each)) for each in finalizers]


def by_type(result):
    return {each["type"]: each for each in conditions([], result, NOW)}


def test_all_five_conditions_are_set_without_failures():
    said = by_type(DeletionResult(remaining={"configmaps.": []}))
    assert {name: (each["status"], each["reason"]) for name, each in said.items()} == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions"),
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
        "NamespaceContentRemaining": ("False", "ContentRemoved"),
        "NamespaceFinalizersRemaining": ("False", "ContentHasNoFinalizers"),
    }
    assert DeletionResult(remaining={"configmaps.": []}).is_empty


def test_remaining_objects_are_counted_by_kind_and_finalizer():
    remaining = {
        "virtualmachineinstances.kubevirt.io": objects(("f", "g"), ("f",)),
        "configmaps.": objects(()),
    }
    said = by_type(DeletionResult(remaining=remaining))
    remaining, held = said["NamespaceContentRemaining"], said["NamespaceFinalizersRemaining"]
    assert (remaining["status"], remaining["reason"]) == ("True", "SomeResourcesRemain")
    assert remaining["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances, "
        "virtualmachineinstances.kubevirt.io has 2 resource instances"
    )
    assert (held["status"], held["reason"]) == ("True", "SomeFinalizersRemain")
    assert held["message"] == (
        "Some content in the namespace has finalizers remaining: "
        "f in 2 resource instances, g in 1 resource instances"
    )
    assert not DeletionResult(remaining=remaining).is_empty


def test_failed_deletions_and_discovery_are_reported():
    result = DeletionResult(discovery_error="no store", errors=[Forbidden("b"), Forbidden("a")])
    said = by_type(result)
    failed = said["NamespaceDeletionContentFailure"]
    assert (failed["status"], failed["reason"]) == ("True", "ContentDeletionFailed")
    assert failed["message"] == "Failed to delete all resource types, 2 remaining: [a, b]"
    discovery_error = said["NamespaceDeletionDiscoveryFailure"]
    assert (discovery_error["reason"], discovery_error["message"]) == (
        "DiscoveryFailed",
        "no store",
    )


def test_transition_times_change_with_the_status_only():
    first = conditions([], DeletionResult(remaining={"configmaps.": objects(("f",))}), NOW)
    same = conditions(first, DeletionResult(remaining={"configmaps.": objects(("f",))}), LATER)
    assert same == first
    well = {each["type"]: each for each in conditions(first, DeletionResult(), LATER)}
    assert well["NamespaceContentRemaining"]["lastTransitionTime"] == LATER
    assert well["NamespaceDeletionContentFailure"]["lastTransitionTime"] == NOW
