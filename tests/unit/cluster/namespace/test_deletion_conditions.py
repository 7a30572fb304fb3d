"""What a namespace says while it is emptied."""

from corral.api.errors import Forbidden
from corral.cluster.namespace.deletion_conditions import Emptied, conditions
from corral.reconcile.objects import Partial, PartialMeta

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def objects(*finalizers):
    return [Partial(metadata=PartialMeta(name="a", finalizers=each)) for each in finalizers]


def told(emptied):
    return {each["type"]: each for each in conditions([], emptied, NOW)}


def test_all_five_are_told_where_all_is_well():
    said = told(Emptied(left={"configmaps.": []}))
    assert {name: (each["status"], each["reason"]) for name, each in said.items()} == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions"),
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
        "NamespaceContentRemaining": ("False", "ContentRemoved"),
        "NamespaceFinalizersRemaining": ("False", "ContentHasNoFinalizers"),
    }
    assert Emptied(left={"configmaps.": []}).is_done


def test_what_is_left_is_counted_by_kind_and_by_what_holds_it():
    left = {
        "virtualmachineinstances.kubevirt.io": objects(("f", "g"), ("f",)),
        "configmaps.": objects(()),
    }
    said = told(Emptied(left=left))
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
    assert not Emptied(left=left).is_done


def test_what_is_refused_and_what_is_not_known_is_told():
    emptied = Emptied(unknown="no store", refusals=[Forbidden("b"), Forbidden("a")])
    said = told(emptied)
    failed = said["NamespaceDeletionContentFailure"]
    assert (failed["status"], failed["reason"]) == ("True", "ContentDeletionFailed")
    assert failed["message"] == "Failed to delete all resource types, 2 remaining: [a, b]"
    unknown = said["NamespaceDeletionDiscoveryFailure"]
    assert (unknown["reason"], unknown["message"]) == ("DiscoveryFailed", "no store")


def test_a_condition_keeps_its_time_until_it_turns():
    first = conditions([], Emptied(left={"configmaps.": objects(("f",))}), NOW)
    same = conditions(first, Emptied(left={"configmaps.": objects(("f",))}), LATER)
    assert same == first
    well = {each["type"]: each for each in conditions(first, Emptied(), LATER)}
    assert well["NamespaceContentRemaining"]["lastTransitionTime"] == LATER
    assert well["NamespaceDeletionContentFailure"]["lastTransitionTime"] == NOW
