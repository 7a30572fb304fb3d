"""What VirtualMachines refer to, as the server follows it."""

import pytest
from tests.unit.server.conftest import MERGE, VMS, Asker

from corral.server.app import ApiServer
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


async def test_a_reference_gets_the_default_kind(ask):
    document = vm(instancetype={"name": "small"}, preference={"name": "linux"})
    answer = await ask("POST", VMS, document)
    assert answer.status == 201, answer.text
    spec = answer["spec"]
    assert spec["instancetype"] == {"name": "small", "kind": "VirtualMachineClusterInstancetype"}
    assert spec["preference"] == {"name": "linux", "kind": "VirtualMachineClusterPreference"}
    assert "cpu" not in spec["template"]["spec"]["domain"], "the template stays as it was written"


@pytest.mark.parametrize(
    "missing",
    [
        {"instancetype": {"name": "none", "kind": "virtualmachineinstancetype"}},
        {"preference": {"name": "none"}},
        {"preference": {"name": "linux", "kind": "Pod"}},
        {"instancetype": {"name": "small", "revisionName": "none"}},
    ],
)
async def test_a_missing_instance_type_is_accepted(ask, missing):
    answer = await ask("POST", VMS, vm(**missing))
    assert answer.status == 201, answer.text
    machine = answer["spec"]["template"]["spec"]
    assert (machine["architecture"], machine["domain"]["machine"]["type"]) == ("amd64", "q35")


@pytest.mark.parametrize(
    ("said", "field", "message"),
    [
        (
            {},
            "spec.instancetype",
            "Either Name or InferFromVolume should be provided within the InstancetypeMatcher",
        ),
        (
            {"inferFromVolume": "root", "name": "small"},
            "spec.instancetype.name",
            "Name already set, should be cleared before setting inferFromVolume",
        ),
        (
            {"inferFromVolume": "root", "kind": "VirtualMachineInstancetype"},
            "spec.instancetype.kind",
            "Kind already set, should be cleared before setting inferFromVolume",
        ),
        (
            {"inferFromVolume": "root", "inferFromVolumeFailurePolicy": "Hope"},
            "spec.instancetype.inferFromVolumeFailurePolicy",
            "Invalid value 'Hope' for InferFromVolumeFailurePolicy",
        ),
    ],
)
async def test_an_invalid_reference_is_rejected(ask, said, field, message):
    assert await causes(ask, vm(instancetype=said)) == {(field, message)}


async def test_a_changed_name_with_the_old_revision_is_rejected(ask):
    said = {"name": "small", "revisionName": "kept"}
    assert (await ask("POST", VMS, vm(instancetype=said))).status == 201
    change = {"spec": {"instancetype": {"name": "large"}}}
    answer = await ask("PATCH", f"{VMS}/vm", change, headers=MERGE)
    assert answer.status == 422
    (cause,) = answer["details"]["causes"]
    assert cause["field"] == "spec.instancetype.revisionName"
    message = "the Matcher Name has been updated without updating the RevisionName"
    assert cause["message"] == message


async def test_requirements_are_checked_after_all_defaults(ask):
    path = f"{GROUP}/virtualmachineclusterpreferences"
    needs = {"requirements": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}}}
    await ask("POST", path, {"metadata": {"name": "modest"}, "spec": needs})
    modest = {"preference": {"name": "modest"}}
    found = await causes(ask, vm(**modest))
    field, message = "spec.template.spec.domain.memory", "insufficient Memory resources of 0"
    why = f"{message} provided by VirtualMachine, preference requires 64Mi"
    assert found == {(field, f"failure checking preference requirements: {why}")}
    requested = {"resources": {"requests": {"memory": "64Mi"}}}
    answer = await ask("POST", VMS, vm(requested, **modest))
    assert answer.status == 201, answer.text


async def test_a_preference_sets_persistent_fields_at_once(ask):
    path = f"{GROUP}/virtualmachineclusterpreferences"
    likes = {
        "machine": {"preferredMachineType": "pc-q35-rhel9.4.0"},
        "volumes": {"preferredStorageClassName": "fast"},
    }
    await ask("POST", path, {"metadata": {"name": "likes"}, "spec": likes})
    answer = await ask(
        "POST",
        VMS,
        vm(
            preference={"name": "likes"},
            volumes=[{"name": "root", "dataVolume": {"name": "copy"}}],
            dataVolumeTemplates=[
                {"metadata": {"name": "copy"}, "spec": {"source": {"blank": {}}, "pvc": CLAIM}}
            ],
        ),
    )
    assert answer.status == 201, answer.text
    spec = answer["spec"]
    assert spec["template"]["spec"]["domain"]["machine"]["type"] == "pc-q35-rhel9.4.0"
    assert spec["dataVolumeTemplates"][0]["spec"]["pvc"]["storageClassName"] == "fast"


