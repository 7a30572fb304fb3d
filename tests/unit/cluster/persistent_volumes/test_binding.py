"""What becomes of claims and volumes."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.cluster.persistent_volumes.binding import (
    ClaimInputs,
    claim_patch,
    claim_status,
    plan_claim,
    plan_volume,
    unreserve,
)

MADE = {"pv.kubernetes.io/provisioned-by": "corral.dev/directory"}
FOUND = {"pv.kubernetes.io/bound-by-controller": "yes"}


def claim(volume="", phase="Pending", annotations=None, **spec):
    metadata = {
        "name": "data",
        "namespace": "default",
        "uid": "claim-uid",
        "resourceVersion": "5",
        "annotations": annotations,
    }
    fields = {"accessModes": ["ReadWriteOnce"], "volumeName": volume or None, **spec}
    fields["resources"] = {"requests": {"storage": "1Gi"}}
    status = {"phase": phase}
    if phase == "Bound":
        status |= {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    document = {"metadata": metadata, "spec": fields, "status": status}
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(uid=None, phase="Bound", policy="Retain", annotations=None):
    metadata = {"name": "disk", "resourceVersion": "3", "annotations": annotations}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
        "persistentVolumeReclaimPolicy": policy,
    }
    if uid is not None:
        spec["claimRef"] = {"namespace": "default", "name": "data", "uid": uid}
    return msgspec.convert(
        {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PersistentVolume
    )


@pytest.mark.parametrize(
    ("of", "its_claim", "phase", "unbind"),
    [
        (volume(phase="Pending"), None, "Available", False),
        (volume(uid="", phase="Pending"), None, "Available", False),
        (volume("claim-uid", "Pending"), claim(), "Pending", False),  # its claim's turn
        (volume("claim-uid", "Pending"), claim("disk"), "Bound", False),
        (volume("claim-uid"), None, "Released", False),
        (volume("older"), claim("disk"), "Released", False),
        (volume("claim-uid", policy="Delete", annotations=MADE), None, "Released", False),
        (volume("claim-uid", policy="Delete"), None, "Failed", False),
        (volume("claim-uid", policy="Recycle"), None, "Failed", False),
        (volume("claim-uid", "Failed", annotations=MADE), None, "Failed", False),
        (volume("claim-uid", annotations=FOUND), claim("other"), "Available", True),
        (volume("claim-uid", policy="Delete", annotations=MADE), claim("other"), "Released", False),
    ],
)
def test_the_phase_of_a_volume_follows_its_claim(of, its_claim, phase, unbind):
    plan = plan_volume(of, its_claim)
    assert (plan.phase, plan.unbind) == (phase, unbind)
    assert (plan.event is not None) is (phase == "Failed" and of.status.phase != "Failed")


def test_a_claim_whose_volume_is_bound_to_another_is_lost():
    had = claim("disk", annotations={"pv.kubernetes.io/bind-completed": "yes"})
    plan = plan_claim(had, ClaimInputs(named=volume("other-uid")))
    assert (plan.phase, plan.event.reason) == ("Lost", "ClaimMisbound")
    assert plan_claim(had, ClaimInputs(named=volume("claim-uid"))).phase == "Bound"


def test_pods_that_wait_for_a_claim_are_named():
    late = {"metadata": {"name": "late"}, "provisioner": "corral.dev/directory"}
    late["volumeBindingMode"] = "WaitForFirstConsumer"
    waits = ClaimInputs(storage_class=msgspec.convert(late, StorageClass), consumers=["b", "a"])
    plan = plan_claim(claim(storageClassName="late"), waits)
    assert tuple(plan.event) == (
        "Normal",
        "WaitForPodScheduled",
        "waiting for pods a,b to be scheduled",
    )


def test_a_claim_ref_set_by_a_user_stays():
    assert unreserve(volume("claim-uid"))["spec"] == {
        "claimRef": {"uid": None, "resourceVersion": None}
    }
    assert unreserve(volume("claim-uid", annotations=FOUND))["spec"] == {"claimRef": None}


def test_the_capacity_of_a_claim_is_that_at_binding():
    assert claim_status(claim("disk"), "Bound", volume("claim-uid"))["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
    }
    assert claim_status(claim("disk", "Bound"), "Bound", volume("claim-uid")) is None
    assert claim_status(claim("disk", "Bound"), "Lost", None)["status"] == {
        "phase": "Lost",
        "accessModes": None,
        "capacity": None,
    }


def test_a_claim_names_its_volume_once():
    patch = claim_patch(claim(), volume("claim-uid"))
    assert patch["spec"] == {"volumeName": "disk"}
    assert patch["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    chosen = claim_patch(claim("disk"), volume("claim-uid"))
    assert "pv.kubernetes.io/bound-by-controller" not in chosen["metadata"]["annotations"]
    done = claim("disk", annotations={"pv.kubernetes.io/bind-completed": "yes"})
    assert claim_patch(done, volume("claim-uid")) is None
