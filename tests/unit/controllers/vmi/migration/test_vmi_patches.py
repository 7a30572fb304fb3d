"""What the controller writes into a VMI that migrates."""

from tests.unit.controllers.vmi.migration.make import NOW, UID, migration, vmi

from corral.api.kinds.vmi.migration_configuration import DEFAULTS
from corral.api.patch.merge import merge_patch
from corral.controllers.vmi.migration import vmi_patches

EARLIER = {
    "migrationUid": "earlier",
    "completed": True,
    "startTimestamp": "2026-01-01T00:00:00Z",
    "targetNodeAddress": "192.0.2.9",
}


def test_a_hand_off_replaces_the_state_of_an_earlier_migration():
    machine = vmi(state=EARLIER)
    document = vmi_patches.hand_off(
        machine,
        migration("Scheduled"),
        source="old",
        target="new",
        target_node="two",
        policy=None,
        settings=DEFAULTS,
    )
    assert document["metadata"]["resourceVersion"] == "7"
    assert document["metadata"]["labels"] == {"kubevirt.io/migrationTargetNodeName": "two"}
    state = merge_patch({"migrationState": dict(EARLIER)}, document["status"])["migrationState"]
    settings = state.pop("migrationConfiguration")
    assert settings["progressTimeout"] == 150
    assert state == {
        "migrationUid": UID,
        "sourceNode": "one",
        "sourcePod": "old",
        "targetNode": "two",
        "targetPod": "new",
    }


def test_a_failure_before_the_start_has_all_times():
    patch = vmi_patches.failed(vmi(state={}), "why", NOW, cancelled=True)
    state = patch["status"]["migrationState"]
    assert state["startTimestamp"] == state["endTimestamp"] == "2026-01-01T00:10:00Z"
    assert (state["failed"], state["completed"], state["failureReason"]) == (True, True, "why")
    assert (state["abortRequested"], state["abortStatus"]) == (True, "Succeeded")
    assert patch["metadata"]["labels"] == {"kubevirt.io/migrationTargetNodeName": None}
