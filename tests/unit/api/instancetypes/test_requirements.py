"""Requirements of preferences (KubeVirt's pkg/instancetype/preference/requirements)."""

import msgspec
import pytest

from corral.api.instancetypes.requirements import unmet
from corral.api.kinds.kubevirt.instancetype import InstancetypeSpec, PreferenceSpec


def preference(topology=None, across=None, **requirements):
    cpu = {"preferredCPUTopology": topology} if topology else {}
    if across:
        cpu["spreadOptions"] = {"across": across}
    return msgspec.convert({"cpu": cpu, "requirements": requirements}, PreferenceSpec)


TYPE = msgspec.convert({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}, InstancetypeSpec)


def test_a_sufficient_instance_type_is_accepted():
    needs = preference(cpu={"guest": 2}, memory={"guest": "1024Mi"}, architecture="amd64")
    assert unmet({"architecture": "amd64", "domain": {}}, TYPE, needs) == []
    assert unmet({"domain": {}}, TYPE, None) == []


CHECKED = "failure checking preference requirements: "


@pytest.mark.parametrize(
    ("needs", "field", "message"),
    [
        (
            {"cpu": {"guest": 3}, "memory": {"guest": "2Gi"}},
            "spec.instancetype",
            (
                "insufficient CPU resources of 2 vCPU provided by instance type, "
                "preference requires 3 vCPU"
            ),
        ),
        (
            {"memory": {"guest": "2Gi"}, "architecture": "arm64"},
            "spec.instancetype",
            (
                "insufficient Memory resources of 1Gi provided by instance type, "
                "preference requires 2Gi"
            ),
        ),
        (
            {"architecture": "arm64"},
            "spec.template.spec.architecture",
            "preference requires architecture arm64 but amd64 is being requested",
        ),
    ],
)
def test_an_insufficient_instance_type_is_rejected_with_the_first_cause(needs, field, message):
    (cause,) = unmet({"architecture": "amd64", "domain": {}}, TYPE, preference(**needs))
    assert (cause.field, cause.message) == (field, CHECKED + message)
    assert cause.reason == "FieldValueNotFound"


@pytest.mark.parametrize(
    ("topology", "across", "cpu", "fields"),
    [
        (None, None, {"sockets": 2, "cores": 4}, ["sockets"]),
        ("cores", None, {"sockets": 4, "cores": 2}, ["cores"]),
        ("preferThreads", None, {"threads": 1}, ["threads"]),
        ("any", None, {"sockets": 1, "cores": 2, "threads": 1}, ["cores", "sockets", "threads"]),
        ("spread", None, {"sockets": 1, "cores": 2}, ["sockets", "cores"]),
        ("spread", "CoresThreads", {"cores": 1, "threads": 2}, ["cores", "threads"]),
    ],
)
def test_vcpus_of_the_template_count_by_the_preferred_topology(topology, across, cpu, fields):
    needs = preference(topology, across, cpu={"guest": 3})
    (cause,) = unmet({"domain": {"cpu": cpu}}, None, needs)
    assert cause.field == ", ".join(f"spec.template.spec.domain.cpu.{field}" for field in fields)
    assert "provided by VirtualMachine, preference requires 3 vCPU provided as" in cause.message


@pytest.mark.parametrize("memory", [{}, {"guest": "512Mi"}])
def test_without_an_instance_type_the_template_must_suffice(memory):
    needs = preference(memory={"guest": "1Gi"})
    (cause,) = unmet({"domain": {"memory": memory}}, None, needs)
    has = memory.get("guest", "0")
    assert cause.field == "spec.template.spec.domain.memory"
    assert cause.message == (
        f"{CHECKED}insufficient Memory resources of {has} provided by VirtualMachine, "
        "preference requires 1Gi"
    )
