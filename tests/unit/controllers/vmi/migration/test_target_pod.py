"""The pod that a VMI migrates to."""

import pytest
from tests.unit.controllers.make import make_vmi
from tests.unit.controllers.vmi.migration.make import UID, migration

from corral.api.kinds.vmi.derived import pod_name, target_pod_name
from corral.controllers.vmi.launcher_pod import pod_for
from corral.controllers.vmi.migration.target_pod import target_pod

EXCLUDED = [
    {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("one", "remote")
]


def made(spec=None, **fields):
    machine = make_vmi(name="vm", spec={"domain": {"devices": {}}, **(spec or {})})
    return machine, target_pod(pod_for(machine), migration(**fields), machine, ["one", "remote"])


def test_a_target_pod_is_a_launcher_of_its_own_name():
    machine, pod = made()
    launcher = pod_for(machine)
    assert pod["metadata"]["name"] == target_pod_name(machine, UID) != pod_name(machine)
    assert pod["metadata"]["labels"] == {
        **launcher["metadata"]["labels"],
        "kubevirt.io/migrationJobUID": UID,
    }
    assert pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] == "move"
    assert pod["metadata"]["ownerReferences"] == launcher["metadata"]["ownerReferences"]
    assert {**pod["spec"], "affinity": None} == {**launcher["spec"], "affinity": None}


@pytest.mark.parametrize("terms", [0, 1, 2])
def test_it_runs_anywhere_but_on_excluded_nodes(terms):
    required = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [str(number)]}]}
        for number in range(terms)
    ]
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {field: {"nodeSelectorTerms": required}}} if terms else None
    _, pod = made({"affinity": affinity} if terms else {})
    found = pod["spec"]["affinity"]["nodeAffinity"][field]["nodeSelectorTerms"]
    assert found == [{**term, "matchFields": EXCLUDED} for term in required or [{}]]


def test_a_selector_of_the_migration_only_narrows():
    _, pod = made({"nodeSelector": {"zone": "a"}}, addedNodeSelector={"zone": "b", "disk": "ssd"})
    assert pod["spec"]["nodeSelector"] == {"zone": "a", "disk": "ssd"}
