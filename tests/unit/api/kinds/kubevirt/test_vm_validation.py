"""VirtualMachines as admission meets them, through the row of their kind."""

import copy
from typing import Any

import pytest

from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.kinds.kubevirt.vm_validation import DEPRECATED_RUNNING
from corral.api.schema import schema_for

PERSON = "kubernetes-admin"
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"


def vm(**fields: Any) -> dict[str, Any]:
    """The user guide's first VirtualMachine, in short."""
    spec: dict[str, Any] = {
        "runStrategy": "Halted",
        "template": {
            "metadata": {"creationTimestamp": None, "labels": {"kubevirt.io/size": "small"}},
            "spec": {
                "domain": {
                    "devices": {"disks": [{"disk": {"bus": "virtio"}, "name": "containerdisk"}]},
                    "resources": {"requests": {"memory": "64M"}},
                },
                "volumes": [
                    {"name": "containerdisk", "containerDisk": {"image": "quay.io/x/y:1"}},
                ],
            },
        },
        **fields,
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "testvm", "namespace": "default"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def messages(
    document: dict[str, Any], old: dict[str, Any] | None = None, user: str = PERSON
) -> Any:
    assert schema_for(VIRTUAL_MACHINE).prune(document) == []
    assert schema_for(VIRTUAL_MACHINE).check(document) == []
    return VIRTUAL_MACHINE.validate(document, old, user)


def causes(document: dict[str, Any], *rest: Any) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in messages(document, *rest).causes]


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure", "Manual", "Halted", "Once"])
def test_every_run_strategy_is_valid_without_warnings(strategy):
    verdict = messages(vm(runStrategy=strategy))
    assert (verdict.causes, verdict.warnings) == ([], [])


@pytest.mark.parametrize("running", [True, False])
def test_running_is_deprecated(running):
    verdict = messages(vm(runStrategy=None, running=running))
    assert (verdict.causes, verdict.warnings) == ([], [DEPRECATED_RUNNING])


def test_components_get_no_warnings():
    assert messages(vm(runStrategy=None, running=True), None, CONTROLLER).warnings == []


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"running": True},
            "spec.running",
            (
                "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, "
                "please use RunStrategy instead"
            ),
        ),
        ({"runStrategy": None}, "spec.running", "RunStrategy must be specified"),
        ({"runStrategy": "Often"}, "spec.runStrategy", "Invalid RunStrategy (Often)"),
        (
            {"runStrategy": "WaitAsReceiver"},
            "spec.runStrategy",
            (
                "Invalid RunStrategy (WaitAsReceiver): DecentralizedLiveMigration feature gate is "
                "not enabled in kubevirt-config"
            ),
        ),
    ],
)
def test_exactly_one_of_running_and_a_valid_run_strategy_is_required(fields, field, message):
    assert causes(vm(**fields)) == [(field, message)]


def test_the_template_is_validated_as_a_vmi():
    document = vm()
    document["spec"]["template"]["spec"]["volumes"][0]["name"] = "other"
    assert [field for field, _ in causes(document)] == [
        "spec.template.spec.domain.devices.disks[0].name"
    ]


def test_reserved_labels_of_the_template_are_for_components():
    document = vm()
    document["spec"]["template"]["metadata"]["labels"]["kubevirt.io/nodeName"] = "n"
    assert causes(document) == [
        (
            "spec.template.metadata.labels",
            "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
        )
    ]
    assert causes(document, None, CONTROLLER) == []


def test_a_terminating_vm_is_not_validated():
    document = vm(runStrategy="Often")
    document["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    assert causes(document) == []


def test_an_unchanged_invalid_spec_can_be_labelled():
    old = vm(runStrategy="Often")
    assert causes(old) != []
    assert causes(copy.deepcopy(old), old) == []
    assert causes(vm(runStrategy="Seldom"), old) != []


# ------------------------------------------------------------ dataVolumeTemplates


def data_volume(name: str = "disk", **spec: Any) -> dict[str, Any]:
    given = {"storage": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}}
    given |= spec
    return {
        "metadata": {"name": name},
        "spec": {name: value for name, value in given.items() if value is not None},
    }


def with_data_volumes(*templates: dict[str, Any], use: tuple[str, ...] = ("disk",)) -> Any:
    document = vm(dataVolumeTemplates=list(templates))
    spec = document["spec"]["template"]["spec"]
    for index, name in enumerate(use):
        spec["volumes"].append({"name": f"data{index}", "dataVolume": {"name": name}})
        spec["domain"]["devices"]["disks"].append({"name": f"data{index}", "disk": {}})
    return document


