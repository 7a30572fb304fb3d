"""Pools as admission meets them, through the row of their kind."""

import copy
from typing import Any

import pytest

from corral.api.errors import Cause
from corral.api.kinds import KINDS
from corral.api.kinds.kubevirt.kinds import POOL
from corral.api.kinds.kubevirt.vm_validation import DEPRECATED_RUNNING
from corral.api.schema import schema_for
from corral.client.decoding import decoder

PERSON = "kubernetes-admin"
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
TEMPLATE = "spec.virtualMachineTemplate.spec"
LABELS = {"kubevirt.io/vmpool": "vm-pool-cirros"}


def machine(**fields: Any) -> dict[str, Any]:
    return {
        "domain": {
            "devices": {"disks": [{"disk": {"bus": "virtio"}, "name": "containerdisk"}]},
            "resources": {"requests": {"memory": "128Mi"}},
        },
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"containerDisk": {"image": "cirros"}, "name": "containerdisk"}],
        **fields,
    }


def pool(*, vm: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **fields: Any):
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "vm-pool-cirros", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": LABELS},
            "virtualMachineTemplate": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "runStrategy": "Always",
                    "template": {"metadata": {"labels": LABELS}, "spec": spec or machine()},
                    **(vm or {}),
                },
            },
            **fields,
        },
    }


def admit(document: dict[str, Any], old: dict[str, Any] | None = None, user: str = PERSON) -> Any:
    return POOL.validate(copy.deepcopy(document), old, user)


def test_the_pool_of_the_user_guide_is_valid_without_warnings():
    verdict = admit(pool())
    assert (verdict.causes, verdict.warnings) == ([], [])


def test_the_kind_has_its_names_in_both_versions():
    for version in ("v1beta1", "v1alpha1"):
        assert KINDS.find("pool.kubevirt.io", version, "virtualmachinepools") is POOL
    assert (POOL.short, POOL.categories) == (("vmpool", "vmpools"), ("all",))
    assert not any(version.deprecated for version in POOL.versions)
    assert [column.name for column in POOL.columns] == ["Desired", "Current", "Ready", "Age"]
    assert POOL.status
    assert POOL.scale is not None


def test_a_pool_without_a_template_is_rejected_as_in_kubevirt():
    document = pool()
    del document["spec"]["virtualMachineTemplate"]
    expected = Cause("spec.template", "missing virtual machine template.", "FieldValueRequired")
    assert admit(document).causes == [expected]


@pytest.mark.parametrize(
    ("vm", "field", "message"),
    [
        ({"runStrategy": None}, "running", "RunStrategy must be specified"),
        ({"running": True}, "running", "Running and RunStrategy are mutually exclusive"),
        ({"runStrategy": "Sometimes"}, "runStrategy", "Invalid RunStrategy (Sometimes)"),
        (
            {"dataVolumeTemplates": [{"metadata": {"name": "a"}, "spec": {"storage": {}}}]},
            "dataVolumeTemplate[0].source.sourceRef",
            "Data volume should have either Source, SourceRef, or be externally populated",
        ),
    ],
)
def test_the_vm_template_is_validated_as_a_vm(vm, field, message):
    [cause] = admit(pool(vm=vm)).causes
    assert cause.field == f"{TEMPLATE}.{field}"
    assert cause.message.startswith(message)


def test_the_vmi_template_is_validated_as_a_vmi():
    spec = machine()
    spec["domain"]["devices"]["disks"][0]["name"] = "other"
    causes = admit(pool(spec=spec)).causes
    assert causes
    assert all(cause.field.startswith(f"{TEMPLATE}.template.spec.") for cause in causes)


def test_running_is_deprecated_in_a_pool_too():
    verdict = admit(pool(vm={"runStrategy": None, "running": True}))
    assert (verdict.causes, verdict.warnings) == ([], [DEPRECATED_RUNNING])


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({"matchLabels": {"other": "x"}}, "selector does not match labels."),
        (None, "selector does not match labels."),
        ({}, "empty selector is invalid for virtualmachinepool"),
        ({"matchLabels": {}}, "empty selector is invalid for virtualmachinepool"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Is"}]},
            '"Is" is not a valid label selector operator',
        ),
    ],
)
def test_the_selector_must_be_valid_and_match_the_template(selector, message):
    assert admit(pool(selector=selector)).causes == [Cause("spec.selector", message)]


