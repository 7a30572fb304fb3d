"""What a VirtualMachine of a pool looks like, and which of its references are numbered."""

import copy

import msgspec
import pytest
from tests.unit.controllers.pool.make import LABELS, pool, vm

from corral.api.kinds.cdi.permitted_clones import PERMITTED
from corral.api.kinds.kubevirt.pool import FINALIZER, REVISION_LABEL
from corral.api.kinds.vmi.saved_memory import RESTORE_FROM
from corral.controllers.pool.vm_template import new_vm, update

DATA = {"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}}}
DOMAIN = {"domain": {"devices": {}}}


def template(*volumes, templates=(DATA,), labels=LABELS, annotations=None):
    named = [{"name": f"v{index}", **copy.deepcopy(each)} for index, each in enumerate(volumes)]
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {
        "dataVolumeTemplates": list(templates),
        "template": {"metadata": metadata, "spec": {**DOMAIN, "volumes": named}},
    }


def test_metadata_is_that_of_the_template_and_of_the_pool():
    one = pool()
    document = new_vm(one, "web-4", "web-9")
    assert document["metadata"] == {
        "name": "web-4",
        "namespace": "default",
        "labels": {**LABELS, REVISION_LABEL: "web-9"},
        "annotations": {},
        "finalizers": [FINALIZER],
        "ownerReferences": [
            {
                "apiVersion": "pool.kubevirt.io/v1beta1",
                "kind": "VirtualMachinePool",
                "name": "web",
                "uid": "uid-web",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    labels = document["spec"]["template"]["metadata"]["labels"]
    assert labels == {**LABELS, REVISION_LABEL: "web-9"}


def test_name_and_finalizers_of_the_template_are_ignored():
    one = pool()
    metadata = one.spec.virtual_machine_template.metadata
    metadata.name, metadata.generate_name = "mine", "mine-"
    metadata.finalizers = ["example.com/mine"]
    metadata.annotations = {"example.com/note": "kept"}
    made = new_vm(one, "web-0", "web-1")["metadata"]
    assert (made["name"], made["finalizers"]) == ("web-0", [FINALIZER])
    assert "generateName" not in made
    assert made["annotations"] == {"example.com/note": "kept"}


def test_the_pool_object_is_not_modified():
    one = pool(template=template({"dataVolume": {"name": "data"}}))
    before = msgspec.json.encode(one)
    new_vm(one, "web-1", "web-1")
    assert msgspec.json.encode(one) == before


BOTH = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}


@pytest.mark.parametrize(
    ("volume", "switches", "expected"),
    [
        ({"dataVolume": {"name": "data"}}, None, {"dataVolume": {"name": "data-7"}}),
        ({"dataVolume": {"name": "other"}}, BOTH, {"dataVolume": {"name": "other"}}),
        (
            {"persistentVolumeClaim": {"claimName": "data"}},
            None,
            {"persistentVolumeClaim": {"claimName": "data-7"}},
        ),
        (
            {"persistentVolumeClaim": {"claimName": "shared"}},
            BOTH,
            {"persistentVolumeClaim": {"claimName": "shared"}},
        ),
        ({"configMap": {"name": "conf"}}, None, {"configMap": {"name": "conf"}}),
        (
            {"configMap": {"name": "conf"}},
            {"appendIndexToConfigMapRefs": True},
            {"configMap": {"name": "conf-7"}},
        ),
        (
            {"configMap": {"name": "conf"}},
            {"appendIndexToSecretRefs": True},
            {"configMap": {"name": "conf"}},
        ),
        ({"secret": {"secretName": "key"}}, None, {"secret": {"secretName": "key"}}),
        (
            {"secret": {"secretName": "key"}},
            {"appendIndexToSecretRefs": True},
            {"secret": {"secretName": "key-7"}},
        ),
        (
            {"secret": {"secretName": "key"}},
            {"appendIndexToConfigMapRefs": True},
            {"secret": {"secretName": "key"}},
        ),
        (
            {
                "cloudInitNoCloud": {
                    "secretRef": {"name": "user"},
                    "networkDataSecretRef": {"name": "net"},
                }
            },
            {"appendIndexToSecretRefs": True},
            {
                "cloudInitNoCloud": {
                    "secretRef": {"name": "user-7"},
                    "networkDataSecretRef": {"name": "net-7"},
                }
            },
        ),
        (
            {"cloudInitConfigDrive": {"secretRef": {"name": "user"}}},
            {"appendIndexToSecretRefs": True},
            {"cloudInitConfigDrive": {"secretRef": {"name": "user-7"}}},
        ),
        (
            {"cloudInitConfigDrive": {"secretRef": {"name": "user"}}},
            None,
            {"cloudInitConfigDrive": {"secretRef": {"name": "user"}}},
        ),
        ({"sysprep": {"secret": {"name": "key"}}}, BOTH, {"sysprep": {"secret": {"name": "key"}}}),
        (
            {"serviceAccount": {"serviceAccountName": "me"}},
            BOTH,
            {"serviceAccount": {"serviceAccountName": "me"}},
        ),
    ],
)
def test_references_get_the_ordinal_if_configured(volume, switches, expected):
    more = {"nameGeneration": switches} if switches is not None else {}
    made = new_vm(pool(template=template(volume), **more), "web-7", "web-1")
    [found] = made["spec"]["template"]["spec"]["volumes"]
    assert found == {"name": "v0", **expected}
    [data] = made["spec"]["dataVolumeTemplates"]
    assert data["metadata"]["name"] == "data-7"


def test_references_of_credentials_get_no_ordinal():
    credentials = [
        {
            "sshPublicKey": {
                "source": {"secret": {"secretName": "keys"}},
                "propagationMethod": {"noCloud": {}},
            }
        }
    ]
    one = pool(template={"template": {"spec": {**DOMAIN, "accessCredentials": credentials}}})
    one.spec.name_generation = msgspec.convert(
        BOTH, type(pool(nameGeneration={}).spec.name_generation)
    )
    made = new_vm(one, "web-3", "web-1")
    assert made["spec"]["template"]["spec"]["accessCredentials"] == credentials


def test_annotations_of_the_vmi_name_the_claim_of_saved_memory():
    made = new_vm(pool(), "web-0", "web-1", restore_annotations={RESTORE_FROM: "web-0-memory"})
    annotations = made["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {RESTORE_FROM: "web-0-memory"}


def patched(one, of) -> dict:
    return {each["path"]: each for each in update(of, one, "web-2")}


def test_an_update_replaces_labels_annotations_and_spec_of_the_same_virtual_machine():
    one = pool(template=template({"dataVolume": {"name": "data"}}))
    old = vm(one, 5, labels={"mine": "x"}, annotations={"note": "y"})
    change = patched(one, old)
    assert change["/metadata/uid"] == {
        "op": "test",
        "path": "/metadata/uid",
        "value": old.metadata.uid,
    }
    assert change["/metadata/labels"]["value"] == {**LABELS, REVISION_LABEL: "web-2"}
    assert change["/metadata/annotations"]["value"] == {}
    spec = change["/spec"]["value"]
    assert spec["dataVolumeTemplates"][0]["metadata"]["name"] == "data-5"
    assert spec["template"]["spec"]["volumes"][0]["dataVolume"]["name"] == "data-5"
    assert spec["template"]["metadata"]["labels"][REVISION_LABEL] == "web-2"


def given(**domain):
    return {
        "metadata": {"annotations": {"kubevirt.io/pci-topology-version": "v3", "mine": "x"}},
        "spec": {
            "architecture": "amd64",
            "domain": {
                "devices": {},
                "firmware": {"uuid": "u-1", "serial": "s-1"},
                "machine": {"type": "q35"},
                **domain,
            },
        },
    }


def test_an_update_keeps_generated_fields_of_a_vm():
    one = pool()
    spec = patched(one, vm(one, template=given()))["/spec"]["value"]["template"]
    assert spec["spec"]["domain"]["firmware"] == {"uuid": "u-1", "serial": "s-1"}
    assert spec["spec"]["domain"]["machine"] == {"type": "q35"}
    assert spec["spec"]["architecture"] == "amd64"
    assert spec["metadata"]["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}


def test_an_update_sets_fields_that_the_template_has():
    domain = {"devices": {}, "firmware": {"uuid": "u-2"}, "machine": {"type": "pc"}}
    one = pool(template={"template": {"spec": {"domain": domain}}})
    spec = patched(one, vm(one, template=given()))["/spec"]["value"]["template"]["spec"]
    assert spec["domain"]["firmware"] == {"uuid": "u-2", "serial": "s-1"}
    assert spec["domain"]["machine"] == {"type": "pc"}


def test_permitted_clones_are_inherited_from_the_pool_only():
    one = pool()
    one.spec.virtual_machine_template.metadata.annotations = {PERMITTED: "a lie"}
    assert new_vm(one, "web-4", "web-9")["metadata"]["annotations"] == {}
    one.metadata.annotations = {PERMITTED: "what is so"}
    annotations = {PERMITTED: "what is so"}
    assert new_vm(one, "web-4", "web-9")["metadata"]["annotations"] == annotations
    assert update(vm(one), one, "web-9")[2]["value"] == annotations
