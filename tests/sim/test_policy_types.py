"""Warnings of ValidatingAdmissionPolicies whose expressions do not fit their types."""

import pytest
from lightkube.models.admissionregistration_v1 import ValidatingAdmissionPolicy
from tests.sim.cluster import cluster

from corral.api.object import Key
from corral.store import object_version

pytestmark = pytest.mark.looptime


def policy(*expressions, groups=("",), resources=("configmaps",), **spec):
    rule = {"apiGroups": [*groups], "apiVersions": ["v1"], "resources": [*resources]}
    return {
        "metadata": {"name": "rules"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule | {"operations": ["CREATE"]}]},
            "validations": [{"expression": each} for each in expressions],
            **spec,
        },
    }


async def type_warnings(c, generation):
    """The warnings in the status, once it has observed a generation."""

    async def observed():
        found = await c.client.get(ValidatingAdmissionPolicy, "rules")
        return found.status is not None and found.status.observedGeneration == generation

    await c.until(observed)
    status = (await c.client.get(ValidatingAdmissionPolicy, "rules")).status
    assert status.typeChecking is not None
    return {each.fieldRef: each.warning for each in status.typeChecking.expressionWarnings or ()}


async def test_type_errors_are_reported_once_a_generation():
    async with cluster(about_itself=True) as c:
        made = policy("object.dada.x == '1'", "object.metadata.name == 1", "has(object.data)")
        await c.client.create(ValidatingAdmissionPolicy, made)
        warnings = await type_warnings(c, 1)
        assert [*warnings] == [f"spec.validations[{index}].expression" for index in (0, 1)]
        assert warnings["spec.validations[0].expression"] == (
            "/v1, Kind=ConfigMap: compilation failed: ERROR: <input>:1:7: undefined field 'dada'\n"
            " | object.dada.x == '1'\n | ......^\n"
        )
        assert "no matching overload" in warnings["spec.validations[1].expression"]
        change = {"spec": policy("object.data.x == '1'")["spec"]}
        await c.client.patch(ValidatingAdmissionPolicy, Key("", "rules"), change)
        assert await type_warnings(c, 2) == {}


async def test_type_errors_are_reported_for_each_matched_kind():
    async with cluster(about_itself=True) as c:
        made = policy(
            "variables.one > 1",
            groups=("", "kubevirt.io"),
            resources=("secrets", "pods/status", "virtualmachines"),
            variables=[{"name": "one", "expression": "object.spec.running ? 1 : 2"}],
            auditAnnotations=[{"key": "x", "valueExpression": "'1'"}],
        )
        made["spec"]["validations"] += [{"expression": "object.spec.running"}]
        made["spec"]["validations"][1]["expression"] += " == true"
        await c.client.create(ValidatingAdmissionPolicy, made)
        warnings = await type_warnings(c, 1)
        assert [*warnings] == ["spec.validations[1].expression"]
        (warning,) = warnings.values()
        assert warning.startswith("/v1, Kind=Secret: compilation failed: ")
        assert "VirtualMachine" not in warning


async def test_parameters_have_the_type_of_their_kind():
    expressions = ("params.data.max == '3'", "params.dada.max == '3'", "params.metadata.name == 1")
    async with cluster(about_itself=True) as c:
        made = policy(*expressions, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
        await c.client.create(ValidatingAdmissionPolicy, made)
        warnings = await type_warnings(c, 1)
        assert [*warnings] == [f"spec.validations[{index}].expression" for index in (1, 2)]
        assert "undefined field 'dada'" in warnings["spec.validations[1].expression"]
        assert "no matching overload" in warnings["spec.validations[2].expression"]
        for unknown in (
            {"apiVersion": "v2", "kind": "ConfigMap"},
            {"apiVersion": "x/v1", "kind": "Y"},
        ):
            change = {"spec": {"paramKind": unknown}}
            changed = await c.client.patch(ValidatingAdmissionPolicy, Key("", "rules"), change)
            assert await type_warnings(c, changed.metadata.generation) == {}


async def test_type_errors_are_not_reported_for_wildcards():
    async with cluster(about_itself=True) as c:
        await c.client.create(
            ValidatingAdmissionPolicy, policy("object.dada == 1", resources=("*",))
        )
        assert await type_warnings(c, 1) == {}


async def test_a_policy_whose_warnings_do_not_fit_is_checked_once(monkeypatch):
    async with cluster(about_itself=True) as c:
        monkeypatch.setattr(object_version, "MAX_OBJECT_BYTES", 25_000)
        await c.client.create(ValidatingAdmissionPolicy, policy(*["object.dada == 1"] * 200))
        assert await type_warnings(c, 1) == {}
