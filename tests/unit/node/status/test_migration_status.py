"""The status of a migration, as each side writes it."""

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.state.facts import Facts, Migration, Progress
from corral.node.state.machine_record import Record
from corral.node.status.migration_status import migration_changes

NOW = "2026-01-01T00:00:00Z"
NAMED = {"namespace": "default", "instance": "vm", "uid": "u", "pod": "p", "pod_uid": "new"}


def vmi(annotations=None, **state):
    document = {
        "metadata": {
            "name": "vm",
            "namespace": "default",
            "uid": "u",
            "annotations": annotations or {},
        },
        "spec": {"domain": {"devices": {}}},
        "status": {
            "nodeName": "a",
            "activePods": {"old": "a"},
            "migrationState": {"migrationUid": "m", "sourceNode": "a", "targetNode": "b"} | state,
        },
    }
    return msgspec.convert(document, VirtualMachineInstance)


def changes(progress, *, arrives=False, failure="", abort="", uid="m", **state):
    record = Record(**NAMED, **{"arrival" if arrives else "departure": uid})
    facts = Facts(migration=Migration(uid=uid, progress=progress, failure=failure, abort=abort))
    return migration_changes(record, facts, vmi(**state), node="b", address="192.0.2.1", now=NOW)


def test_a_ready_target_reports_its_address():
    state = changes(Progress.PREPARED, arrives=True)["status"]["migrationState"]
    assert state["targetNodeAddress"] == "192.0.2.1"
    assert changes(Progress.PREPARED, arrives=True, targetNodeAddress="192.0.2.1") == {}


def test_the_hand_over_is_one_change():
    written = changes(Progress.ARRIVED, arrives=True)
    assert written["metadata"]["labels"] == {
        "kubevirt.io/nodeName": "b",
        "kubevirt.io/migrationTargetNodeName": None,
    }
    status = written["status"]
    assert status["nodeName"] == "b"
    assert status["launcherContainerImageVersion"] == Record(**NAMED).launcher
    assert status["activePods"] == {"old": None, "new": "b"}
    assert status["migrationState"] == {
        "targetNodeDomainReadyTimestamp": NOW,
        "endTimestamp": NOW,
        "completed": True,
    }
    assert changes(Progress.ARRIVED, arrives=True, completed=True) == {}


def test_an_arrival_removes_what_the_descheduler_noted():
    source = {"kubevirt.io/eviction-source": "descheduler"}
    written = changes(Progress.ARRIVED, arrives=True, annotations=source)
    assert written["metadata"]["annotations"] == {"kubevirt.io/eviction-source": None}
    assert "annotations" not in changes(Progress.ARRIVED, arrives=True)["metadata"]


def test_a_cancellation_that_came_too_late_has_failed():
    written = changes(Progress.ARRIVED, arrives=True, abortRequested=True)
    assert written["status"]["migrationState"]["abortStatus"] == "Failed"


def test_a_source_reports_the_start_and_a_failure():
    started = changes(Progress.SENDING)["status"]["migrationState"]
    assert started == {"startTimestamp": NOW, "mode": "PreCopy"}
    failed = changes(
        Progress.FAILED, failure="QEMU has ended", abort="Succeeded", startTimestamp=NOW
    )
    assert failed["status"]["migrationState"] == {
        "endTimestamp": NOW,
        "completed": True,
        "failed": True,
        "failureReason": "QEMU has ended",
        "abortStatus": "Succeeded",
    }


@pytest.mark.parametrize("progress", Progress)
def test_a_migration_that_is_not_the_vmis_latest_writes_nothing(progress):
    for arrives in (True, False):
        assert changes(progress, arrives=arrives, uid="another") == {}