def of_templates(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [each for each in causes(document) if each[0].startswith("spec.dataVolumeTemplate")]


def test_a_used_data_volume_template_is_valid():
    assert of_templates(with_data_volumes(data_volume())) == []


def test_a_data_volume_template_can_be_used_by_claim_name():
    document = with_data_volumes(data_volume(), use=())
    document["spec"]["template"]["spec"]["volumes"].append(
        {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}
    )
    assert of_templates(document) == []


def test_data_volume_templates_have_all_fields():
    template = {**data_volume(), "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume"}
    assert of_templates(with_data_volumes({**template, "status": {}})) == []


PATH = "spec.dataVolumeTemplate[0]"


@pytest.mark.parametrize(
    ("template", "field", "message"),
    [
        (
            data_volume(""),
            f"{PATH}.name",
            f"'name' field must not be empty for DataVolumeTemplate entry {PATH}.name.",
        ),
        (
            data_volume("unused"),
            PATH,
            (
                f"DataVolumeTemplate entry {PATH} must be referenced in the VMI template's "
                "'volumes' list"
            ),
        ),
        (data_volume(storage=None), f"{PATH}.PVC.Storage", "Missing Data volume PVC or Storage"),
        (
            data_volume(pvc={}),
            f"{PATH}.PVC.Storage",
            "Duplicate storage definition, both target storage and target pvc defined",
        ),
        (
            data_volume(source=None),
            f"{PATH}.source.sourceRef",
            "Data volume should have either Source, SourceRef, or be externally populated",
        ),
        (data_volume(source={}), f"{PATH}.source", "Missing dataVolume valid source"),
        (
            data_volume(source={"blank": {}, "upload": {}}),
            f"{PATH}.source",
            "Multiple dataVolume sources",
        ),
        (
            data_volume(sourceRef={"kind": "DataSource", "name": "fedora"}),
            f"{PATH}.source",
            "Data volume should have either Source or SourceRef",
        ),
        (
            data_volume(storage={"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}),
            f"{PATH}.source",
            "External population is incompatible with Source and SourceRef",
        ),
    ],
)
def test_invalid_data_volume_templates_are_rejected(template, field, message):
    assert of_templates(with_data_volumes(template)) == [(field, message)]


def test_names_of_data_volume_templates_are_unique():
    document = with_data_volumes(data_volume(), data_volume())
    assert of_templates(document) == [
        ("spec.dataVolumeTemplate[1].name", 'Duplicate value: "disk"')
    ]


def test_data_volume_templates_cannot_have_another_namespace():
    template = data_volume()
    template["metadata"]["namespace"] = "other"
    assert of_templates(with_data_volumes(template)) == [
        (
            "spec.dataVolumeTemplates[0]",
            "Embedded DataVolume namespace other differs from VM namespace default",
        )
    ]


# ------------------------------------------------------------------- defaults


def test_uuid_machine_type_and_architecture_are_defaulted_once():
    document = vm()
    VIRTUAL_MACHINE.default_create(document)
    template = document["spec"]["template"]
    domain = template["spec"]["domain"]
    assert set(domain["firmware"]) == {"uuid", "serial"}
    assert domain["machine"] == {"type": "q35"}
    assert template["spec"]["architecture"] == "amd64"
    assert template["metadata"]["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}
    other = vm()
    VIRTUAL_MACHINE.default_create(other)
    assert other["spec"]["template"]["spec"]["domain"]["firmware"] != domain["firmware"]


def test_given_values_are_not_defaulted():
    document = vm()
    spec = document["spec"]["template"]["spec"]
    given = {"uuid": "6c6b5ec5-0d3f-4c2e-a1d2-7b1c0b5dfd5a", "serial": "a1"}
    spec["domain"] |= {"firmware": dict(given), "machine": {"type": "pc"}}
    VIRTUAL_MACHINE.default_create(document)
    assert spec["domain"]["firmware"] == given
    assert spec["domain"]["machine"] == {"type": "pc"}


def test_an_update_without_the_uuid_keeps_it():
    old = vm()
    VIRTUAL_MACHINE.default_create(old)
    known = old["spec"]["template"]["spec"]["domain"]["firmware"]
    new = vm()
    VIRTUAL_MACHINE.keep(new, old, PERSON)
    assert new["spec"]["template"]["spec"]["domain"]["firmware"] == known
    other = vm()
    other["spec"]["template"]["spec"]["domain"]["firmware"] = {"serial": "mine"}
    VIRTUAL_MACHINE.keep(other, old, PERSON)
    firmware = other["spec"]["template"]["spec"]["domain"]["firmware"]
    assert firmware == {"serial": "mine", "uuid": known["uuid"]}
