"""What is decided of claims and their volumes, without a storage."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.api.kinds.storage.common import CORRAL_PROVISIONER, PROVISIONED_BY
from corral.node.storage.provision_plan import (
    capacity_text,
    expansion,
    is_retained,
    is_to_be_deleted,
)

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def claim(requested="2Gi", has="1Gi", phase="Bound", **metadata):
    document = {
        "metadata": {"name": "data", "namespace": "default", **metadata},
        "spec": {"resources": {"requests": {"storage": requested}}},
    }
    if phase:
        document["status"] = {"phase": phase, "capacity": {"storage": has}}
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(size="1Gi", phase="Bound", policy="Delete", by=CORRAL_PROVISIONER, **metadata):
    document = {
        "metadata": {"name": "pv", "annotations": {PROVISIONED_BY: by}, **metadata},
        "spec": {"capacity": {"storage": size}, "persistentVolumeReclaimPolicy": policy},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PersistentVolume)


@pytest.mark.parametrize(
    ("grows", "of", "on"),
    [
        (True, claim(), volume()),
        (True, claim(), volume("2Gi")),  # it has it, and does not say so
        (False, claim(has="2Gi"), volume("2Gi")),
        (False, claim("1Gi"), volume()),
        (False, claim(phase="Pending"), volume()),
        (False, claim(phase=""), volume()),
        (False, claim(**GOING), volume()),
    ],
)
def test_a_bound_claim_is_expanded_to_its_request(grows, of, on):
    assert expansion(of, on) == (2 << 30 if grows else 0)


@pytest.mark.parametrize(
    ("goes", "which"),
    [
        (True, volume(phase="Released")),
        (True, volume(phase="Available", **GOING)),
        (False, volume(phase="Available")),
        (False, volume(phase="Bound", **GOING)),
        (False, volume(phase="Released", policy="Retain")),
        (False, volume(phase="Released", by="example.com/disks")),
    ],
)
def test_files_of_a_released_volume_are_deleted(goes, which):
    assert is_to_be_deleted(which) is goes


def test_files_are_kept_unless_the_reclaim_policy_is_delete():
    assert is_retained(volume(policy="Retain"))
    assert is_retained(volume(policy=None))
    assert not is_retained(volume())


def test_an_exact_size_is_shown_as_requested():
    assert capacity_text(claim("2Gi"), 2 << 30) == "2Gi"
    assert capacity_text(claim("2Gi"), 3 << 30) == str(3 << 30)
