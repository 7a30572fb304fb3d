"""Tests of who may copy claims of other namespaces."""

import json

import pytest
from tests.unit.server.authz.test_authorizer import bind, role, rule, user

from corral.api.kinds.cdi.permitted_clones import PERMITTED
from corral.daemon.component_users import CONTROLLER

CDI = "/apis/cdi.kubevirt.io/v1beta1/namespaces/lab"
VOLUMES = f"{CDI}/datavolumes"
SOURCES = f"{CDI}/datasources"
MACHINES = "/apis/kubevirt.io/v1/namespaces/lab/virtualmachines"
APPLY = {"content-type": "application/apply-patch+yaml"}
DENIED = "User bob has insufficient permissions in clone source namespace golden"


def volume(**source):
    fields = {"source": source} if "pvc" in source else source
    return {"metadata": {"generateName": "copy-"}, "spec": {**fields, "storage": {}}}


def claim(namespace="golden"):
    return {"pvc": {"name": "image", "namespace": namespace}}


def data_source(namespace="golden"):
    return {"metadata": {"generateName": "image-"}, "spec": {"source": claim(namespace)}}


@pytest.fixture
async def bob(ask):
    """May do everything in the namespace ``lab``, and nothing in ``golden``."""
    for name in ("lab", "golden"):
        await ask.create("/api/v1/namespaces", name)
    await role(ask, "all", rule("*", "*", apiGroups=["*"]), namespace="lab")
    await bind(ask, "bobs", "Role", "all", user("bob"), namespace="lab")
    return ask.as_user("bob")


async def allow(ask, resource, group, *, subject=None):
    granted = rule("create", resource, apiGroups=[group])
    await role(ask, "copier", granted, namespace="golden")
    subjects = [subject or user("bob")]
    await bind(ask, "copiers", "Role", "copier", *subjects, namespace="golden")


async def test_claims_of_the_same_namespace_can_be_cloned(bob):
    assert (await bob("POST", VOLUMES, volume(**claim("lab")))).status == 201
    assert (await bob("POST", VOLUMES, volume(pvc={"name": "image"}))).status == 201


@pytest.mark.parametrize(
    ("resource", "group"), [("datavolumes/source", "cdi.kubevirt.io"), ("pods", "")]
)
async def test_a_claim_of_another_namespace_needs_a_right_there(ask, bob, resource, group):
    refused = await bob("POST", VOLUMES, volume(**claim()))
    assert refused.status == 422
    assert refused["message"] == (
        f'admission webhook "datavolume-mutate.cdi.kubevirt.io" denied the request: {DENIED}'
    )
    assert refused["details"]["causes"][0]["field"] == "spec.source.PVC.namespace"
    assert (await ask("POST", VOLUMES, volume(**claim()))).status == 201
    await allow(ask, resource, group)
    assert (await bob("POST", VOLUMES, volume(**claim()))).status == 201


async def test_a_data_source_does_not_bypass_the_check(ask, bob):
    assert DENIED in (await bob("POST", SOURCES, data_source()))["message"]
    mine = await bob("POST", SOURCES, data_source("lab"))
    assert mine.status == 201
    changed = await bob.patch(f"{SOURCES}/{mine.metadata['name']}", {"spec": {"source": claim()}})
    assert DENIED in changed["message"]
    name = (await ask("POST", SOURCES, data_source())).metadata["name"]
    reference = {"kind": "DataSource", "name": name}
    refused = await bob("POST", VOLUMES, volume(sourceRef=reference))
    assert DENIED in refused["message"]
    elsewhere = {"kind": "DataSource", "name": "later", "namespace": "golden"}
    assert DENIED in (await bob("POST", VOLUMES, volume(sourceRef=elsewhere)))["message"]


def naming(other):
    return {"metadata": {"name": "mine"}, "spec": {"source": {"dataSource": {"name": other}}}}


