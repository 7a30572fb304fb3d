"""Tests of ValidatingAdmissionPolicies: what they let pass, and what follows from a breach."""

import json

import pytest
from tests.unit.server.admission.dynamic.hooks import GROUP, RULE
from tests.unit.server.conftest import MAPS

from corral.api.request import Request
from corral.server.authn.authenticator import ADMINISTRATOR

A = {"metadata": {"name": "a"}, "data": {"x": "1"}}
LIMIT = {"expression": "object.data.x == '1'", "message": "x has to be 1"}


@pytest.fixture
def bind(ask):
    """Makes a policy and binds it."""

    async def act(name, *validations, actions=("Deny",), params=None, resources=None, **spec):
        made = await ask(
            "POST",
            f"{GROUP}/validatingadmissionpolicies",
            {
                "metadata": {"name": name},
                "spec": {
                    "matchConstraints": {"resourceRules": [RULE]},
                    "validations": list(validations),
                    **spec,
                },
            },
        )
        assert made.status == 201, made.text
        binding = {"policyName": name, "validationActions": list(actions)}
        if params is not None:
            binding["paramRef"] = params
        if resources is not None:
            binding["matchResources"] = resources
        made = await ask(
            "POST",
            f"{GROUP}/validatingadmissionpolicybindings",
            {"metadata": {"name": f"{name}-everywhere"}, "spec": binding},
        )
        assert made.status == 201, made.text

    return act


async def test_a_violation_is_rejected_with_the_name_of_the_policy(ask, bind):
    await bind("limit", LIMIT)
    assert (await ask("POST", MAPS, A)).status == 201
    refused = await ask.patch(f"{MAPS}/a", {"data": {"x": "2"}})
    assert refused.status == 422
    assert refused["reason"] == "Invalid"
    assert refused["message"] == (
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'limit' with binding "
        "'limit-everywhere' denied request: x has to be 1"
    )
    assert (await ask("GET", f"{MAPS}/a"))["data"] == {"x": "1"}


async def test_a_policy_without_a_binding_has_no_effect(ask):
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "false"}]}
    made = await ask(
        "POST",
        f"{GROUP}/validatingadmissionpolicies",
        {"metadata": {"name": "never"}, "spec": spec},
    )
    assert made["spec"]["failurePolicy"] == "Fail"
    assert (await ask("POST", MAPS, A)).status == 201


@pytest.mark.parametrize(
    ("validation", "code", "message"),
    [
        ({"expression": "false", "reason": "Forbidden"}, 403, "failed expression: false"),
        ({"expression": "false", "reason": "RequestEntityTooLarge"}, 413, "failed expression"),
        ({"expression": "object.nope", "message": "x"}, 422, "no such key: nope"),
        (
            {"expression": "false", "messageExpression": "'x is ' + object.data.x"},
            422,
            "denied request: x is 1",
        ),
        (
            {"expression": "false", "messageExpression": "object.nope", "message": "plain"},
            422,
            "denied request: plain",
        ),
    ],
)
async def test_a_validation_has_its_message_and_reason(ask, bind, validation, code, message):
    if validation["expression"] == "object.nope":
        validation = {**validation, "expression": "object.nope == 1"}
    if validation.get("messageExpression") == "object.nope":
        validation = {**validation, "messageExpression": "string(object.nope)"}
    await bind("rule", validation)
    refused = await ask("POST", MAPS, A)
    assert refused.status == code
    assert message in refused["message"]


async def test_failure_policy_ignore_applies_to_evaluation_errors(ask, bind):
    await bind("odd", {"expression": "object.nope == 1"}, failurePolicy="Ignore")
    assert (await ask("POST", MAPS, A)).status == 201


async def test_a_binding_can_warn_instead_of_denying(ask, bind):
    await bind("limit", LIMIT, actions=("Warn", "Audit"))
    made = await ask("POST", MAPS, {**A, "data": {"x": "2"}})
    assert made.status == 201
    message = "ValidatingAdmissionPolicy 'limit' with binding 'limit-everywhere': x has to be 1"
    assert made.warnings == [f'299 - "Validation failed for {message}"']


