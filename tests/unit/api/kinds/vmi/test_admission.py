"""Machines and replica sets as admission meets them, through the rows of their kinds."""

import copy
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from corral.api.errors import Cause
from corral.api.kinds import KINDS
from corral.api.kinds.kubevirt.kinds import REPLICA_SET, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.vmi.ineffective_fields import SPEC
from corral.api.kinds.vmi.vmi import Spec
from corral.api.schema import schema_for

PERSON = "kubernetes-admin"
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
OUTSIDE = "system:serviceaccount:corral-system:corral-controllers"
"""The account of ``corral controllers``."""
AGENT = "system:node:corral"


def spec(**fields: Any) -> dict[str, Any]:
    """The machine of KubeVirt's user guide: one container disk and 64M."""
    return {
        "domain": {
            "devices": {"disks": [{"disk": {}, "name": "containerdisk"}]},
            "resources": {"requests": {"memory": "64M"}},
        },
        "volumes": [
            {
                "name": "containerdisk",
                "containerDisk": {"image": "kubevirt/cirros-container-disk-demo:latest"},
            }
        ],
        **fields,
    }


def machine(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": spec(**fields),
    }


def replica_set(**fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "testreplicaset", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"myvmi": "myvmi"}},
            "template": {
                "metadata": {"name": "test", "labels": {"myvmi": "myvmi"}},
                "spec": spec(),
            },
            **fields,
        },
    }


def admit(document: dict[str, Any], old: dict[str, Any] | None = None, user: str = PERSON) -> Any:
    kind = KINDS.by_kind("kubevirt.io", document["kind"])
    assert kind is not None
    return kind.validate(document, old, user)


@pytest.mark.parametrize("document", [machine(), replica_set()], ids=lambda one: one["kind"])
def test_the_manifest_of_the_user_guide_is_valid_without_warnings(document):
    verdict = admit(document)
    assert verdict.causes == []
    assert verdict.warnings == []


# ------------------------------------------------------------------ machines


def test_a_vmi_without_memory_is_rejected():
    document = machine()
    del document["spec"]["domain"]["resources"]
    [cause] = admit(document).causes
    assert cause.field == "spec.domain.memory.guest"
    assert cause.message == (
        "no memory requested, at least one of 'spec.domain.memory.guest', "
        "'spec.domain.memory.hugepages.size' or 'spec.domain.resources.requests.memory' must be set"
    )


def test_results_are_not_shared_between_vmis():
    unlike = {"firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"}}
    documents = [machine(priorityClassName="high") for _ in range(4)]
    for document in documents[1:]:
        document["spec"]["domain"] |= unlike
    documents[2]["spec"]["domain"]["firmware"] = {"uuid": "none"}
    verdicts = [admit(document) for document in documents]
    verdicts[0].causes.append(Cause("spec", "no"))
    verdicts[0].warnings.clear()
    assert [cause.field for cause in verdicts[2].causes] == ["spec.domain.firmware.uuid"]
    for verdict in (verdicts[1], verdicts[3], admit(documents[0])):
        assert verdict.causes == []
        assert verdict.warnings == ["spec.priorityClassName has no effect in this version"]