async def test_a_data_source_that_refers_to_another_does_not_bypass_the_check(ask, bob):
    assert (await bob("POST", SOURCES, naming("later"))).status == 201
    later = {"metadata": {"name": "later"}, "spec": {"source": claim()}}
    assert (await ask("POST", SOURCES, later)).status == 201
    reference = {"kind": "DataSource", "name": "mine"}
    assert DENIED in (await bob("POST", VOLUMES, volume(sourceRef=reference)))["message"]
    assert (await ask("POST", VOLUMES, volume(sourceRef=reference))).status == 201


async def test_a_reference_to_a_data_source_counts_as_its_claim(ask, bob):
    later = {"metadata": {"name": "later"}, "spec": {"source": claim()}}
    assert (await ask("POST", SOURCES, later)).status == 201
    path = f"{SOURCES}/mine"
    refused = await bob("POST", SOURCES, naming("later"))
    assert refused.status == 422
    assert DENIED in refused["message"]
    assert refused["details"]["causes"][0]["field"] == "spec.source.dataSource.name"
    empty = {"metadata": {"name": "mine"}, "spec": {"source": {}}}
    assert (await bob("POST", SOURCES, empty)).status == 201
    assert DENIED in (await bob.patch(path, {"spec": naming("later")["spec"]}))["message"]
    put = (await bob("GET", path)).document | {"spec": naming("later")["spec"]}
    assert DENIED in (await bob("PUT", path, put))["message"]
    applied = naming("later") | {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource"}
    assert DENIED in (await bob.patch(f"{path}?fieldManager=f", applied, APPLY))["message"]
    await allow(ask, "datavolumes/source", "cdi.kubevirt.io")
    assert (await bob.patch(path, {"spec": naming("later")["spec"]})).status == 200


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ({}, 201, ""),
        ({"dataSource": {"name": "other"}}, 201, ""),
        (
            {"dataSource": {"name": "other", "namespace": "golden"}},
            422,
            "DataSource cannot reference a DataSource in another namespace",
        ),
        ({"dataSource": {"name": "mine"}}, 422, "DataSource cannot self-reference"),
        ({"dataSource": {"name": ""}}, 422, "Required value: name the DataSource that it means"),
        (
            {"dataSource": {"name": "other"}, "pvc": {"name": "image"}},
            422,
            "DataSource should have one source: multiple sources",
        ),
    ],
)
async def test_sources_of_a_data_source_are_checked(ask, source, status, message):
    await ask.create("/api/v1/namespaces", "lab")
    answer = await ask("POST", SOURCES, {"metadata": {"name": "mine"}, "spec": {"source": source}})
    assert answer.status == status, answer.text
    if message:
        assert message in answer["message"]


def image(labels, name="image"):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    "source",
    [claim(), {"sourceRef": {"kind": "DataSource", "name": "fedora", "namespace": "golden"}}],
)
@pytest.mark.parametrize("policy", ["Reject", "Ignore"])
async def test_inference_from_an_image_needs_the_right_to_clone_it(ask, bob, source, policy):
    """The message is the same whether there is such an image or not."""
    written = machine(**source)
    said = {"inferFromVolume": "root", "inferFromVolumeFailurePolicy": policy}
    written["spec"]["preference"] = said
    answers = [await bob("POST", MACHINES, written)]
    golden = "/apis/cdi.kubevirt.io/v1beta1/namespaces/golden/datasources"
    fedora = {"metadata": {"name": "fedora"}, "spec": {"source": claim()}}
    assert (await ask("POST", golden, fedora)).status == 201
    answers.append(await bob("POST", MACHINES, written))
    claims = "/api/v1/namespaces/golden/persistentvolumeclaims"
    assert (await ask("POST", claims, image({}))).status == 201
    answers.append(await bob("POST", MACHINES, written))
    assert (await ask.patch(f"{claims}/image", NONE)).status == 200
    answers.append(await bob("POST", MACHINES, written))
    assert {(each.status, each["message"]) for each in answers} == {
        (answers[0].status, answers[0]["message"])
    }
    assert DENIED in answers[0]["message"]
    assert answers[0].status == 422
    made = await ask("POST", MACHINES, written)
    assert made["spec"]["preference"]["name"] == "none"


