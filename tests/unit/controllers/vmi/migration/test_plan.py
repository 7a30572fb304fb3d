"""Phases of a migration, and what is done in each."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from lightkube.models.core_v1 import ContainerStatus
from tests.unit.controllers.make import pod
from tests.unit.controllers.vmi.migration.make import NOW, observed, target, vmi

from corral.api.object import Condition
from corral.controllers.vmi.migration.plan import CANCELLED, TARGET_DOWN, plan

ADDRESS = {"targetNodeAddress": "192.0.2.2"}
STARTED = {**ADDRESS, "startTimestamp": "2026-01-01T00:09:10Z"}
DONE = {**STARTED, "endTimestamp": "2026-01-01T00:09:11Z", "completed": True}
FAILED = {**DONE, "failed": True}
READY = {**STARTED, "targetNodeDomainReadyTimestamp": "2026-01-01T00:09:11Z"}
UNSTARTED = ("PreparingTarget", "TargetReady")
BEFORE_HAND_OFF = ("Pending", "Scheduling", "Scheduled")


def messages(decided):
    return [report.message for report in decided.reports]


def test_a_new_migration_creates_its_target_pod():
    decided = plan(observed())
    assert (decided.passed, decided.create_pod) == (("Pending",), True)


@pytest.mark.parametrize(
    "hindrance",
    [
        {"blocked": True},
        {"taken": True},
        {"source": None},
        {"of": vmi("Scheduled")},
        {"target": target(vmi())},
    ],
)
def test_a_target_pod_is_created_for_a_running_vmi_without_another_one(hindrance):
    assert not plan(observed("Pending", **hindrance)).create_pod


def test_the_source_pod_must_last():
    machine = vmi()
    ends = pod(machine, phase="Running", node="one", running=True, going=True)
    assert not plan(observed("Pending", machine, source=ends)).create_pod


def test_a_migration_of_a_vmi_that_migrates_fails():
    decided = plan(observed("", taken=True))
    assert decided.phase == "Failed"
    assert messages(decided) == [
        "VMI is not eligible for migration because another migration job is in progress."
    ]


@pytest.mark.parametrize(
    ("before", "pod_phase", "state", "after"),
    [
        ("Pending", "Pending", None, ("Scheduling",)),
        ("Scheduling", "Pending", None, ()),
        ("Scheduling", "Running", None, ("Scheduled",)),
        ("", "Running", None, ("Pending", "Scheduling", "Scheduled")),
        ("Scheduled", "Running", {}, ("PreparingTarget",)),
        ("PreparingTarget", "Running", ADDRESS, ("TargetReady",)),
        ("TargetReady", "Running", STARTED, ("Running",)),
        ("Running", "Running", STARTED, ()),
        ("Running", "Running", DONE, ("Succeeded",)),
        ("Scheduled", "Running", DONE, ("PreparingTarget", "TargetReady", "Running", "Succeeded")),
    ],
)
def test_phases_follow_the_target_pod_and_the_vmi(before, pod_phase, state, after):
    machine = vmi(state=state)
    decided = plan(observed(before, machine, target=target(machine, pod_phase, node="two")))
    assert decided.passed == after
    assert decided.delete_pod == decided.fail_vmi == ""
    assert ("SuccessfulMigration" in [each.reason for each in decided.reports]) is (
        decided.phase == "Succeeded"
    )


@pytest.mark.parametrize(
    ("phase", "state", "handed_off", "hands_off"),
    [
        ("Scheduling", None, False, True),
        ("Scheduled", None, False, True),
        ("Scheduled", None, True, False),
        ("Scheduled", {}, False, False),
        ("Scheduled", {"migrationUid": "an earlier one", "completed": True}, False, True),
    ],
)
def test_a_vmi_is_handed_off_once(phase, state, handed_off, hands_off):
    machine = vmi(state=state)
    made = target(machine, "Running", node="two")
    assert plan(observed(phase, machine, target=made, handed_off=handed_off)).hand_off is hands_off


@pytest.mark.parametrize(("reason", "hands_off"), [("", False), ("HotPlugFailed", True)])
def test_vcpus_that_are_granted_are_plugged_in_before_a_vmi_is_handed_off(reason, hands_off):
    machine = vmi()
    change = Condition(type="HotVCPUChange", status="True", reason=reason)
    machine.status.conditions = [*machine.status.conditions, change]
    pod_of_target = target(machine, "Running", node="two")
    decided = plan(observed("Scheduled", machine, target=pod_of_target))
    assert (decided.phase, decided.hand_off) == ("Scheduled", hands_off)


# ------------------------------------------------------------------------ failures


@pytest.mark.parametrize("phase", ["", *BEFORE_HAND_OFF, *UNSTARTED, "Running"])
@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (None, "Migration failed because vmi does not exist."),
        (vmi("Failed"), "Migration failed vmi shutdown during migration."),
    ],
)
def test_a_migration_fails_without_its_vmi(phase, machine, message):
    seen = observed(phase, vmi(), target=target(vmi()))
    decided = plan(replace(seen, vmi=machine))
    assert (decided.phase, messages(decided)) == ("Failed", [message])
    assert decided.delete_pod


@pytest.mark.parametrize("phase", BEFORE_HAND_OFF[1:])
def test_a_target_pod_that_goes_before_the_hand_off_fails_the_migration(phase):
    gone = plan(observed(phase))
    assert messages(gone) == ["Migration target pod was removed during active migration."]
    assert (gone.phase, gone.fail_vmi, gone.delete_pod) == ("Failed", "", "")
    ended = plan(observed(phase, target=target(vmi(), "Failed", node="two")))
    assert messages(ended) == ["Migration failed because target pod shutdown during migration"]
    assert (ended.phase, ended.fail_vmi) == ("Failed", "")
    assert ended.delete_pod


def test_why_a_target_pod_has_ended_outlives_it():
    made = target(vmi(), "Failed", node="two")
    terminated = {"exitCode": 1, "message": "The migration target failed: no space"}
    made.status.containerStatuses = msgspec.convert(
        [container("sidecar"), container("compute", {"terminated": terminated})],
        list[ContainerStatus],
    )
    (message,) = messages(plan(observed("Scheduled", target=made)))
    assert message.endswith("during migration: The migration target failed: no space")
    unreported = plan(observed("PreparingTarget", vmi(state={}), target=made))
    assert unreported.fail_vmi == f"{TARGET_DOWN}: The migration target failed: no space"


def container(name, state=None):
    return {
        "name": name, "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": "",
    }  # fmt: skip


@pytest.mark.parametrize("phase", UNSTARTED)
@pytest.mark.parametrize("state", [{}, ADDRESS])
def test_a_target_pod_that_goes_before_the_source_begins_is_reported_to_the_nodes(phase, state):
    assert plan(observed(phase, vmi(state=state))).fail_vmi == TARGET_DOWN
    machine = vmi(state=state)
    ending = target(machine, "Running", node="two", going=True)
    decided = plan(observed(phase, machine, target=ending))
    assert (decided.phase, decided.fail_vmi, decided.delete_pod) == ("Failed", TARGET_DOWN, "")


@pytest.mark.parametrize("pod_phase", ["Failed", None])
def test_once_the_source_has_begun_it_alone_says_how_the_migration_ends(pod_phase):
    machine = vmi(state=STARTED)
    made = pod_phase and target(machine, pod_phase, node="two")
    decided = plan(observed("Running", machine, target=made))
    assert (decided.phase, decided.passed, decided.fail_vmi) == ("Running", (), "")
    failed = vmi(state=FAILED)
    decided = plan(observed("Running", failed, target=target(failed, "Running", node="two")))
    assert (decided.phase, decided.fail_vmi) == ("Failed", "")
    assert messages(decided) == ["source node reported migration failed"]
    assert decided.delete_pod == (
        f"migration failed and pod {decided.delete_pod.split()[-3]} is deleted"
    )


@pytest.mark.parametrize("phase", [*UNSTARTED, "Running"])
@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "VMI's migration state was cleared during the active migration."),
        (
            {"migrationUid": "another"},
            (
                "VMI's migration state was taken over by another migration job during active "
                "migration."
            ),
        ),
    ],
)
def test_a_migration_fails_with_its_state(phase, state, message):
    machine = vmi(state=state)
    decided = plan(observed(phase, machine, target=target(machine, "Running", node="two")))
    assert (decided.phase, messages(decided)) == ("Failed", [message])


# ------------------------------------------------------------------------ time-outs


@pytest.mark.parametrize(
    ("seconds", "unschedulable", "annotations", "why"),
    [
        (60, False, {}, ""),
        (299, True, {}, ""),
        (300, True, {}, "unschedulable"),
        (300, False, {}, ""),
        (900, False, {}, "pending"),
        (900, True, {}, "unschedulable"),
        (30, True, {"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "20"}, "unschedulable"),
        (30, False, {"kubevirt.io/migrationPendingPodTimeoutSeconds": "20"}, "pending"),
        (60, False, {"kubevirt.io/migrationPendingPodTimeoutSeconds": "soon"}, ""),
    ],
)
def test_a_pending_target_pod_is_deleted_in_time(seconds, unschedulable, annotations, why):
    created = (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    machine = vmi()
    made = target(machine, created=created, unschedulable=unschedulable)
    decided = plan(observed("Scheduling", machine, target=made, annotations=annotations))
    assert decided.delete_pod == (
        f"{why} pod default/{made.metadata.name} timeout period exceeded" if why else ""
    )
    assert (decided.requeue_seconds > 0) is not bool(why)
    unfit = "Migration target pod for VMI [default/vm] is currently unschedulable."
    assert (unfit in messages(decided)) is unschedulable


# ------------------------------------------------------------------------ cancellation


@pytest.mark.parametrize("phase", ["", *BEFORE_HAND_OFF])
def test_a_migration_is_cancelled_at_once_before_the_hand_off(phase):
    machine = vmi()
    made = target(machine, "Running", node="two")
    decided = plan(observed(phase, machine, target=made, cancelled=True))
    assert (decided.phase, decided.hand_off, decided.fail_vmi) == ("Failed", False, "")
    assert messages(decided) == ["Migration failed due to being canceled"]
    key = f"default/{made.metadata.name}"
    assert decided.delete_pod == f"migration canceled and pod {key} is deleted"


def test_a_cancellation_waits_until_the_hand_off_is_seen():
    machine = vmi()
    made = target(machine, "Running", node="two")
    decided = plan(observed("Scheduled", machine, target=made, cancelled=True, handed_off=True))
    assert (decided.passed, decided.delete_pod, decided.hand_off) == ((), "", False)


@pytest.mark.parametrize("phase", UNSTARTED)
def test_a_migration_that_has_not_begun_is_cancelled_on_the_vmi(phase):
    machine = vmi(state=ADDRESS)
    made = target(machine, "Running", node="two")
    decided = plan(observed(phase, machine, target=made, cancelled=True))
    assert (decided.phase, decided.fail_vmi) == ("Failed", CANCELLED)
    assert decided.delete_pod


@pytest.mark.parametrize(
    ("state", "node", "aborts"),
    [
        (STARTED, "one", True),
        ({**STARTED, "abortRequested": True}, "one", False),
        (READY, "two", False),
        (DONE, "two", False),
    ],
)
def test_the_source_is_asked_to_cancel_what_it_has_begun(state, node, aborts):
    machine = vmi(state=state, node=node)
    made = target(machine, "Running", node="two")
    decided = plan(observed("Running", machine, target=made, cancelled=True))
    assert (decided.abort, decided.delete_pod, decided.fail_vmi) == (aborts, "", "")


def test_a_vmi_that_is_deleted_cancels_its_migration():
    going = vmi(going=True, state=STARTED)
    decided = plan(observed("Running", going, target=target(going, "Running", node="two")))
    assert (decided.abort, decided.phase) == (True, "Running")
    going = vmi(going=True)
    assert plan(observed("Scheduling", going, target=target(going))).phase == "Failed"


# ------------------------------------------------------------------------ afterwards


def test_a_target_pod_in_which_the_guest_may_run_is_never_deleted():
    for state, node in ((READY, "two"), (STARTED, "one"), (READY, "one"), (FAILED, "two")):
        machine = vmi(state=state, node=node)
        made = target(machine, "Running", node="two")
        for phase in ("Running", "Failed", "Succeeded"):
            for cancelled in (False, True):
                seen = observed(phase, machine, target=made, cancelled=cancelled)
                assert plan(seen).delete_pod == "", (state, node, phase)


def test_what_a_failure_leaves_is_removed_afterwards():
    failed = vmi(state=FAILED)
    made = target(failed, "Running", node="two")
    assert plan(observed("Failed", failed, target=made)).delete_pod
    unreported = vmi(state=ADDRESS)
    assert plan(observed("Failed", unreported)).fail_vmi == TARGET_DOWN
    assert plan(observed("Succeeded", vmi(state=DONE, node="two"))).delete_pod == ""


@pytest.mark.parametrize(
    ("state", "node", "source_phase", "completes"),
    [
        (READY, "two", None, True),
        (READY, "two", "Failed", True),
        (READY, "two", "Running", False),
        (STARTED, "two", None, False),
        (READY, "one", None, False),
        ({**READY, "completed": True}, "two", None, False),
    ],
)
def test_a_migration_whose_source_is_gone_is_completed(state, node, source_phase, completes):
    machine = vmi(state=state, node=node)
    source = source_phase and pod(machine, phase=source_phase, node="one")
    made = target(machine, "Running", node="two")
    decided = plan(observed("Running", machine, target=made, source=source))
    assert decided.complete_vmi is completes