def test_very_little_memory_is_warned_of():
    def warnings(domain):
        return admit(machine(domain=spec()["domain"] | domain)).warnings

    (expected,) = warnings({"resources": {"requests": {"memory": "1M"}}})
    assert expected.startswith(
        "spec.domain: 1M of memory: hardly any guest comes up with less than 16Mi"
    )
    assert "2Mi of memory" in warnings({"memory": {"guest": "2Mi"}})[0]
    for enough in ("16Mi", "64M"):
        assert warnings({"resources": {"requests": {"memory": enough}}}) == []
    template = replica_set()
    template["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "1M"}
    assert admit(template).warnings[0].startswith("spec.template.spec.domain: 1M of memory")


def test_causes_have_the_path_of_the_spec():
    document = replica_set()
    document["spec"]["template"]["spec"] |= {"architecture": "none"}
    [cause] = admit(document).causes
    assert cause.field == "spec.template.spec.architecture"
    [cause] = admit(machine(architecture="none")).causes
    assert cause.field == "spec.architecture"


def test_reserved_labels_are_for_components():
    document = machine()
    document["metadata"]["labels"] = {"kubevirt.io/created-by": "me", "app": "web"}
    assert admit(document).causes == [
        Cause(
            "metadata.labels",
            "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
            "FieldValueNotSupported",
        )
    ]
    assert admit(document, user=CONTROLLER).causes == []


@pytest.mark.parametrize(
    "annotation", ["hooks.kubevirt.io/hookSidecars", "kubevirt.io/ignitiondata"]
)
def test_annotations_that_change_the_machine_are_rejected(annotation):
    document = machine()
    document["metadata"]["annotations"] = {annotation: "[]", "other": "text"}
    [cause] = admit(document).causes
    assert cause.field == "metadata.annotations"
    assert cause.message.endswith(f"invalid entry metadata.annotations.{annotation}")


def test_other_labels_of_kubevirt_are_allowed():
    document = machine()
    document["metadata"]["labels"] = {"kubevirt.io/domain": "lab", "kubevirt.io/size": "small"}
    assert admit(document).causes == []


@pytest.mark.parametrize("user", [CONTROLLER, OUTSIDE, AGENT])
def test_the_spec_of_a_vmi_can_be_changed_by_components_only(user):
    old = machine()
    new = machine(hostname="other")
    [cause] = admit(new, old).causes
    assert cause.message == "update of VMI object is restricted"
    assert admit(new, old, user).causes == []


def test_labels_of_a_vmi_can_change_except_reserved_ones():
    old = machine()
    old["metadata"]["labels"] = {"kubevirt.io/nodeName": "corral"}
    new = copy.deepcopy(old)
    new["metadata"]["labels"]["debug"] = "yes"
    assert admit(new, old).causes == []
    del new["metadata"]["labels"]["kubevirt.io/nodeName"]
    [cause] = admit(new, old).causes
    assert cause.message == (
        "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited"
    )


def test_the_sockets_that_a_vmi_has_started_with_do_not_change():
    """Its devices have queues for these vCPUs, and so must have those of a migration's target."""
    name = "corral.dev/boot-sockets"
    old, new = machine(), machine()
    old["metadata"]["annotations"] = {name: "2"}
    for annotations in ({name: "4"}, {}, None):
        new["metadata"]["annotations"] = annotations
        [cause] = admit(new, old).causes
        assert cause.field == f"metadata.annotations[{name}]"
        assert "cannot be changed" in cause.message
        assert admit(new, old, CONTROLLER).causes == []
    new["metadata"]["annotations"] = {name: "2", "mine": "too"}
    assert admit(new, old).causes == []


def test_changes_of_the_status_by_users_are_ignored():
    old = machine() | {"status": {"phase": "Running"}}
    new = machine() | {"status": {"phase": "Succeeded"}}
    VIRTUAL_MACHINE_INSTANCE.keep(new, old, PERSON)
    assert new["status"] == {"phase": "Running"}


def test_a_status_removed_by_users_is_kept():
    new = machine()
    VIRTUAL_MACHINE_INSTANCE.keep(new, machine() | {"status": {"phase": "Running"}}, PERSON)
    assert new["status"] == {"phase": "Running"}


@pytest.mark.parametrize("user", [CONTROLLER, OUTSIDE, AGENT])
def test_components_can_write_the_status(user):
    new = machine() | {"status": {"phase": "Succeeded"}}
    VIRTUAL_MACHINE_INSTANCE.keep(new, machine() | {"status": {"phase": "Running"}}, user)
    assert new["status"] == {"phase": "Succeeded"}


# -------------------------------------------------------------- replica sets


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"myvmi": "other"}},
        {"matchLabels": {"myvmi": "myvmi", "more": "labels"}},
        {"matchExpressions": [{"key": "myvmi", "operator": "DoesNotExist"}]},
    ],
)
def test_the_selector_must_match_the_template(selector):
    assert admit(replica_set(selector=selector)).causes == [
        Cause("spec.selector", "selector does not match labels.")
    ]


def test_an_invalid_selector_has_the_message_of_the_parser():
    selector = {"matchExpressions": [{"key": "myvmi", "operator": "Near", "values": ["a"]}]}
    assert admit(replica_set(selector=selector)).causes == [
        Cause("spec.selector", '"Near" is not a valid label selector operator')
    ]


@pytest.mark.parametrize(
    "selector", [{}, {"matchLabels": {}}, {"matchExpressions": [], "matchLabels": {}}]
)
@pytest.mark.parametrize("old", [None, replica_set()], ids=["create", "update"])
def test_a_selector_that_matches_everything_has_kubernetes_message(selector, old):
    assert admit(replica_set(selector=selector), old).causes == [
        Cause("spec.selector", "empty selector is invalid for virtualmachineinstancereplicaset")
    ]


def test_a_template_without_labels_matches_no_selector():
    document = replica_set()
    del document["spec"]["template"]["metadata"]
    assert admit(document).causes == [Cause("spec.selector", "selector does not match labels.")]


def test_a_set_without_a_template_has_a_single_cause():
    document = replica_set(selector={"matchLabels": {"other": "label"}})
    del document["spec"]["template"]
    [cause] = admit(document).causes
    assert (cause.field, cause.message) == ("spec.template", "missing virtual machine template.")