async def test_a_template_must_not_conflict_with_the_instance_type(ask):
    document = vm({"memory": {"guest": "1Gi"}}, instancetype={"name": "small"})
    field = "spec.template.spec.domain.memory.guest"
    message = f"VM field(s) {field} conflicts with selected instance type"
    assert await causes(ask, document) == {(field, message)}


async def test_the_expanded_spec_must_be_valid(ask):
    path = f"{GROUP}/virtualmachineclusterpreferences"
    firmware = {"firmware": {"preferredEfi": {}}}
    await ask("POST", path, {"metadata": {"name": "windows"}, "spec": firmware})
    found = await causes(ask, vm(preference={"name": "windows"}))
    assert {field for field, _ in found} == {"spec.template.spec.domain.firmware.bootloader.efi"}


async def test_a_spec_is_expanded(ask):
    path = f"{VMS.replace('kubevirt.io', 'subresources.kubevirt.io')}/vm/expand-spec"
    await ask("POST", VMS, vm(instancetype={"name": "small"}, preference={"name": "linux"}))
    answer = await ask("GET", path)
    assert answer.status == 200, answer.text
    domain = answer["spec"]["template"]["spec"]["domain"]
    assert domain["memory"] == {"guest": "128Mi"}
    assert domain["cpu"] == {"sockets": 1, "cores": 1, "threads": 1}
    assert domain["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]
    assert not answer["spec"].keys() & {"instancetype", "preference"}
    assert (await ask("PUT", path)).status == 405


async def test_instance_types_are_inferred_from_a_volume(ask):
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    await ask("POST", claims, {"metadata": {"name": "disk", "labels": LABELS}, "spec": CLAIM})
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    guess = {"inferFromVolume": "root", "inferFromVolumeFailurePolicy": "Ignore"}
    document = vm({"memory": {"guest": "1Gi"}}, volumes=volumes, instancetype=guess)
    answer = await ask("POST", VMS, document)
    assert answer.status == 201, answer.text
    assert "memory" not in answer["spec"]["template"]["spec"]["domain"]
    resolved = {"name": "small", "kind": "VirtualMachineInstancetype"}
    assert answer["spec"]["instancetype"] == resolved


def of_template(**spec):
    template = {"metadata": {"name": "copy"}, "spec": {"pvc": CLAIM, **spec}}
    return {
        "volumes": [{"name": "root", "dataVolume": {"name": "copy"}}],
        "dataVolumeTemplates": [template],
    }


CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SOURCES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datasources"
GOLDEN = {"source": {"pvc": {"namespace": "default", "name": "golden"}}}


@pytest.mark.parametrize("named", ["fedora", "newest"])
@pytest.mark.parametrize("labelled", ["claim", "source"])
async def test_instance_types_are_inferred_from_a_golden_image(ask, labelled, named):
    metadata = {"labels": LABELS}
    of_claim, of_source = (metadata, {}) if labelled == "claim" else ({}, metadata)
    await ask("POST", CLAIMS, {"metadata": {"name": "golden", **of_claim}, "spec": CLAIM})
    source = {"metadata": {"name": "fedora", **of_source}, "spec": GOLDEN}
    assert (await ask("POST", SOURCES, source)).status == 201
    newest = {"source": {"dataSource": {"name": "fedora"}}}
    await ask("POST", SOURCES, {"metadata": {"name": "newest"}, "spec": newest})
    made = of_template(sourceRef={"kind": "DataSource", "name": named})
    answer = await ask("POST", VMS, vm(instancetype={"inferFromVolume": "root"}, **made))
    assert answer.status == 201, answer.text
    resolved = {"name": "small", "kind": "VirtualMachineInstancetype"}
    assert answer["spec"]["instancetype"] == resolved


@pytest.mark.parametrize(
    ("spec", "why", "ignored"),
    [
        (of_template(**GOLDEN), 'persistentvolumeclaims "golden" not found', False),
        (
            of_template(sourceRef={"kind": "DataSource", "name": "fedora"}),
            'datasources.cdi.kubevirt.io "fedora" not found',
            False,
        ),
        ({}, "unable to find volume root to infer defaults", False),
        (
            of_template(source={"blank": {}}),
            "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported",
            True,
        ),
        (
            {"volumes": [{"name": "root", "containerDisk": {"image": "demo"}}]},
            "unable to infer defaults from volume root as type is not supported",
            True,
        ),
        (
            {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "silent"}}]},
            (
                "unable to find required instancetype.kubevirt.io/default-preference label on "
                "the volume"
            ),
            True,
        ),
    ],
)
async def test_a_failed_inference_has_kubevirts_message(ask, spec, why, ignored):
    await ask("POST", CLAIMS, {"metadata": {"name": "silent"}, "spec": CLAIM})
    said = {"inferFromVolume": "root"}
    answer = await ask("POST", VMS, vm(preference=said, **spec))
    denied = 'admission webhook "virtualmachines-mutator.kubevirt.io" denied the request: '
    assert (answer.status, answer["message"]) == (400, denied + why)
    said["inferFromVolumeFailurePolicy"] = "Ignore"
    answer = await ask("POST", VMS, vm(preference=said, **spec))
    assert answer.status == (201 if ignored else 400), answer.text
    if ignored:
        assert "preference" not in answer["spec"]


