from datetime import UTC, datetime

import msgspec
import pytest
from tests.unit.controllers.make import make_vmi, pod

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.vmi.vmi import FINALIZER
from corral.api.schema import schema_for
from corral.controllers.vmi.lifecycle import plan
from corral.controllers.vmi.required_claims import Claims

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def phase_after(vmi, *pods):
    patch = plan(vmi, pods, NOW).patch
    return (patch or {}).get("status", {}).get("phase", vmi.status.phase)


def condition(patch, name):
    found = [each for each in patch["status"]["conditions"] if each["type"] == name]
    return found[0] if found else None


def test_a_new_vmi_gets_a_pod_without_a_status_write():
    decided = plan(make_vmi(phase="Pending"), [], NOW)
    assert decided.create_pod
    assert decided.patch is None


def test_a_vmi_deleted_before_it_has_a_pod_gets_none():
    decided = plan(make_vmi(phase="Pending", going=True), [], NOW)
    assert not decided.create_pod
    assert decided.patch["status"]["phase"] == "Failed"
    assert decided.patch["metadata"]["finalizers"] is None


def test_a_vmi_waits_for_its_claims_and_reports_a_missing_one():
    filling = plan(make_vmi(phase="Pending"), [], NOW, Claims(filling=True))
    missing = plan(make_vmi(phase="Pending"), [], NOW, Claims(missing="data"))
    assert not filling.create_pod
    assert not missing.create_pod
    assert condition(filling.patch, "PodScheduled") is None
    assert condition(filling.patch, "Synchronized") is None
    for name, reason in (("PodScheduled", "Unschedulable"), ("Synchronized", "FailedPvcNotFound")):
        said = condition(missing.patch, name)
        assert (said["status"], said["reason"]) == ("False", reason)
        assert "PVC default/data does not exist" in said["message"]


AWHILE = "2025-12-31T23:59:50Z"
"""When a pod was made that has waited long enough for its machine to say so."""
JUST_NOW = "2025-12-31T23:59:59Z"


def test_a_vmi_with_a_pod_is_scheduling():
    vmi = make_vmi(phase="Pending")
    patch = plan(vmi, [pod(vmi, created=AWHILE)], NOW).patch
    assert patch["status"]["phase"] == "Scheduling"
    assert patch["status"]["phaseTransitionTimestamps"] == [
        {"phase": "Scheduling", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}
    ]
    assert condition(patch, "Ready")["reason"] == "GuestNotRunning"
    assert patch["metadata"] == {"resourceVersion": "7"}


