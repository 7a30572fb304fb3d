"""Tests of ``authorizer``: what policies and conditions ask about rights."""

import json

import pytest
from tests.unit.server.admission.dynamic.hooks import GROUP, RULE, deny

MAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
MAY = "authorizer.group('').resource('pods').namespace('default').check('delete').allowed()"


@pytest.fixture
async def ann(ask):
    """Somebody who may make ConfigMaps, and delete pods in ``default``."""
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update", "get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
    ]
    await ask.create(f"{ROLES}/namespaces/default/roles", "r", rules=rules)
    await ask.create(
        f"{ROLES}/namespaces/default/rolebindings",
        "r",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        subjects=[
            {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
        ],
    )
    return ask.as_user("ann")


async def policy(ask, expression, **spec):
    made = await ask(
        "POST",
        f"{GROUP}/validatingadmissionpolicies",
        {
            "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [RULE]},
                "validations": [{"expression": expression, **spec}],
            },
        },
    )
    if made.status == 201:
        spec = {"policyName": "p", "validationActions": ["Deny"]}
        await ask.create(f"{GROUP}/validatingadmissionpolicybindings", "p", spec=spec)
    return made


@pytest.mark.parametrize(
    ("expression", "status"),
    [
        (MAY, 201),
        (MAY.replace("'delete'", "'create'"), 422),
        (MAY.replace("'default'", "'other'"), 422),
        ("authorizer.requestResource.check('update').allowed()", 201),
        ("authorizer.requestResource.check('delete').allowed()", 422),
        ("authorizer.path('/metrics').check('get').allowed()", 422),
        (MAY.replace("authorizer", "authorizer.serviceAccount('default', 'robot')"), 201),
        (MAY.replace("authorizer", "authorizer.serviceAccount('default', 'nobody')"), 422),
        ("authorizer.requestResource.check('update').reason().contains('RoleBinding')", 201),
    ],
)
async def test_a_policy_can_check_rights_of_the_user(ask, ann, expression, status):
    assert (await policy(ask, expression)).status == 201
    assert (await ann("POST", MAPS, {"metadata": {"name": "a"}})).status == status


async def test_message_expressions_have_no_authorizer(ask):
    refused = await policy(ask, "true", messageExpression=f"{MAY} ? 'a' : 'b'")
    assert refused.status == 422
    assert "undeclared reference to 'authorizer'" in refused["message"]


async def test_match_conditions_of_a_webhook_can_check_rights_of_the_user(ask, ann, configure):
    conditions = [{"name": "few-rights", "expression": f"!{MAY}"}]
    hook = await configure("h", lambda _: deny(message="no"), matchConditions=conditions)
    body = {"metadata": {"name": "a"}}
    assert (await ann("POST", MAPS, body)).status == 201
    assert hook.reviews == []
    role = {"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}
    changed = await ask.patch(f"{ROLES}/namespaces/default/roles/r", role)
    assert changed.status == 200, json.dumps(changed.document)
    assert (await ann("POST", MAPS, {"metadata": {"name": "b"}})).status == 400
    assert [each["name"] for each in hook.reviews] == ["b"]


async def test_variables_that_cannot_be_used_are_rejected(ask):
    refused = await ask(
        "POST",
        f"{GROUP}/validatingadmissionpolicies",
        {
            "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [RULE]},
                "variables": [{"name": "hour", "expression": "duration('1h')"}],
                "validations": [{"expression": "variables.hour > duration('1m')"}],
            },
        },
    )
    assert refused.status == 422
    assert "a value of type duration cannot be kept" in refused["message"]
