"""Warm pools as admission meets them, through the row of their kind."""

import copy

import pytest

from corral.api.kinds.corral.kinds import WARM_POOL
from corral.api.schema import schema_for

PERSON = "kubernetes-admin"
TARGET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "testreplicaset",
}
VM_POOL = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "name": "web",
}
TEMPLATE = {
    "metadata": {"labels": {"app": "runner"}},
    "spec": {
        "domain": {"devices": {}, "resources": {"requests": {"memory": "64M"}}},
        "terminationGracePeriodSeconds": 0,
    },
}


def warm_pool(name="spares", **spec):
    document = {
        "apiVersion": "corral.dev/v1alpha1",
        "kind": "VirtualMachineWarmPool",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    WARM_POOL.default(document)
    return document


def refusals(document, old=None):
    """The causes of admission and of the schema, as a client reads them."""
    schema = schema_for(WARM_POOL)
    causes = (
        schema.check(copy.deepcopy(document)) or WARM_POOL.validate(document, old, PERSON).causes
    )
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_what_the_spec_leaves_open_is_one_running_spare_that_boots():
    spec = warm_pool(targetRef=TARGET)["spec"]
    assert spec == {
        "targetRef": TARGET,
        "replicas": 1,
        "startFrom": "Boot",
        "state": "Running",
    }
    assert refusals(warm_pool(targetRef=TARGET)) == []
    assert refusals(warm_pool(template=TEMPLATE, replicas=0, maxAge="24h")) == []
    assert refusals(warm_pool(targetRef=TARGET, state="Paused", startFrom="Checkpoint")) == []


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({}, "spec: set targetRef, to keep spares of a set, or template"),
        (
            {"targetRef": TARGET, "template": TEMPLATE},
            "spec.template: may not be set beside targetRef",
        ),
        (
            {"targetRef": TARGET | {"kind": "VirtualMachine"}},
            'version: "VirtualMachineInstanceReplicaSet", "VirtualMachinePool"',
        ),
        (
            {"targetRef": VM_POOL | {"apiVersion": "kubevirt.io/v1"}, "startFrom": "Checkpoint"},
            'supported values in this version: "pool.kubevirt.io/v1beta1"',
        ),
        (
            {"targetRef": VM_POOL},
            'spec.startFrom: Invalid value: "Boot": must be "Checkpoint": members of a Virtual',
        ),
        (
            {"targetRef": VM_POOL, "startFrom": "Checkpoint", "replicas": 2},
            "spec.replicas: Invalid value: 2: must be 0: members of a VirtualMachinePool have num",
        ),
        (
            {"targetRef": TARGET | {"apiVersion": "apps/v1"}},
            'spec.targetRef.apiVersion: Unsupported value: "apps/v1"',
        ),
        ({"targetRef": TARGET | {"name": ""}}, "spec.targetRef.name: name the set"),
        ({"targetRef": TARGET, "replicas": -1}, "spec.replicas: "),
        (
            {"targetRef": TARGET, "state": "Saved"},
            'supported values in this version: "Running", "Paused"; startFrom: Checkpoint',
        ),
        ({"targetRef": TARGET, "state": "Asleep"}, "spec.state: "),
        ({"targetRef": TARGET, "maxAge": "a day"}, "spec.maxAge: 'a day' is no duration"),
        ({"targetRef": TARGET, "maxAge": "1s"}, "spec.maxAge: must be at least 60s"),
        ({"targetRef": TARGET, "maxAge": "999999999h"}, "spec.maxAge: must be at least 60s"),
        (
            {"template": {"spec": {"domain": {"devices": {"disks": [{"name": "root"}]}}}}},
            "spec.template.spec.domain.devices.disks[0]",
        ),
        (
            {
                "template": TEMPLATE
                | {"metadata": {"labels": {"kubevirt.io/created-by": "somebody"}}}
            },
            "spec.template.metadata.labels: creation of the following reserved",
        ),
    ],
)
def test_a_refusal_names_the_field_and_what_is_supported(spec, refusal):
    first = refusals(warm_pool(**spec))[0]
    assert refusal in first


def test_a_pool_of_virtual_machines_has_a_checkpoint_and_no_spares():
    document = warm_pool(targetRef=VM_POOL, startFrom="Checkpoint")
    assert document["spec"]["replicas"] == 0
    assert refusals(document) == []


def test_a_name_that_is_too_long_for_a_label_is_refused():
    assert refusals(warm_pool(name="x" * 63, targetRef=TARGET)) == []
    (refusal,) = refusals(warm_pool(name="x" * 64, targetRef=TARGET))
    assert refusal.startswith("metadata.name: Invalid value: ")
    assert "must be no more than 63 characters: spares carry it" in refusal


def test_an_unchanged_spec_passes():
    stored = warm_pool(targetRef=TARGET | {"kind": "Other"})
    assert refusals(stored, old=copy.deepcopy(stored)) == []