async def test_variables_have_the_types_of_their_expressions(ask, bind):
    variables = [
        {"name": "many", "expression": "size(object.data) > 1"},
        {"name": "few", "expression": "!variables.many"},
        {"name": "name", "expression": "string(object.metadata.name)"},
    ]
    await bind("few", {"expression": "variables.few"}, variables=variables)
    made = await ask("POST", MAPS, {"metadata": {"name": "one"}, "data": {"x": "1"}})
    assert made.status == 201, made.text
    refused = await ask("POST", MAPS, {"metadata": {"name": "two"}, "data": {"x": "1", "y": "2"}})
    assert "failed expression: variables.few" in refused["message"]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("variables.name", "must evaluate to bool"),
        ("variables.any", "must evaluate to bool"),
        ("variables.later", "undefined field 'later'"),
        ("variables.name > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
    ],
)
async def test_expressions_with_wrong_types_of_variables_are_rejected(ask, expression, why):
    variables = [
        {"name": "name", "expression": "string(object.metadata.name)"},
        {"name": "any", "expression": "object.metadata"},
    ]
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "variables": variables}
    spec["validations"] = [{"expression": expression}]
    body = {"metadata": {"name": "never"}, "spec": spec}
    refused = await ask("POST", f"{GROUP}/validatingadmissionpolicies", body)
    assert refused.status == 422
    assert why in refused["message"]


