"""VirtualMachinePools as targets of warm pools."""

import copy

import msgspec
import pytest

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.kubevirt.vm_defaults import default_new_vm
from corral.api.kinds.vmi.live_update import BOOT_SOCKETS, LiveUpdateConfiguration
from corral.reconcile.pool_target import is_made_from, member_template, obstacle
from corral.reconcile.spares import template_hash

DOMAIN = {
    "memory": {"guest": "64Mi"},
    "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
}
ROOT = {"name": "root", "containerDisk": {"image": "demo"}}
ROOM = LiveUpdateConfiguration()


def vm_spec(spec=None, **more):
    content = {"domain": DOMAIN, "volumes": [ROOT], **(spec or {})}
    return {"template": {"metadata": {"labels": {"app": "web"}}, "spec": content}, **more}


def pool(spec=None, *, vm=None, **more):
    document = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "virtualMachineTemplate": {"spec": vm_spec(spec, **(vm or {}))},
            **more,
        },
    }
    return msgspec.convert(document, VirtualMachinePool)


def virtual_machine(change=None, **more):
    """Return a VirtualMachine of the pool, as it is stored."""
    document = {"metadata": {"name": "web-0", "namespace": "default"}, "spec": vm_spec(**more)}
    document = copy.deepcopy(document)
    default_new_vm(document)
    document["spec"]["template"]["metadata"]["labels"]["revision"] = "web-1"
    if change is not None:
        change(document["spec"]["template"]["spec"])
    return msgspec.convert(document, VirtualMachine)


def test_the_template_has_what_the_vm_controller_adds_and_no_identity():
    template = member_template(pool(), ROOM)
    assert template.spec.domain.firmware.uuid == template.spec.domain.firmware.serial == ""
    assert template.spec.domain.cpu.max_sockets == 4
    assert template.metadata.annotations[BOOT_SOCKETS] == "1"
    assert template_hash(template) == template_hash(member_template(pool(), ROOM))
    assert template_hash(template) != template_hash(member_template(pool(), None))


def test_a_member_is_made_from_the_template_whatever_was_defaulted_in_it():
    assert is_made_from(virtual_machine(), pool())
    assert is_made_from(virtual_machine(), pool(replicas=7))


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["domain"]["memory"].update(guest="96Mi"),
        lambda spec: spec["domain"]["devices"].update(disks=[{"name": "root", "disk": {}}]),
        lambda spec: spec["domain"].pop("memory"),
        lambda spec: spec["volumes"].append({"name": "more", "emptyDisk": {"capacity": "1Mi"}}),
    ],
)
def test_a_changed_member_is_not_made_from_the_template(change):
    assert not is_made_from(virtual_machine(change), pool())


def test_a_member_of_an_instance_type_is_not_made_from_the_template_alone():
    assert not is_made_from(virtual_machine(instancetype={"name": "small"}), pool())


CONFIG = {"name": "config", "configMap": {"name": "settings"}}
SEED = {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}}
TEXT = {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}}


def numbered(volume, switch):
    return pool({"volumes": [ROOT, volume]}, nameGeneration={switch: True})


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (pool(), ""),
        (pool(vm={"preference": {"name": "linux"}}), "spec.virtualMachineTemplate.spec.preference"),
        (
            pool({"volumes": [{"name": "data", "dataVolume": {"name": "data"}}]}),
            'spec.virtualMachineTemplate.spec.template.spec.volumes[0]: the disk of volume "data"',
        ),
        (
            pool({"domain": {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}}}),
            "spec.virtualMachineTemplate.spec.template.spec.domain.devices.interfaces[0]",
        ),
        (pool({"domain": {"devices": {}}}), "spec.domain.devices.interfaces: members get one"),
        (pool({"domain": {"devices": {"autoattachPodInterface": False}}}), ""),
        (numbered(CONFIG, "appendIndexToConfigMapRefs"), 'volumes[1]: volume "config" is another'),
        (numbered(SEED, "appendIndexToSecretRefs"), 'volumes[1]: volume "seed" is another'),
        (numbered(TEXT, "appendIndexToSecretRefs"), ""),
        (numbered(CONFIG, "appendIndexToSecretRefs"), ""),
    ],
)
def test_what_keeps_members_from_a_checkpoint_is_named(of, why):
    found = obstacle(of)
    assert why in found
    assert bool(found) is bool(why)
