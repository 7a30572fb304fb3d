"""What a DataSource means at present, in CDI's words."""

import msgspec
import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.cdi.datasource import StoredDataSource
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.controllers.datavolume.datasource_status import Observed, decide

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:09Z"
PVC = {"pvc": {"name": "golden", "namespace": "default"}}
READY = ("True", "Ready", "DataSource is ready to be consumed")
SUITS = "instancetype.kubevirt.io/default-instancetype"


def reference(source, name="mine", **rest):
    metadata = {"name": name, "namespace": "default", **rest}
    return msgspec.convert({"metadata": metadata, "spec": {"source": source}}, StoredDataSource)


def claim(**labels):
    metadata = {"name": "golden", "namespace": "default", "labels": labels}
    return msgspec.convert({"metadata": metadata}, PersistentVolumeClaim)


def volume(phase, **labels):
    metadata = {"name": "golden", "namespace": "default", "labels": labels}
    document = {"metadata": metadata, "spec": {}, "status": {"phase": phase}}
    return msgspec.convert(document, DataVolume)


def ready_condition(decided):
    [ready] = decided.status.conditions
    assert ready.type == "Ready"
    return ready.status, ready.reason, ready.message


@pytest.mark.parametrize(
    ("source", "seen", "expected"),
    [
        (PVC, {"claim": claim()}, READY),
        (PVC, {"volume": volume("Succeeded")}, READY),
        (PVC, {}, ("False", "NotFound", "PVC not found")),
        (
            PVC,
            {"claim": claim(), "volume": volume("ImportInProgress")},
            ("False", "ImportInProgress", "Import DataVolume phase ImportInProgress"),
        ),
        ({}, {}, ("False", "NoSource", "No source PVC set")),
        ({"snapshot": {"name": "old"}}, {}, ("False", "NotFound", "Snapshot not found")),
        ({"dataSource": {"name": "other"}}, {"named": reference(PVC), "claim": claim()}, READY),
        (
            {"dataSource": {"name": "other"}},
            {"named": reference({})},
            ("False", "NoSource", "No source PVC set"),
        ),
        (
            {"dataSource": {"name": "other"}},
            {},
            ("False", "NotFound", 'DataSource.cdi.kubevirt.io "other" not found'),
        ),
        (
            {"dataSource": {"name": "other"}},
            {"named": reference({"dataSource": {"name": "third"}}), "claim": claim()},
            (
                "False",
                "MaxReferenceDepthReached",
                "DataSource reference chain exceeds maximum depth of 1",
            ),
        ),
    ],
)
def test_ready_is_true_if_the_source_can_be_cloned(source, seen, expected):
    decided = decide(reference(source), Observed(**seen, now=NOW))
    assert ready_condition(decided) == expected
    meant = msgspec.to_builtins(decided.status.source)
    assert meant == (PVC if expected == READY else None)


def test_transition_times_change_with_the_condition_only():
    of = reference(PVC)
    status = decide(of, Observed(claim=claim(), now=NOW)).status
    of.status = msgspec.to_builtins(status)
    assert decide(of, Observed(claim=claim(), now=LATER)).status == status
    [lost] = decide(of, Observed(now=LATER)).status.conditions
    assert (lost.last_transition_time, lost.last_heartbeat_time) == (LATER, LATER)


@pytest.mark.parametrize(
    "odd", [None, [], ["ready"], "ready", {"conditions": {"Ready": True}}, {"source": "golden"}]
)
def test_an_invalid_status_counts_as_missing(odd):
    of = reference(PVC)
    of.status = odd
    decided = decide(of, Observed(claim=claim(), now=NOW))
    assert decided == decide(reference(PVC), Observed(claim=claim(), now=NOW))


def test_labels_of_instance_types_are_copied_from_the_source():
    of = reference(PVC, labels={SUITS: "u1.small", "mine": "yes"})
    seen = Observed(
        claim=claim(**{SUITS: "u1.large", "app": "web"}),
        volume=volume("Succeeded", **{SUITS: "u1.nano", "kubevirt.io/os": "fedora"}),
        now=NOW,
    )
    assert decide(of, seen).labels == {SUITS: "u1.large", "kubevirt.io/os": "fedora"}
    of.metadata.labels.update(decide(of, seen).labels)
    assert decide(of, seen).labels == {}


def test_labels_stay_if_the_source_is_not_ready():
    seen = Observed(claim=claim(), volume=volume("Pending", **{SUITS: "u1.nano"}), now=NOW)
    assert decide(reference(PVC), seen).labels == {}