POOLS = "/apis/pool.kubevirt.io/v1beta1/namespaces/lab/virtualmachinepools"


def of_machines(spec):
    """A pool of such machines."""
    labels = {"app": "vm"}
    spec["template"]["metadata"] = {"labels": labels}
    return {
        "metadata": {"generateName": "vms-"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "virtualMachineTemplate": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


NONE = {"metadata": {"labels": {"instancetype.kubevirt.io/default-preference": "none"}}}


async def test_a_volume_with_two_sources_does_not_bypass_the_check_of_inference(ask, bob):
    """A DataSource of bob's own does not lead away from the claim beside it."""
    mine = {"metadata": {"name": "mine"}, "spec": {"source": claim("lab")}}
    assert (await bob("POST", SOURCES, mine)).status == 201
    spec = {"source": claim(), "sourceRef": {"kind": "DataSource", "name": "mine"}}
    written = machine(**spec)
    written["spec"]["preference"] = {"inferFromVolume": "root"}
    claims = "/api/v1/namespaces/golden/persistentvolumeclaims"
    answers = [await bob("POST", MACHINES, written)]
    assert (await ask("POST", claims, image(NONE["metadata"]["labels"]))).status == 201
    answers.append(await bob("POST", MACHINES, written))
    assert [DENIED in each["message"] for each in answers] == [True, True]
    both = "Data volume should have either Source or SourceRef"
    for path, document in (
        (MACHINES, written),
        (POOLS, of_machines(written["spec"])),
        (VOLUMES, {"metadata": {"name": "both"}, "spec": {**spec, "storage": {}}}),
    ):
        refused = await ask("POST", path, document)
        assert refused.status == 422
        assert both in refused["message"]


@pytest.mark.parametrize("named", ["pvc", "sourceRef"])
@pytest.mark.parametrize(
    ("path", "written"),
    [(MACHINES, lambda made: made), (POOLS, lambda made: of_machines(made["spec"]))],
)
async def test_inference_from_data_volumes_of_others_needs_the_right_to_clone(
    ask, bob, path, written, named
):
    """The author needs the right to that image; the DataVolume's author was checked before."""
    fedora = {"metadata": {"name": "fedora"}, "spec": {"source": claim()}}
    assert (await ask("POST", SOURCES, fedora)).status == 201
    reference = {"sourceRef": {"kind": "DataSource", "name": "fedora"}}
    made = volume(**(claim() if named == "pvc" else reference))
    made["metadata"] = {"name": "theirs"}
    assert (await ask("POST", VOLUMES, made)).status == 201
    plain = machine()["spec"]
    del plain["dataVolumeTemplates"]
    plain["template"]["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": "theirs"}}]
    used = await bob("POST", path, written({"metadata": {"generateName": "vm-"}, "spec": plain}))
    assert used.status == 201, used.text
    plain["preference"] = {"inferFromVolume": "root"}
    document = written({"metadata": {"generateName": "vm-"}, "spec": plain})
    answers = [await bob("POST", path, document)]
    claims = "/api/v1/namespaces/golden/persistentvolumeclaims"
    assert (await ask("POST", claims, image({}))).status == 201
    answers.append(await bob("POST", path, document))
    assert (await ask.patch(f"{claims}/image", NONE)).status == 200
    answers.append(await bob("POST", path, document))
    assert {(each.status, each["message"]) for each in answers} == {(422, answers[0]["message"])}
    assert DENIED in answers[0]["message"]
    one = f"{path}/{used.metadata['name']}"
    assert DENIED in (await bob.patch(one, {"spec": document["spec"]}))["message"]
    made = await ask("POST", path, document)
    assert made.status == 201, made.text
    one = f"{path}/{made.metadata['name']}"
    assert (await bob.patch(one, {"metadata": {"labels": {"a": "b"}}})).status == 200
    await allow(ask, "datavolumes/source", "cdi.kubevirt.io")
    assert (await bob("POST", path, document)).status == 201


