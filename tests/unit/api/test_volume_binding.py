"""The choice of a volume for a claim, and its claimRef."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.api.volume_binding import best, claim_patch, fault, is_for


def claim(size="1Gi", modes=("ReadWriteOnce",), **spec):
    document = {
        "metadata": {"name": "data", "namespace": "default", "uid": "claim-uid"},
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": size}},
            "volumeMode": "Filesystem",
            **spec,
        },
    }
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(name, size="1Gi", modes=("ReadWriteOnce",), phase="Available", labels=None, **spec):
    document = {
        "metadata": {"name": name, "uid": name, "labels": labels or {}, "resourceVersion": "3"},
        "spec": {"accessModes": list(modes), "capacity": {"storage": size}, **spec},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PersistentVolume)


def reference(name="data", uid=""):
    return {"namespace": "default", "name": name, "uid": uid}


def name_of(found):
    return None if found is None else found.metadata.name


@pytest.mark.parametrize(
    ("expected", "offered", "name"),
    [
        (claim(), [volume("a", "2Gi"), volume("b", "1Gi"), volume("c", "500Mi")], "b"),
        (claim(), [volume("a", modes=["ReadWriteOnce", "ReadOnlyMany"]), volume("b", "2Gi")], "b"),
        (claim(modes=["ReadWriteMany"]), [volume("a")], None),
        (claim(), [volume("a", phase="Released")], None),
        (claim(), [volume("a", phase="Pending")], None),
        (claim(), [volume("a", storageClassName="fast")], None),
        (claim(storageClassName="fast"), [volume("a", storageClassName="fast")], "a"),
        (claim(), [volume("a", volumeMode="Block")], None),
        (claim(volumeMode="Block"), [volume("a", volumeMode="Block")], "a"),
        (claim(), [volume("a", claimRef=reference("other"))], None),
        (claim(), [volume("a"), volume("b", "9Gi", claimRef=reference())], "b"),
        (claim(), [volume("a", claimRef=reference(uid="older"))], None),
        (
            claim(selector={"matchLabels": {"disk": "ssd"}}),
            [volume("a"), volume("b", labels={"disk": "ssd"})],
            "b",
        ),
        (claim(), [], None),
    ],
)
def test_the_smallest_matching_volume_is_chosen(expected, offered, name):
    assert name_of(best(expected, offered)) == name


def test_a_volume_being_deleted_is_not_bound():
    going = volume("a")
    going.metadata.deletionTimestamp = "2026-01-01T00:00:00Z"
    assert best(claim(), [going]) is None


def test_a_claim_that_waits_for_its_node_gets_only_reserved_volumes():
    kept = volume("kept", claimRef=reference())
    assert name_of(best(claim(), [volume("free")], reserved_only=True)) is None
    assert name_of(best(claim(), [volume("free"), kept], reserved_only=True)) == "kept"


def test_a_volume_must_be_accessible_from_the_node():
    offered = [volume("near", "9Gi"), volume("far")]
    found = best(claim(), offered, reaches=lambda each: each.metadata.name == "near")
    assert name_of(found) == "near"


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (volume("a"), ""),
        (volume("a", "1Mi"), "requested PV is too small"),
        (volume("a", storageClassName="x"), "storageClassName does not match"),
        (volume("a", volumeMode="Block"), "incompatible volumeMode"),
        (volume("a", modes=["ReadOnlyMany"]), "incompatible accessMode"),
    ],
)
def test_a_named_volume_that_does_not_match_has_a_reason(offered, why):
    assert fault(claim(), offered) == why


def test_a_volume_is_reserved_once_at_the_observed_version():
    patch = claim_patch(volume("a"), claim())
    assert patch["metadata"] == {
        "resourceVersion": "3",
        "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
    }
    assert patch["spec"]["claimRef"]["uid"] == "claim-uid"
    chosen = volume("a", claimRef=reference())
    assert is_for(chosen, claim())
    assert "annotations" not in claim_patch(chosen, claim())["metadata"]  # a user named the claim
    assert claim_patch(volume("a", claimRef=reference(uid="claim-uid")), claim()) is None