def test_a_template_without_labels_is_rejected():
    one = pool()
    one["spec"]["virtualMachineTemplate"]["metadata"]["labels"] = {}
    expected = Cause("spec.selector", "selector does not match labels.")
    assert admit(one).causes == [expected]


def test_the_selector_is_immutable():
    new = pool(selector={"matchLabels": {"pool": "b"}})
    new["spec"]["virtualMachineTemplate"]["metadata"]["labels"] = {**LABELS, "pool": "b"}
    expected = Cause("spec.selector", "selector is immutable after creation.")
    assert admit(new, pool()).causes == [expected]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "maxUnavailable must be greater than 0"),
        (-1, "maxUnavailable must be greater than 0"),
        ("5", "maxUnavailable percentage must end with %"),
        ("", "maxUnavailable percentage must end with %"),
        ("x%", "maxUnavailable percentage is invalid: 'x%'"),
        ("1.5%", "maxUnavailable percentage is invalid: '1.5%'"),
        ("0%", "maxUnavailable percentage must be between 1 and 100"),
        ("101%", "maxUnavailable percentage must be between 1 and 100"),
        ("-1%", "maxUnavailable percentage must be between 1 and 100"),
        (1, None),
        (7, None),
        ("1%", None),
        ("100%", None),
    ],
)
def test_max_unavailable_is_a_number_or_a_percentage(value, message):
    expected = [] if message is None else [Cause("spec.maxUnavailable", message)]
    assert admit(pool(maxUnavailable=value)).causes == expected


@pytest.mark.parametrize("field", ["updateStrategy", "scaleInStrategy"])
def test_a_strategy_has_exactly_one_type(field):
    both = pool(**{field: {"opportunistic": {}, "proactive": {}}})
    message = (
        "only one strategy can be configured at a time: "
        "but found opportunistic, proactive strategies"
    )
    assert admit(both).causes == [Cause(f"spec.{field}", message)]
    for name in ("unmanaged", "opportunistic", "proactive"):
        assert admit(pool(**{field: {name: {}}})).causes == []
    assert admit(pool(**{field: {}})).causes == []


@pytest.mark.parametrize(
    ("selectors", "place"),
    [
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "labelSelector.matchExpressions[0].operator",
        ),
        ({"labelSelector": {"matchLabels": {"a b": "x"}}}, "labelSelector.matchLabels"),
        (
            {"nodeSelectorRequirementMatcher": [{"key": "a", "operator": "Is"}]},
            "nodeSelectorRequirementMatcher[0]",
        ),
        (
            {"nodeSelectorRequirementMatcher": [{"key": "a", "operator": "Gt", "values": ["x"]}]},
            "nodeSelectorRequirementMatcher[0]",
        ),
        (
            {"nodeSelectorRequirementMatcher": [{"key": "a", "operator": "In"}]},
            "nodeSelectorRequirementMatcher[0]",
        ),
    ],
)
@pytest.mark.parametrize("field", ["updateStrategy", "scaleInStrategy"])
def test_invalid_selectors_are_rejected(field, selectors, place):
    strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
    [cause] = admit(pool(**{field: strategy})).causes
    assert cause.field == f"spec.{field}.proactive.selectionPolicy.selectors.{place}"


def test_invalid_autohealing_durations_are_rejected():
    assert admit(pool(autohealing={"minFailingToStartDuration": "1h5m"})).causes == []
    [cause] = admit(pool(autohealing={"minFailingToStartDuration": "soon"})).causes
    assert cause.field == "spec.autohealing.minFailingToStartDuration"
    assert "'soon' is no duration like 30s or 5m0s" in cause.message


def test_an_unchanged_spec_is_not_validated():
    broken = pool(maxUnavailable="x")
    assert admit(broken, broken).causes == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"autohealing": {"startUpFailureThreshold": 0}}, "startUpFailureThreshold"),
        ({"replicas": -1}, "replicas"),
        (
            {"scaleInStrategy": {"opportunistic": {"statePreservation": "Some"}}},
            "statePreservation",
        ),
        (
            {"updateStrategy": {"proactive": {"selectionPolicy": {"sortPolicy": "Best"}}}},
            "sortPolicy",
        ),
    ],
)
def test_values_out_of_range_are_rejected_by_the_schema(spec, field):
    document = pool(**spec)
    causes = schema_for(POOL).check(document)
    assert causes[0].field.endswith(field)


