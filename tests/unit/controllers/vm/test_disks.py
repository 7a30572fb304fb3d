"""The DataVolumes and claims behind a VirtualMachine's disks (VM:512-573)."""

import msgspec
import pytest
from tests.unit.controllers.vm.make import claim, data_volume, vm

from corral.api.kinds.cdi.permitted_clones import PERMITTED
from corral.controllers.vm.disks import (
    Disks,
    are_ready,
    data_volume as made_of,
    disks,
    missing,
    names,
    orphans,
    source_claim,
)

TEMPLATE = {
    "metadata": {"name": "root", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}},
}
ROOT = {"name": "disk0", "dataVolume": {"name": "root"}}
DATA = {"name": "disk1", "persistentVolumeClaim": {"claimName": "data"}}
ERROR = {"type": "Running", "status": "False", "reason": "Error"}
QUOTA = {"type": "Bound", "status": "False", "reason": "ErrExceededQuota"}


@pytest.mark.parametrize(
    ("phase", "conditions", "expected"),
    [
        ("", (), Disks(provisioning=True)),
        ("Pending", (), Disks(provisioning=True)),
        ("ImportScheduled", (), Disks(provisioning=True)),
        ("ImportInProgress", (), Disks(provisioning=True)),
        ("Succeeded", (), Disks()),
        ("WaitForFirstConsumer", (), Disks()),
        ("PendingPopulation", (), Disks()),
        ("Failed", (), Disks(failed=True)),
        ("ImportInProgress", (ERROR,), Disks(failed=True, provisioning=True)),
        ("Pending", (QUOTA,), Disks(failed=True, provisioning=True)),
    ],
)
def test_the_state_of_a_disk_follows_its_data_volume(phase, conditions, expected):
    one = vm(volumes=(ROOT,))
    assert disks(one, {"root": data_volume("root", phase, *conditions)}, {}) == expected


def test_unused_data_volumes_are_ignored():
    one = vm(volumes=(DATA,), templates=(TEMPLATE,))
    assert disks(one, {"root": data_volume("root", "Failed")}, {}) == Disks()


@pytest.mark.parametrize(
    ("phase", "unbound"), [("Bound", False), ("Pending", True), ("Lost", True)]
)
def test_the_state_of_a_disk_follows_its_claim(phase, unbound):
    one = vm(volumes=(DATA,))
    assert disks(one, {}, {"data": claim("data", phase)}) == Disks(unbound=unbound)
    assert disks(one, {}, {}) == Disks()


def test_only_referenced_claims_and_data_volumes_count():
    assert names(vm(volumes=(ROOT, DATA), templates=(TEMPLATE,))) == {"root", "data"}
    assert names(vm()) == set()


def test_missing_data_volumes_are_created():
    one = vm(templates=(TEMPLATE,))
    assert [each.metadata.name for each in missing(one, {})] == ["root"]
    assert list(missing(one, {"root": data_volume("root", "Pending")})) == []


def test_an_orphaned_data_volume_is_adopted():
    one = vm(templates=(TEMPLATE,))
    found = data_volume("root", "Succeeded")
    assert list(orphans(one, {"root": found})) == [found]
    assert list(orphans(one, {"root": data_volume("root", "Succeeded", owner="else")})) == []
    assert list(orphans(vm(), {"root": found})) == []


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("Succeeded", True),
        ("WaitForFirstConsumer", True),
        ("ImportInProgress", False),
        ("Failed", False),
    ],
)
def test_a_vmi_is_created_once_its_data_volumes_are_ready(phase, expected):
    one = vm(templates=(TEMPLATE,))
    assert are_ready(one, {"root": data_volume("root", phase)}) is expected
    assert not are_ready(one, {})
    assert are_ready(vm(), {})


def test_a_template_becomes_a_data_volume_of_its_name():
    one = vm(templates=(TEMPLATE,))
    made = made_of(one, one.spec.data_volume_templates[0])
    assert made["spec"] == TEMPLATE["spec"]
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("root", "default")
    assert metadata["labels"] == {"a": "b", "kubevirt.io/created-by": one.metadata.uid}
    assert metadata["annotations"] == {"c": "d", "cdi.kubevirt.io/allowClaimAdoption": "true"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "VirtualMachine",
        one.metadata.uid,
        True,
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"blank": {}}, None),
        ({"pvc": {"name": "golden"}}, ("default", "golden")),
        ({"pvc": {"name": "golden", "namespace": "images"}}, ("images", "golden")),
    ],
)
def test_the_source_claim_of_a_clone(source, expected):
    one = vm(templates=({**TEMPLATE, "spec": {**TEMPLATE["spec"], "source": source}},))
    assert source_claim(one, one.spec.data_volume_templates[0]) == expected
    assert msgspec.to_builtins(one.spec.data_volume_templates[0].spec)["source"] == source


def test_permitted_clones_are_inherited_from_the_vm_only():
    lie = {**TEMPLATE, "metadata": {"name": "root", "annotations": {PERMITTED: "a lie"}}}
    one = vm(templates=(lie,))
    template = one.spec.data_volume_templates[0]
    assert PERMITTED not in made_of(one, template)["metadata"]["annotations"]
    one.metadata.annotations = {PERMITTED: "what is so"}
    assert made_of(one, template)["metadata"]["annotations"][PERMITTED] == "what is so"