def test_the_template_is_validated_as_a_vmi():
    document = replica_set()
    document["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = [{"name": "testdisk"}]
    here = "spec.template.spec.domain.devices.disks[0]"
    assert admit(document).causes == [Cause(f"{here}.name", f"{here}.Name 'testdisk' not found.")]


def test_a_template_may_have_no_memory():
    """KubeVirt accepts such a set too; its machines are refused when they are made."""
    document = replica_set()
    del document["spec"]["template"]["spec"]["domain"]["resources"]
    assert admit(document).causes == []


def test_negative_replicas_are_rejected():
    [cause] = admit(replica_set(replicas=-1)).causes
    assert cause.message == "spec.replicas: Invalid value: -1: should be a non-negative integer"
    assert admit(replica_set(replicas=0)).causes == []


@pytest.mark.parametrize("replicas", [2**31, 99999999999])
def test_replicas_are_limited_to_32_bits(replicas):
    cause, *_ = schema_for(REPLICA_SET).check(replica_set(replicas=replicas))
    assert "should be less than or equal to 2147483647" in cause.message


def test_selector_and_template_of_a_set_can_change():
    new = replica_set(selector={"matchLabels": {"a": "b"}})
    new["spec"]["template"]["metadata"]["labels"] = {"a": "b"}
    new["spec"]["template"]["spec"]["hostname"] = "other"
    assert admit(new, replica_set()).causes == []


def test_an_unchanged_invalid_set_can_be_labelled():
    old = replica_set(selector={"matchLabels": {"other": "label"}})
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert admit(old).causes
    assert admit(new, old).causes == []


def test_rejections_have_the_message_of_kubevirts_webhook():
    document = replica_set(selector={"matchLabels": {"other": "label"}})
    error = REPLICA_SET.denied("testreplicaset", admit(document).causes, creating=True)
    assert error.code == 422
    assert error.message == (
        'admission webhook "virtualmachinereplicaset-validator.kubevirt.io" denied the request: '
        "selector does not match labels."
    )
    assert error.status()["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": "selector does not match labels.",
            "field": "spec.selector",
        }
    ]


def test_a_rejection_names_ten_causes_and_the_number_of_others():
    causes = [Cause(f"spec.volumes[{index}]", f"fault {index}") for index in range(12)]
    error = VIRTUAL_MACHINE_INSTANCE.denied("vm", causes, creating=False)
    assert error.message.startswith(
        'admission webhook "virtualmachineinstances-update-validator.kubevirt.io" denied the '
        "request: fault 0, fault 1, "
    )
    assert error.message.endswith("fault 9, and 2 more validation errors")
    assert error.details is not None
    assert len(error.details.causes) == 10


# ---------------------------------------------------------------------- effects

REFUSED = [
    (
        {"volumes": [{"name": "containerdisk", "containerPath": {"path": "/a"}}]},
        "spec.volumes[0].containerPath",
    ),
    ({"resourceClaims": [{"name": "a"}]}, "spec.resourceClaims"),
]
REFUSED_IN_DOMAIN = [
    ({"launchSecurity": {"sev": {}}}, "spec.domain.launchSecurity"),
    ({"launchSecurity": {}}, "spec.domain.launchSecurity"),
    ({"firmware": {"bootloader": {"efi": {}}}}, "spec.domain.firmware.bootloader.efi"),
    (
        {"firmware": {"kernelBoot": {"container": {"image": "a"}}}},
        "spec.domain.firmware.kernelBoot",
    ),
]
REFUSED_IN_DEVICES = [
    ({"gpus": [{"name": "a"}]}, "spec.domain.devices.gpus"),
    ({"hostDevices": [{"name": "a"}]}, "spec.domain.devices.hostDevices"),
    ({"tpm": {}}, "spec.domain.devices.tpm"),
    ({"filesystems": [{"name": "a", "virtiofs": {}}]}, "spec.domain.devices.filesystems"),
]


def refused(document: dict[str, Any]) -> list[str]:
    return [
        cause.field
        for cause in admit(document).causes
        if " is not supported by this version: " in cause.message
    ]


@pytest.mark.parametrize(("fields", "path"), REFUSED)
def test_unsafe_unsupported_fields_are_rejected(fields, path):
    assert refused(machine(**fields)) == [path]


@pytest.mark.parametrize(("fields", "path"), REFUSED_IN_DOMAIN)
def test_unsafe_unsupported_fields_of_the_domain_are_rejected(fields, path):
    document = machine()
    document["spec"]["domain"] |= fields
    assert refused(document) == [path]


@pytest.mark.parametrize(("fields", "path"), REFUSED_IN_DEVICES)
def test_unsupported_required_devices_are_rejected(fields, path):
    document = machine()
    document["spec"]["domain"]["devices"] |= fields
    assert refused(document) == [path]