async def test_instance_types_are_inferred_from_a_data_volume(ask):
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


async def test_an_update_with_a_deleted_instance_type_is_accepted(ask):
    assert (await ask("POST", VMS, vm(instancetype={"name": "small"}))).status == 201
    gone = await ask("DELETE", f"{GROUP}/virtualmachineclusterinstancetypes/small")
    assert gone.status == 200
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await ask("PATCH", f"{VMS}/vm", label, headers=MERGE)).status == 200
    change = {"spec": {"runStrategy": "Manual"}}
    assert (await ask("PATCH", f"{VMS}/vm", change, headers=MERGE)).status == 200


async def test_an_instance_type_may_have_no_cpu_count(ask):
    path = f"{GROUP}/virtualmachineclusterinstancetypes"
    none = {"cpu": {"guest": 0}, "memory": {"guest": "64Mi"}}
    assert (await ask("POST", path, {"metadata": {"name": "none"}, "spec": none})).status == 201
    answer = await ask("POST", VMS, vm(instancetype={"name": "none"}))
    assert answer.status == 201, answer.text


EXPAND = "/apis/subresources.kubevirt.io/v1/namespaces/default/expand-vm-spec"


async def test_expand_vm_spec_returns_the_expanded_vm(ask):
    answer = await ask("PUT", EXPAND, vm(instancetype={"name": "small"}))
    assert answer.status == 200, answer.text
    assert answer["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "128Mi"}
    assert "instancetype" not in answer["spec"]
    assert answer["metadata"] == {"name": "vm", "namespace": "default"}
    assert (answer["apiVersion"], answer["kind"]) == ("kubevirt.io/v1", "VirtualMachine")
    assert (await ask("GET", f"{VMS}/vm")).status == 404, "nothing is stored"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            vm(instancetype={"name": "none"}),
            'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "none" not found',
        ),
        (
            vm({"memory": {"guest": "1Gi"}, "cpu": {"cores": 1}}, instancetype={"name": "small"}),
            (
                "VM field(s) spec.template.spec.domain.cpu.cores, "
                "spec.template.spec.domain.memory.guest conflicts with selected instance type"
            ),
        ),
        ({"spec": {"colour": "red"}}, "Object is not a valid VirtualMachine"),
        (
            {**vm(), "metadata": {"name": "vm", "namespace": "other"}},
            "VM namespace must be empty or default",
        ),
        (
            {**vm(), "kind": "Pod"},
            (
                "Object is not a valid VirtualMachine: it is a Pod of kubevirt.io/v1: "
                "send a VirtualMachine of kubevirt.io/v1 or kubevirt.io/v1alpha3"
            ),
        ),
        (
            {**vm(), "apiVersion": "v1"},
            (
                "Object is not a valid VirtualMachine: it is a VirtualMachine of v1: "
                "send a VirtualMachine of kubevirt.io/v1 or kubevirt.io/v1alpha3"
            ),
        ),
        (
            vm(instancetype={"inferFromVolume": "root"}),
            (
                'spec.instancetype.inferFromVolume: volume "root" is evaluated only when the '
                "VirtualMachine is created: set spec.instancetype.name instead"
            ),
        ),
        (
            vm(preference={"kind": "VirtualMachinePreference"}),
            "spec.preference.name: Required value: it names the preference",
        ),
    ],
)
async def test_expand_vm_spec_rejects_a_vm_that_cannot_be_expanded(ask, document, message):
    answer = await ask("PUT", EXPAND, document)
    assert (answer.status, answer["message"]) == (400, message)


async def test_a_stored_vm_that_cannot_be_expanded_is_an_internal_error(ask):
    assert (await ask("POST", VMS, vm(instancetype={"name": "none"}))).status == 201
    path = f"{VMS.replace('kubevirt.io', 'subresources.kubevirt.io')}/vm/expand-spec"
    answer = await ask("GET", path)
    message = 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "none" not found'
    assert (answer.status, answer["message"]) == (500, f"Internal error occurred: {message}")


async def test_quantities_may_be_unquoted_fractions(ask):
    requests = {"cpu": 0.5, "memory": "64Mi"}
    answer = await ask("POST", VMS, vm({"resources": {"requests": requests}}))
    assert answer.status == 201, answer.text
    stored = answer["spec"]["template"]["spec"]["domain"]["resources"]["requests"]
    assert stored == {"cpu": "500m", "memory": "64Mi"}
    answer = await ask("POST", VMS, vm({"memory": {"guest": True}}))
    assert answer.status == 422