def test_a_young_unscheduled_pod_causes_no_status_write():
    vmi = make_vmi(phase="Pending")
    decided = plan(vmi, [pod(vmi, created=JUST_NOW)], NOW)
    assert decided.patch is None
    assert decided.requeue_seconds == 9
    placed = pod(vmi, created=JUST_NOW, node="node0", running=True)
    assert plan(vmi, [placed], NOW).patch["status"]["phaseTransitionTimestamps"] == [
        {"phase": "Scheduling", "phaseTransitionTimestamp": JUST_NOW},
        {"phase": "Scheduled", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"},
    ]


@pytest.mark.parametrize(
    "news",
    [
        {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        {"waiting": "ErrImagePull"},
        {"going": True},
    ],
)
def test_faults_of_a_young_pod_are_written_at_once(news):
    vmi = make_vmi(phase="Pending")
    assert plan(vmi, [pod(vmi, created=JUST_NOW, **news)], NOW).patch is not None


def outdated(name, reason, status="False"):
    return {"type": name, "status": status, "reason": reason, "message": "as it was before"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (outdated("PodScheduled", "Unschedulable"), None),
        (outdated("Synchronized", "FailedCreate"), None),
        (outdated("Synchronized", "FailedPvcNotFound"), None),
        (outdated("DataVolumesReady", "NotAllDVsReady"), "True"),
    ],
)
def test_faults_that_are_gone_with_the_pod_are_written_at_once(before, after):
    vmi = make_vmi(phase="Pending", conditions=[before])
    ready = msgspec.convert(
        {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {},
            "status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "True"}]},
        },
        DataVolume,
    )
    claims = Claims(data_volumes=[ready])
    patch = plan(vmi, [pod(vmi, created=JUST_NOW)], NOW, claims).patch
    entries = condition(patch, before["type"])
    assert (entries and entries["status"]) == after


def test_unchanged_conditions_do_not_hasten_the_status_write():
    stays = outdated("Synchronized", "FailedByWhoeverElse")
    vmi = make_vmi(phase="Pending", conditions=[stays, outdated("Paused", "PausedByUser")])
    assert plan(vmi, [pod(vmi, created=JUST_NOW)], NOW).requeue_seconds == 9


def test_a_clock_set_back_makes_no_pod_young():
    vmi = make_vmi(phase="Pending")
    assert phase_after(vmi, pod(vmi, created="2026-01-01T00:00:09Z")) == "Scheduling"


def test_a_young_pod_of_a_deleted_vmi_is_deleted_at_once():
    vmi = make_vmi(phase="Pending", going=True)
    assert plan(vmi, [pod(vmi, created=JUST_NOW)], NOW).delete_pods


def test_a_vmi_whose_pod_is_ready_is_scheduled_on_its_node():
    vmi = make_vmi(phase="Scheduling")
    of = pod(vmi, phase="Running", node="node0", running=True, ready=True)
    patch = plan(vmi, [of], NOW).patch
    assert patch["status"]["phase"] == "Scheduled"
    assert patch["status"]["nodeName"] == "node0"
    assert patch["status"]["activePods"] == {of.metadata.uid: "node0"}
    assert patch["status"]["qosClass"] == "Burstable"
    assert patch["metadata"]["labels"] == {"kubevirt.io/nodeName": "node0"}


def test_the_status_of_a_vmi_conforms_to_its_schema():
    """Then it need not be pruned at each write, which takes three times as long."""
    vmi = make_vmi(phase="Scheduling")
    of = pod(vmi, phase="Running", node="node0", running=True, ready=True)
    document = msgspec.to_builtins(vmi) | {"status": plan(vmi, [of], NOW).patch["status"]}
    assert document["status"]["conditions"]
    assert schema_for(VIRTUAL_MACHINE_INSTANCE).fits(document)


def test_a_bound_pod_does_not_make_the_vmi_scheduled():
    vmi = make_vmi(phase="Scheduling")
    assert phase_after(vmi, pod(vmi, node="node0")) == "Scheduling"


def test_a_running_vmi_is_as_ready_as_its_pod():
    vmi = make_vmi(phase="Running", node="node0", labels={"kubevirt.io/nodeName": "node0"})
    of = pod(vmi, phase="Running", node="node0", running=True, ready=True)
    assert condition(plan(vmi, [of], NOW).patch, "Ready")["status"] == "True"


def test_an_unchanged_status_is_not_written():
    said = make_vmi(
        phase="Running",
        node="node0",
        conditions=[
            {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}
        ],
        labels={"kubevirt.io/nodeName": "node0"},
    )
    of = pod(said, phase="Running", node="node0", running=True, ready=True)
    said.status.active_pods = {of.metadata.uid: "node0"}
    said.status.qos_class = "Burstable"
    assert plan(said, [of], NOW).patch is None


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "Running"])
def test_a_vmi_whose_pod_vanished_has_failed(phase):
    patch = plan(make_vmi(phase=phase), [], NOW).patch
    assert patch["status"]["phase"] == "Failed"
    assert patch["metadata"]["finalizers"] is None


@pytest.mark.parametrize(
    ("phase", "pod_phase", "expected"),
    [
        ("Scheduling", "Succeeded", "Failed"),
        ("Scheduling", "Failed", "Failed"),
        ("Running", "Succeeded", "Succeeded"),
        ("Running", "Failed", "Failed"),
        ("Running", "Running", "Running"),
    ],
)
def test_a_pod_that_ended_ends_its_vmi(phase, pod_phase, expected):
    vmi = make_vmi(phase=phase)
    assert phase_after(vmi, pod(vmi, phase=pod_phase, node="node0")) == expected


def test_a_terminating_pod_fails_an_unscheduled_vmi():
    vmi = make_vmi(phase="Scheduling")
    assert phase_after(vmi, pod(vmi, going=True)) == "Failed"


