"""The machine that a VirtualMachine makes, and what is kept of it."""

import msgspec
import pytest
from tests.unit.controllers.vm.make import start, vm

from corral.api.kinds.kubevirt.virtualmachine import FINALIZER, StartFailure
from corral.controllers.vm.vmi_template import may_fork, new_vmi, revision

TEMPLATE = {
    "metadata": {
        "name": "ignored",
        "generateName": "ignored-",
        "labels": {"kubevirt.io/size": "small"},
        "annotations": {"a": "b"},
        "finalizers": ["example.com/ignored"],
    },
}


def test_a_vmi_is_the_template_with_the_name_of_its_vm():
    one = vm(template=TEMPLATE, generation=4)
    made = new_vmi(one)
    assert made["metadata"] == {
        "name": "testvm",
        "namespace": "default",
        "labels": {"kubevirt.io/size": "small"},
        "annotations": {"a": "b", "kubevirt.io/vm-generation": "4"},
        "ownerReferences": [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "name": "testvm",
                "uid": one.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": [FINALIZER],
    }
    assert made["spec"] == msgspec.to_builtins(one.spec.template.spec)
    name = f"revision-start-vm-{one.metadata.uid}-4"
    assert made["status"] == {"virtualMachineRevisionName": name}


def test_the_spec_of_a_start_is_kept_as_a_revision():
    one = vm(template=TEMPLATE, generation=4)
    kept = revision(one)
    assert kept["metadata"]["name"] == new_vmi(one)["status"]["virtualMachineRevisionName"]
    assert kept["metadata"]["ownerReferences"][0]["uid"] == one.metadata.uid
    assert kept["revision"] == 4
    assert msgspec.convert(kept["data"]["spec"], type(one.spec)) == one.spec


def test_a_vm_can_start_paused():
    assert new_vmi(vm(requests=(start(paused="true"),)))["spec"]["startStrategy"] == "Paused"
    assert "startStrategy" not in new_vmi(vm(requests=(start(),)))["spec"]
    assert "startStrategy" not in new_vmi(vm())["spec"]


@pytest.mark.parametrize("annotation", ["corral.dev/start-from", "corral.dev/restore-from"])
def test_a_vmi_with_memory_of_its_own_is_not_given_that_of_a_warm_pool(annotation):
    one = vm(template={"metadata": {"annotations": {annotation: "x"}}})
    assert not may_fork(one, new_vmi(one))
    assert may_fork(vm(), new_vmi(vm()))


def test_a_start_that_is_watched_and_one_after_a_failure_boot():
    paused = vm(requests=(start(paused="true"),))
    assert not may_fork(paused, new_vmi(paused))
    failed = vm()
    failed.status.start_failure = StartFailure(consecutive_fail_count=1)
    assert not may_fork(failed, new_vmi(failed))