@pytest.mark.parametrize(
    ("network", "binding", "path"),
    [
        ({"multus": {"networkName": "red"}}, {"bridge": {}}, "spec.networks[0].multus"),
        ({"pod": {}}, {"sriov": {}}, "spec.domain.devices.interfaces[0].sriov"),
        ({"pod": {}}, {"slirp": {}}, "spec.domain.devices.interfaces[0].slirp"),
        ({"pod": {}}, {"binding": {"name": "p"}}, "spec.domain.devices.interfaces[0].binding"),
    ],
)
def test_unsupported_networks_are_rejected(network, binding, path):
    document = machine(networks=[{"name": "default", **network}])
    document["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", **binding}]
    assert refused(document) == [path]


@pytest.mark.parametrize("name", ["readinessProbe", "livenessProbe"])
@pytest.mark.parametrize(
    "way",
    [
        {"guestAgentPing": {}},
        {"tcpSocket": {"port": 22}},
        {"httpGet": {"port": "http", "path": "/", "httpHeaders": [{"name": "a", "value": "b"}]}},
        {"exec": {"command": ["true"]}},
    ],
)
def test_probes_are_not_warned_of(name, way):
    verdict = admit(machine(**{name: {**way, "periodSeconds": 5, "failureThreshold": 2}}))
    assert not [one for one in verdict.warnings if "Probe" in one]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"priorityClassName": "high"}, "spec.priorityClassName"),
        ({"affinity": {"podAntiAffinity": {}}}, "spec.affinity.podAntiAffinity"),
    ],
)
def test_fields_without_effect_are_warned_of(fields, path):
    verdict = admit(machine(**fields))
    assert verdict.causes == []
    assert verdict.warnings == [f"{path} has no effect in this version"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"cpu": {"model": "Nehalem"}}, "spec.domain.cpu.model"),
        ({"cpu": {"dedicatedCpuPlacement": True}}, "spec.domain.cpu.dedicatedCpuPlacement"),
        ({"features": {"apic": {"enabled": False}}}, "spec.domain.features.apic.enabled"),
        ({"features": {"hyperv": {"relaxed": {}}}}, "spec.domain.features.hyperv"),
        ({"clock": {"timezone": "Europe/Berlin"}}, "spec.domain.clock.timezone"),
        ({"ioThreadsPolicy": "auto"}, "spec.domain.ioThreadsPolicy"),
    ],
)
def test_fields_of_the_domain_without_effect_are_warned_of(fields, path):
    document = machine()
    document["spec"]["domain"] |= fields
    assert admit(document).warnings == [f"{path} has no effect in this version"]


def test_an_empty_device_counts_as_requested():
    document = machine()
    document["spec"]["domain"]["devices"]["clientPassthrough"] = {}
    assert admit(document).warnings == [
        "spec.domain.devices.clientPassthrough has no effect in this version"
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"features": {"acpi": {}, "apic": {"enabled": True}}},
        {"features": {"acpi": {"enabled": False}}},
        {"cpu": {"cores": 2, "model": "host-passthrough"}},
        {"clock": {"utc": {}}},
        {"firmware": {"bootloader": {"bios": {}}, "serial": "A1"}},
        {"rebootPolicy": "Terminate"},
        {"chassis": {"asset": "7"}},
    ],
)
def test_fields_with_effect_or_default_values_are_not_warned_of(fields):
    document = machine()
    document["spec"]["domain"] |= fields
    verdict = admit(document)
    assert (verdict.causes, verdict.warnings) == ([], [])


def unknown_fields(tree: Any, view: type[msgspec.Struct], path: str) -> Iterator[str]:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(view)}
    for name, below in tree.items():
        if name not in fields:
            yield f"{path}.{name}"
        elif isinstance(below, dict):
            inner = [one for one in parts(fields[name]) if issubclass(one, msgspec.Struct)]
            if inner:  # else it is a map, whose keys are anybody's
                yield from unknown_fields(below, inner[0], f"{path}.{name}")


def parts(kind: Any) -> Iterator[type]:
    if isinstance(kind, type):
        yield kind
    for inner in typing.get_args(kind):
        yield from parts(inner)


def test_the_table_of_ineffective_fields_has_existing_fields():
    assert list(unknown_fields(SPEC, Spec, "spec")) == []


def test_components_get_no_warnings():
    assert admit(machine(subdomain="example"), user=CONTROLLER).warnings == []


def test_a_set_has_warnings_only_for_a_new_template():
    document = replica_set()
    document["spec"]["template"]["spec"]["priorityClassName"] = "high"
    expected = ["spec.template.spec.priorityClassName has no effect in this version"]
    assert admit(document).warnings == expected
    assert admit(document, replica_set()).warnings == expected
    assert admit(copy.deepcopy(document) | {"metadata": {}}, document).warnings == []
