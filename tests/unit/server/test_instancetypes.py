"""What VirtualMachines refer to, as the server follows it."""

import pytest
from tests.unit.server.conftest import MERGE, VMS, Asker

from corral.server import ApiServer
from corral.store import Store

GROUP = "/apis/instancetype.kubevirt.io/v1beta1"
HERE = f"{GROUP}/namespaces/default"
SMALL = {"cpu": {"guest": 1}, "memory": {"guest": "128Mi"}}
CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
LABELS = {
    "instancetype.kubevirt.io/default-instancetype": "small",
    "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
}


@pytest.fixture
async def ask():
    ask = Asker(ApiServer(Store.in_memory()))
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    for path, name, spec in (
        (f"{GROUP}/virtualmachineclusterinstancetypes", "small", SMALL),
        (f"{HERE}/virtualmachineinstancetypes", "small", SMALL),
        (f"{GROUP}/virtualmachineclusterpreferences", "linux", {}),
    ):
        answer = await ask("POST", path, {"metadata": {"name": name}, "spec": spec})
        assert answer.status == 201, answer.text
    yield ask
    await ask.server.store.close()


def vm(domain=None, volumes=(), **spec):
    template = {"spec": {"domain": {"devices": {}, **(domain or {})}, "volumes": list(volumes)}}
    return {
        "metadata": {"name": "vm"},
        "spec": {"runStrategy": "Halted", "template": template, **spec},
    }


async def causes(ask, document):
    answer = await ask("POST", VMS, document)
    assert answer.status == 422, answer.text
    return {(one["field"], one["message"]) for one in answer["details"]["causes"]}


async def test_a_reference_names_its_kind_from_then_on(ask):
    document = vm(instancetype={"name": "small"}, preference={"name": "linux"})
    answer = await ask("POST", VMS, document)
    assert answer.status == 201, answer.text
    spec = answer["spec"]
    assert spec["instancetype"] == {"name": "small", "kind": "VirtualMachineClusterInstancetype"}
    assert spec["preference"] == {"name": "linux", "kind": "VirtualMachineClusterPreference"}
    assert "cpu" not in spec["template"]["spec"]["domain"], "the template stays as it was written"


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("virtualmachineinstancetype", "virtualmachineinstancetypes"),
        ("VirtualMachineClusterInstancetypes", "virtualmachineclusterinstancetypes"),
    ],
)
async def test_what_is_not_there_is_refused(ask, kind, plural):
    told = await causes(ask, vm(instancetype={"name": "none", "kind": kind}))
    missing = f'{plural}.instancetype.kubevirt.io "none" not found'
    assert told == {("spec.instancetype", f"Failure to find instancetype: {missing}")}


async def test_what_is_no_such_kind_is_refused(ask):
    told = await causes(ask, vm(preference={"name": "linux", "kind": "Pod"}))
    unknown = "got unexpected kind in PreferenceMatcher: Pod"
    assert told == {("spec.preference", f"Failure to find preference: {unknown}")}


async def test_a_template_may_not_contradict(ask):
    document = vm({"memory": {"guest": "1Gi"}}, instancetype={"name": "small"})
    field = "spec.template.spec.domain.memory.guest"
    told = f"VM field(s) {field} conflicts with selected instance type"
    assert await causes(ask, document) == {(field, told)}


async def test_what_comes_out_must_be_a_machine(ask):
    path = f"{GROUP}/virtualmachineclusterpreferences"
    firmware = {"firmware": {"preferredEfi": {}}}
    await ask("POST", path, {"metadata": {"name": "windows"}, "spec": firmware})
    told = await causes(ask, vm(preference={"name": "windows"}))
    assert {field for field, _ in told} == {"spec.template.spec.domain.firmware.bootloader.efi"}


async def test_a_spec_is_expanded(ask):
    path = f"{VMS.replace('kubevirt.io', 'subresources.kubevirt.io')}/vm/expand-spec"
    await ask("POST", VMS, vm(instancetype={"name": "small"}, preference={"name": "linux"}))
    answer = await ask("GET", path)
    assert answer.status == 200, answer.text
    domain = answer["spec"]["template"]["spec"]["domain"]
    assert domain["memory"] == {"guest": "128Mi"}
    assert domain["cpu"]["sockets"] == 1
    assert not answer["spec"].keys() & {"instancetype", "preference"}
    assert (await ask("PUT", path)).status == 405


async def test_a_volume_says_what_suits_it(ask):
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    await ask("POST", claims, {"metadata": {"name": "disk", "labels": LABELS}, "spec": CLAIM})
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    guess = {"inferFromVolume": "root", "inferFromVolumeFailurePolicy": "Ignore"}
    document = vm({"memory": {"guest": "1Gi"}}, volumes=volumes, instancetype=guess)
    answer = await ask("POST", VMS, document)
    assert answer.status == 201, answer.text
    assert "memory" not in answer["spec"]["template"]["spec"]["domain"]
    settled = {"name": "small", "kind": "VirtualMachineInstancetype"}
    assert answer["spec"]["instancetype"] == settled


async def test_what_fills_a_volume_says_what_suits_it(ask):
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    await ask("POST", claims, {"metadata": {"name": "golden", "labels": LABELS}, "spec": CLAIM})
    source = {"source": {"pvc": {"namespace": "default", "name": "golden"}}, "pvc": CLAIM}
    answer = await ask(
        "POST",
        VMS,
        vm(
            volumes=[{"name": "root", "dataVolume": {"name": "copy"}}],
            dataVolumeTemplates=[{"metadata": {"name": "copy"}, "spec": source}],
            instancetype={"inferFromVolume": "root"},
        ),
    )
    assert answer.status == 201, answer.text
    assert answer["spec"]["instancetype"]["name"] == "small"


async def test_a_volume_that_says_nothing_is_told_of_or_passed_over(ask):
    volumes = [{"name": "root", "containerDisk": {"image": "demo"}}]
    silent = {"inferFromVolume": "root"}
    ((field, message),) = await causes(ask, vm(volumes=volumes, instancetype=silent))
    assert field == "spec.instancetype"
    assert "unable to find volume root" in message
    silent["inferFromVolumeFailurePolicy"] = "Ignore"
    answer = await ask("POST", VMS, vm(volumes=volumes, instancetype=silent))
    assert answer.status == 201, answer.text
    assert "instancetype" not in answer["spec"]


async def test_a_type_that_went_since_is_no_reason_to_refuse_a_label(ask):
    assert (await ask("POST", VMS, vm(instancetype={"name": "small"}))).status == 201
    gone = await ask("DELETE", f"{GROUP}/virtualmachineclusterinstancetypes/small")
    assert gone.status == 200
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await ask("PATCH", f"{VMS}/vm", label, headers=MERGE)).status == 200
    change = {"spec": {"runStrategy": "Manual"}}
    assert (await ask("PATCH", f"{VMS}/vm", change, headers=MERGE)).status == 422
