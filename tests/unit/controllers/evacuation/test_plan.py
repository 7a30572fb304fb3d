"""Which VMIs leave their node by a migration."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node
from tests.unit.controllers.make import make_vmi
from tests.unit.controllers.vmi.migration.make import migration as make_migration

from corral.api.kinds.kubevirt.migration import VirtualMachineInstanceMigration
from corral.api.kinds.vmi.status import MigrationState
from corral.controllers.evacuation.plan import is_to_leave, may_migrate, migration_of, to_cancel

MIGRATABLE = [{"type": "LiveMigratable", "status": "True"}]
FIXED = [{"type": "LiveMigratable", "status": "False"}]


def vmi(strategy="LiveMigrate", *, marked="", conditions=MIGRATABLE, **fields):
    spec = {"domain": {"devices": {}}, "evictionStrategy": strategy}
    made = make_vmi(name="vm", node="one", spec=spec, conditions=conditions, **fields)
    made.status.evacuation_node_name = marked
    return made


def node(*taints):
    found = [{"key": key, "effect": effect} for key, effect in taints]
    return msgspec.convert({"metadata": {"name": "one"}, "spec": {"taints": found}}, Node)


def migration(phase):
    document = {"spec": {"vmiName": "vm"}, "status": {"phase": phase}}
    return msgspec.convert(document, VirtualMachineInstanceMigration)


@pytest.mark.parametrize(
    ("marked", "taints", "leaves"),
    [
        ("", [], False),
        ("one", [], True),
        ("two", [], False),
        ("", [("kubevirt.io/drain", "NoSchedule")], True),
        ("", [("kubevirt.io/drain", "NoExecute")], False),
        ("", [("other", "NoSchedule")], False),
    ],
)
def test_a_vmi_leaves_a_node_that_is_drained_or_from_which_it_was_evicted(marked, taints, leaves):
    assert is_to_leave(vmi(marked=marked), node(*taints), "kubevirt.io/drain") is leaves
    assert is_to_leave(vmi(marked=marked), None, "kubevirt.io/drain") is (marked == "one")


@pytest.mark.parametrize(
    ("machine", "phases", "migrates"),
    [
        (vmi(), [], True),
        (vmi("LiveMigrateIfPossible"), [], True),
        (vmi(None), [], False),
        (vmi("None"), [], False),
        (vmi("External"), [], False),
        (vmi(conditions=FIXED), [], False),
        (vmi(conditions=[]), [], False),
        (vmi(phase="Failed"), [], False),
        (vmi(going=True), [], False),
        (vmi(), ["Failed", "Succeeded"], True),
        (vmi(), ["Failed", "Pending"], False),
        (vmi(), [""], False),
    ],
)
def test_a_migration_is_created_for_a_vmi_that_can_and_does_not_yet(machine, phases, migrates):
    assert may_migrate(machine, [migration(phase) for phase in phases]) is migrates


@pytest.mark.parametrize(
    ("phase", "begun", "node", "going", "cancelled"),
    [
        ("", "", "one", False, True),
        ("Pending", "", "one", False, True),
        ("Pending", "an earlier one", "one", False, True),
        ("Scheduling", "", "one", False, True),
        ("Scheduled", "", "one", False, True),
        ("Scheduled", "this", "one", False, False),
        ("Running", "this", "one", False, False),
        ("Failed", "", "one", False, False),
        ("Pending", "", "two", False, False),
        ("Pending", "", "", False, False),
        ("Pending", "", "one", True, False),
    ],
)
def test_an_evacuation_that_has_not_begun_is_cancelled(phase, begun, node, going, cancelled):
    annotations = {"kubevirt.io/evacuationMigration": node} if node else {}
    evacuation = make_migration(phase, uid="this", going=going, annotations=annotations)
    machine = vmi()
    machine.status.migration_state = MigrationState(migration_uid=begun)
    assert to_cancel(machine, [evacuation]) == ([evacuation] if cancelled else [])


@pytest.mark.parametrize(
    ("own", "default", "migrates"),
    [
        (None, "LiveMigrate", True),
        (None, "LiveMigrateIfPossible", True),
        (None, "External", False),
        ("None", "LiveMigrate", False),
        ("LiveMigrate", "None", True),
    ],
)
def test_a_vmi_without_an_eviction_strategy_has_the_clusters(own, default, migrates):
    assert may_migrate(vmi(own), [], default) is migrates


def test_evacuations_are_critical_unless_the_descheduler_asked():
    made = migration_of(vmi())
    assert made["metadata"]["generateName"] == "kubevirt-evacuation-"
    assert made["metadata"]["annotations"] == {"kubevirt.io/evacuationMigration": "one"}
    assert made["spec"] == {"vmiName": "vm", "priority": "system-critical"}
    descheduled = vmi()
    descheduled.metadata.annotations = {"kubevirt.io/eviction-source": "descheduler"}
    assert migration_of(descheduled)["spec"]["priority"] == "system-maintenance"