def test_a_pool_with_all_fields_round_trips():
    document = pool(
        maxUnavailable="25%",
        nameGeneration={"appendIndexToConfigMapRefs": True},
        autohealing={"startUpFailureThreshold": 1, "minFailingToStartDuration": "1m"},
        updateStrategy={"unmanaged": {}},
        scaleInStrategy={"opportunistic": {"statePreservation": "Online"}},
    )
    before = copy.deepcopy(document)
    assert schema_for(POOL).prune(document) == []
    assert document == before
    assert decoder(POOL.view) is not None


# ------------------------------------------------------------------ shared disks


def shared(volume: dict[str, Any], disk: dict[str, Any]) -> dict[str, Any]:
    spec = machine(volumes=[{"name": "root", **volume}])
    spec["domain"]["devices"]["disks"] = [{"name": "root", **disk}]
    return spec


TEMPLATES = [
    {"metadata": {"name": "own"}, "spec": {"source": {"blank": {}}, "storage": {}}},
]


@pytest.mark.parametrize(
    ("volume", "disk", "name"),
    [
        ({"persistentVolumeClaim": {"claimName": "shared"}}, {"disk": {}}, "shared"),
        ({"dataVolume": {"name": "shared"}}, {"disk": {}}, "shared"),
        ({"dataVolume": {"name": "shared"}}, {"lun": {}}, "shared"),
        ({"persistentVolumeClaim": {"claimName": "shared"}}, {}, "shared"),
        ({"persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}, {"disk": {}}, None),
        ({"persistentVolumeClaim": {"claimName": "shared"}}, {"disk": {"readonly": True}}, None),
        ({"dataVolume": {"name": "shared"}}, {"cdrom": {}}, None),
        ({"dataVolume": {"name": "own"}}, {"disk": {}}, None),
        ({"persistentVolumeClaim": {"claimName": "own"}}, {"disk": {}}, None),
        ({"containerDisk": {"image": "cirros"}}, {"disk": {}}, None),
    ],
)
def test_a_disk_shared_by_all_vms_is_warned_of(volume, disk, name):
    templates = TEMPLATES if "own" in str(volume) else []
    document = pool(spec=shared(volume, disk), vm={"dataVolumeTemplates": templates})
    wording = [each for each in admit(document).warnings if "corrupt" in each]
    expected = (
        f"{TEMPLATE}.template.spec.volumes[0]: every machine would write to {name}, which is one "
        "disk: machines that write to the same file system corrupt its data"
    )
    assert wording == ([] if name is None else [expected])
    assert not [each for each in admit(document, user=CONTROLLER).warnings if "corrupt" in each]


def test_a_disk_shared_by_all_vmis_of_a_set_is_warned_of():
    document = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "set", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": shared({"persistentVolumeClaim": {"claimName": "one"}}, {"disk": {}}),
            },
        },
    }
    kind = KINDS.by_kind("kubevirt.io", "VirtualMachineInstanceReplicaSet")
    assert kind is not None
    wording = [each for each in kind.validate(document, None, PERSON).warnings if "corrupt" in each]
    expected = (
        "spec.template.spec.volumes[0]: every machine would write to one, which is one disk: "
        "machines that write to the same file system corrupt its data"
    )
    assert wording == [expected]


# ------------------------------------------------------------------ v1alpha1


@pytest.mark.parametrize("where", ["spec", "nameGeneration"])
@pytest.mark.parametrize("capital", [True, False])
def test_deprecated_fields_of_v1alpha1_are_converted(where, capital):
    names = ["appendPostfixToConfigMapReferences", "appendPostfixToSecretReferences"]
    if capital:
        names = [name[0].upper() + name[1:] for name in names]
    said = {names[0]: True, names[1]: False}
    document = pool(**(said if where == "spec" else {"nameGeneration": said}))
    read = POOL.versions[1].read
    assert read is not None
    read(document)
    expected = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": False}
    assert document["spec"]["nameGeneration"] == expected
    assert not any("Postfix" in name for name in document["spec"])


def test_current_fields_take_precedence_over_deprecated_ones():
    document = pool(
        AppendPostfixToSecretReferences=True, nameGeneration={"appendIndexToSecretRefs": False}
    )
    read = POOL.versions[1].read
    assert read is not None
    read(document)
    assert document["spec"]["nameGeneration"] == {"appendIndexToSecretRefs": False}


@pytest.mark.parametrize(
    "spec", [None, [], "x", {"nameGeneration": 3}, {"nameGeneration": None}, {}]
)
def test_values_of_wrong_types_are_left_to_the_schema(spec):
    document = {"spec": spec}
    read = POOL.versions[1].read
    assert read is not None
    read(document)
    assert document == {"spec": spec}