def test_a_terminating_pod_makes_a_running_vmi_unready_at_once():
    vmi = make_vmi(phase="Running", ready=True)
    of = pod(vmi, phase="Running", node="node0", running=True, ready=True, going=True)
    patch = plan(vmi, [of], NOW).patch
    assert "phase" not in patch["status"]
    ready = condition(patch, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodTerminating")


def test_the_node_stops_a_scheduled_vmi_that_is_deleted():
    vmi = make_vmi(phase="Running", going=True)
    of = pod(vmi, phase="Running", node="node0", running=True)
    assert plan(vmi, [of], NOW).delete_pods == ()


def test_after_its_end_the_pod_is_force_deleted_then_the_finalizer_removed():
    vmi = make_vmi(phase="Succeeded", going=True)
    of = pod(vmi, phase="Running", node="node0", running=True)
    decided = plan(vmi, [of], NOW)
    assert (decided.delete_pods, decided.force) == ((of,), True)
    assert "finalizers" not in (decided.patch or {"metadata": {}})["metadata"]
    assert plan(vmi, [], NOW).patch["metadata"]["finalizers"] is None


def test_other_finalizers_stay():
    vmi = make_vmi(phase="Succeeded", going=True)
    vmi.metadata.finalizers = ["else/where", FINALIZER]
    assert plan(vmi, [], NOW).patch["metadata"]["finalizers"] == ["else/where"]


def test_the_pod_of_an_unscheduled_vmi_is_deleted_gracefully():
    vmi = make_vmi(phase="Scheduling", going=True)
    of = pod(vmi, node="node0")
    decided = plan(vmi, [of], NOW)
    assert (decided.delete_pods, decided.force) == ((of,), False)
    for running in (False, True):  # nor is it placed once both go
        going = pod(vmi, node="node0", going=True, running=running)
        assert phase_after(vmi, going) == "Scheduling"
    assert phase_after(vmi) == "Failed"


def test_a_finished_vmi_that_stays_keeps_its_pod():
    vmi = make_vmi(phase="Failed")
    assert plan(vmi, [pod(vmi, phase="Failed", node="node0")], NOW).delete_pods == ()


def test_an_unschedulable_pod_is_reported_until_it_is_scheduled():
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient memory.",
    }
    vmi = make_vmi(phase="Scheduling")
    patch = plan(vmi, [pod(vmi, conditions=[unscheduled])], NOW).patch
    assert condition(patch, "PodScheduled")["reason"] == "Unschedulable"
    entries = make_vmi(phase="Scheduling", conditions=patch["status"]["conditions"])
    patch = plan(entries, [pod(entries, node="node0")], NOW).patch
    assert condition(patch, "PodScheduled") is None


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_a_failed_image_pull_is_reported_and_cleared(reason):
    vmi = make_vmi(phase="Scheduling")
    patch = plan(vmi, [pod(vmi, node="node0", waiting=reason)], NOW).patch
    said = condition(patch, "Synchronized")
    assert (said["status"], said["reason"], said["message"]) == ("False", reason, "no such image")
    entries = make_vmi(phase="Scheduling", conditions=patch["status"]["conditions"])
    patch = plan(entries, [pod(entries, node="node0")], NOW).patch
    assert condition(patch, "Synchronized") is None


def test_the_synchronized_condition_of_the_node_is_left_alone():
    said = {"type": "Synchronized", "status": "False", "reason": "Synchronizing with the Domain"}
    vmi = make_vmi(phase="Running", conditions=[said])
    patch = plan(vmi, [pod(vmi, phase="Running", node="node0", running=True)], NOW).patch
    assert condition(patch, "Synchronized")["reason"] == said["reason"]


def test_the_eviction_mark_lasts_as_long_as_the_eviction():
    def entries(node, *conditions):
        vmi = make_vmi(phase="Running", node="node0", conditions=list(conditions))
        vmi.status.evacuation_node_name = node
        patch = plan(vmi, [pod(vmi, phase="Running", node="node0", running=True)], NOW).patch
        return condition(patch, "EvictionRequested")

    assert entries("") is None
    marked = entries("node0")
    assert (marked["status"], marked["message"]) == ("True", "VMI is marked for eviction")
    assert entries("", marked) is None


def test_a_failed_creation_of_the_pod_is_reported():
    decided = plan(make_vmi(phase="Pending"), [], NOW, create_error="Error creating pod: full")
    assert not decided.create_pod
    said = condition(decided.patch, "Synchronized")
    assert (said["reason"], said["message"]) == ("FailedCreate", "Error creating pod: full")
    assert "phase" not in decided.patch["status"]


def test_transition_times_change_with_the_status_only():
    old = {
        "type": "Ready",
        "status": "False",
        "reason": "PodNotExists",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    vmi = make_vmi(phase="Scheduling", conditions=[old])
    patch = plan(vmi, [pod(vmi)], NOW).patch
    ready = condition(patch, "Ready")
    assert ready["reason"] == "GuestNotRunning"
    assert ready["lastTransitionTime"] == "2025-01-01T00:00:00Z"


def test_a_foreign_pod_that_names_the_vmi_as_owner_does_not_count():
    vmi = make_vmi(phase="Running")
    own = pod(vmi, phase="Running", node="node0", running=True, ready=True)
    other = pod(vmi, name="impostor", phase="Failed", node="node0")
    assert plan(vmi, [other, own], NOW) == plan(vmi, [own], NOW)
    assert plan(make_vmi(phase="Pending"), [other], NOW).create_pod