async def test_inference_from_templates_of_others_needs_the_right_to_clone(ask, bob):
    made = await ask("POST", MACHINES, machine(**claim()))
    path = f"{MACHINES}/{made.metadata['name']}"
    change = {"spec": {"preference": {"inferFromVolume": "root"}}}
    refused = await bob.patch(path, change)
    assert refused.status == 422
    assert DENIED in refused["message"]
    assert (await bob.patch(path, {"spec": {"running": None}})).status == 200


def machine(**source):
    template = {"metadata": {"name": "root"}, "spec": volume(**source)["spec"]}
    devices = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    return {
        "metadata": {"generateName": "vm-"},
        "spec": {
            "runStrategy": "Halted",
            "dataVolumeTemplates": [template],
            "template": {
                "spec": {
                    "domain": {"devices": devices, "resources": {"requests": {"memory": "64M"}}},
                    "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
                }
            },
        },
    }


async def test_a_vm_template_does_not_bypass_the_check(ask, bob):
    refused = await bob("POST", MACHINES, machine(**claim()))
    assert refused["message"] == (
        'admission webhook "virtualmachine-validator.kubevirt.io" denied the request: '
        f"Authorization failed, message is: {DENIED}"
    )
    made = await ask("POST", MACHINES, machine(**claim()))
    assert made.status == 201
    path = f"{MACHINES}/{made.metadata['name']}"
    assert (await bob.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_a_right_of_the_default_service_account_is_enough(ask, bob):
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "lab"}
    await allow(ask, "datavolumes/source", "cdi.kubevirt.io", subject=account)
    assert (await bob("POST", MACHINES, machine(**claim()))).status == 201