async def test_validations_can_use_variables_params_namespace_and_user(ask, bind):
    await ask("POST", MAPS, {"metadata": {"name": "limits"}, "data": {"most": "3"}})
    await bind(
        "limit",
        {"expression": "variables.x <= variables.most"},
        {"expression": "namespaceObject.metadata.name == request.namespace"},
        {"expression": "request.userInfo.username != 'somebody'"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        params={"name": "limits", "parameterNotFoundAction": "Deny"},
        variables=[
            {"name": "most", "expression": "int(params.data.most)"},
            {"name": "x", "expression": "int(object.data.x)"},
        ],
    )
    assert (await ask("POST", MAPS, A)).status == 201
    refused = await ask("POST", MAPS, {"metadata": {"name": "b"}, "data": {"x": "4"}})
    assert "failed expression: variables.x <= variables.most" in refused["message"]
    odd = await ask("POST", MAPS, {"metadata": {"name": "b"}, "data": {"x": "y"}})
    assert 'composited variable "x" fails to evaluate: ' in odd["message"]


@pytest.mark.parametrize(("action", "code"), [("Deny", 422), ("Allow", 201)])
async def test_missing_params_deny_or_allow_by_the_binding(ask, bind, action, code):
    await bind(
        "limit",
        {"expression": "false"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        params={"name": "nobody", "parameterNotFoundAction": action},
    )
    answer = await ask("POST", MAPS, A)
    assert answer.status == code
    if code != 201:
        assert "no params found for policy binding" in answer["message"]


async def test_each_object_that_a_selector_matches_is_a_param(ask, bind):
    for name, most in (("low", "2"), ("high", "9")):
        await ask(
            "POST",
            MAPS,
            {"metadata": {"name": name, "labels": {"limit": "yes"}}, "data": {"m": most}},
        )
    await bind(
        "limit",
        {"expression": "int(object.data.x) <= int(params.data.m)"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        params={
            "selector": {"matchLabels": {"limit": "yes"}},
            "parameterNotFoundAction": "Deny",
        },
    )
    assert (await ask("POST", MAPS, A)).status == 201
    assert (await ask("POST", MAPS, {"metadata": {"name": "b"}, "data": {"x": "3"}})).status == 422


async def test_bindings_and_match_conditions_restrict_a_policy(ask, bind):
    watched = {"objectSelector": {"matchLabels": {"watched": "yes"}}}
    await bind("limit", {"expression": "false"}, resources=watched)
    assert (await ask("POST", MAPS, A)).status == 201
    labelled = {"metadata": {"name": "b", "labels": {"watched": "yes"}}}
    assert (await ask("POST", MAPS, labelled)).status == 422
    condition = {"name": "named-c", "expression": "object.metadata.name == 'c'"}
    await bind("named", {"expression": "false"}, matchConditions=[condition])
    assert (await ask("POST", MAPS, {"metadata": {"name": "d"}})).status == 201
    assert (await ask("POST", MAPS, {"metadata": {"name": "c"}})).status == 422


async def test_deletions_are_validated_by_the_old_object(ask, bind):
    await ask("POST", MAPS, A)
    await bind("keep", {"expression": "request.operation != 'DELETE' || oldObject.data.x != '1'"})
    assert (await ask("DELETE", f"{MAPS}/a")).status == 422
    await ask.patch(f"{MAPS}/a", {"data": {"x": "2"}})
    assert (await ask("DELETE", f"{MAPS}/a")).status == 200


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.matchConstraints: Required value"),
        ({"validations": []}, "validations or auditAnnotations must contain at least one item"),
        (
            {"validations": [{"expression": "object.x"}]},
            'spec.validations[0].expression: Invalid value: "object.x": must evaluate to bool',
        ),
        (
            {"validations": [{"expression": "nobody == 1"}]},
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nobody'",
        ),
        (
            {"validations": [{"expression": "params.x == 1"}]},
            "undeclared reference to 'params",
        ),
        ({"validations": [{"expression": " "}]}, "Required value: expression is not specified"),
        ({"variables": [{"name": "a b", "expression": "1"}]}, "name is not a valid CEL identifier"),
        ({"failurePolicy": "Maybe"}, 'Unsupported value: "Maybe": supported values: "Fail"'),
        ({"paramKind": {"apiVersion": "a/b/c", "kind": "X"}}, "unexpected GroupVersion string"),
    ],
)
async def test_an_invalid_policy_is_rejected(ask, spec, message):
    refused = await ask(
        "POST",
        f"{GROUP}/validatingadmissionpolicies",
        {"metadata": {"name": "odd"}, "spec": {"validations": [LIMIT], **spec}},
    )
    assert refused.status == 422
    assert message in refused["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"validationActions": ["Deny", "Warn"]}, "must not contain both Deny and Warn"),
        ({"validationActions": []}, "at least one validation action is required"),
        ({"validationActions": ["Deny"], "policyName": ""}, "spec.policyName: Required value"),
        (
            {"validationActions": ["Deny"], "paramRef": {"name": "a"}},
            "spec.paramRef.parameterNotFoundAction: Required value",
        ),
    ],
)
async def test_an_invalid_binding_is_rejected(ask, spec, message):
    refused = await ask(
        "POST",
        f"{GROUP}/validatingadmissionpolicybindings",
        {"metadata": {"name": "odd"}, "spec": {"policyName": "a", **spec}},
    )
    assert refused.status == 422
    assert message in refused["message"]


async def test_violations_and_audit_annotations_are_in_the_audit_log(ask, bind):
    await bind(
        "watch",
        {"expression": "object.data.x == '2'"},
        actions=("Audit",),
        auditAnnotations=[{"key": "x", "valueExpression": "'x is ' + object.data.x"}],
    )
    request = Request(method="POST", path=MAPS, body=json.dumps(A).encode(), user=ADMINISTRATOR)
    assert (await ask.server.handle(request)).status == 201
    assert request.annotations["watch/x"] == "x is 1"
    (failure,) = json.loads(
        request.annotations["validation.policy.admission.k8s.io/validation_failure"]
    )
    assert failure["message"] == "failed expression: object.data.x == '2'"
    assert failure["binding"] == "watch-everywhere"