async def test_a_permitted_reference_does_not_permit_its_claim_by_name(ask, bob):
    """Nobody's rights to what DataSources mean today were checked when the VM was written."""
    mine = {"metadata": {"name": "mine"}, "spec": {"source": {}}}
    assert (await bob("POST", SOURCES, mine)).status == 201
    written = machine(sourceRef={"kind": "DataSource", "name": "mine"})
    made = await bob("POST", MACHINES, written)
    assert made.status == 201, made.text
    assert (await ask.patch(f"{SOURCES}/mine", {"spec": {"source": claim()}})).status == 200
    path = f"{MACHINES}/{made.metadata['name']}"
    assert (await bob.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
    templates = machine(**claim())["spec"]["dataVolumeTemplates"]
    change = {"spec": {"dataVolumeTemplates": templates}}
    refused = await bob.patch(path, change)
    assert refused.status == 422
    assert DENIED in refused["message"]
    put = made.document | {"spec": made["spec"] | change["spec"]}
    put["metadata"]["resourceVersion"] = (await bob("GET", path)).metadata["resourceVersion"]
    assert DENIED in (await bob("PUT", path, put))["message"]


async def test_a_permitted_data_source_does_not_permit_its_claim_by_name(ask, bob):
    assert (await bob("POST", SOURCES, naming("later"))).status == 201
    later = {"metadata": {"name": "later"}, "spec": {"source": claim()}}
    assert (await ask("POST", SOURCES, later)).status == 201
    path = f"{SOURCES}/mine"
    assert (await bob.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
    refused = await bob.patch(path, {"spec": {"source": {"dataSource": None, **claim()}}})
    assert DENIED in refused["message"]


def permitted(answer):
    """What is written down that may be copied."""
    return json.loads((answer.metadata.get("annotations") or {}).get(PERMITTED, "{}"))


REFERENCE = {"kind": "DataSource", "name": "mine"}
OTHERS = {"pvc": {"name": "image", "namespace": "golden"}}


async def means(ask, name="mine", **source):
    document = {"metadata": {"name": name}, "spec": {"source": source}}
    assert (await ask("POST", SOURCES, document)).status == 201


@pytest.mark.parametrize(("path", "written"), [(VOLUMES, volume), (MACHINES, machine)])
async def test_permitted_clones_are_recorded(ask, bob, path, written):
    await means(ask, **OTHERS)
    made = await ask("POST", path, written(sourceRef=REFERENCE))
    assert permitted(made) == {"lab/mine": "golden/*"}
    named = rule("create", "datavolumes/source", apiGroups=["cdi.kubevirt.io"])
    await role(ask, "copier", named | {"resourceNames": ["image"]}, namespace="golden")
    await bind(ask, "copiers", "Role", "copier", user("bob"), namespace="golden")
    made = await bob("POST", path, written(sourceRef=REFERENCE))
    assert permitted(made) == {"lab/mine": "golden/image"}
    one = f"{path}/{made.metadata['name']}"
    for who in (ask, bob, ask.as_user(CONTROLLER.name)):
        patched = await who.patch(one, {"metadata": {"labels": {"by": who.user.name[:4]}}})
        assert permitted(patched) == {"lab/mine": "golden/image"}


@pytest.mark.parametrize(("path", "written"), [(VOLUMES, volume), (MACHINES, machine)])
async def test_clients_cannot_write_the_record_of_permitted_clones(ask, bob, path, written):
    await means(ask)
    lie = {PERMITTED: json.dumps({"lab/mine": "golden/*"})}
    document = written(sourceRef=REFERENCE)
    document["metadata"] = {"name": "one", "annotations": lie}
    made = await bob("POST", path, document)
    assert made.status == 201, made.text
    assert permitted(made) == {}
    one = f"{path}/one"
    said = {"metadata": {"annotations": lie}}
    add = [{"op": "add", "path": "/metadata/annotations", "value": lie}]
    assert permitted(await bob.patch(one, said)) == {}
    json_patch = {"content-type": "application/json-patch+json"}
    assert permitted(await bob.patch(one, add, json_patch)) == {}
    put = (await bob("GET", one)).document
    put["metadata"]["annotations"] = lie
    answer = await bob("PUT", one, put)
    assert answer.status == 200
    assert permitted(answer) == {}
    applied = {name: put[name] for name in ("apiVersion", "kind")} | said
    answer = await bob.patch(f"{one}?fieldManager=f&force=true", applied, APPLY)
    assert answer.status == 200, answer.text
    assert permitted(answer) == {}
    assert permitted(await bob("GET", one)) == {}


async def test_an_unresolved_reference_permits_nothing_later(ask, bob):
    """Also where somebody who may copy the claim by then changes something else."""
    await means(ask)
    made = await bob("POST", MACHINES, machine(sourceRef=REFERENCE))
    assert (await ask.patch(f"{SOURCES}/mine", {"spec": {"source": OTHERS}})).status == 200
    path = f"{MACHINES}/{made.metadata['name']}"
    patched = await ask.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert permitted(patched) == {}
    second = {"metadata": {"name": "anew"}, "spec": made["spec"]["dataVolumeTemplates"][0]["spec"]}
    volumes = [{"name": "root", "dataVolume": {"name": "anew"}}]
    spec = {"dataVolumeTemplates": [second], "template": {"spec": {"volumes": volumes}}}
    patched = await ask.patch(path, {"spec": spec})
    assert permitted(patched) == {"lab/mine": "golden/*"}, patched.text


async def test_a_right_to_the_namespace_permits_renewed_images(ask, bob):
    await allow(ask, "datavolumes/source", "cdi.kubevirt.io")
    elsewhere = {"kind": "DataSource", "name": "later", "namespace": "golden"}
    made = await bob("POST", VOLUMES, volume(sourceRef=elsewhere))
    assert permitted(made) == {"golden/later": "golden/*"}


async def test_controllers_pass_on_permitted_clones_of_the_author(ask, bob):
    await means(ask, **OTHERS)
    controller = ask.as_user(CONTROLLER.name)
    document = volume(sourceRef=REFERENCE)
    assert permitted(await controller("POST", VOLUMES, document)) == {}
    record = {"lab/mine": "golden/image"}
    document["metadata"]["annotations"] = {PERMITTED: json.dumps(record)}
    assert permitted(await controller("POST", VOLUMES, document)) == record
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "lab"}
    await allow(ask, "datavolumes/source", "cdi.kubevirt.io", subject=account)
    made = await controller("POST", VOLUMES, volume(sourceRef=REFERENCE))
    assert permitted(made) == {"lab/mine": "golden/*"}
