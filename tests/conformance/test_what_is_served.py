"""What the server says it serves, what it lets be added, and what it does not take in."""

import contextlib
import json

import pytest
from tests.conformance.test_http import connected

pytestmark = pytest.mark.conformance

APPROVED = "https://github.com/kubernetes/enhancements/pull/1"


def definition(group):
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"sheep.{group}",
            "annotations": {"api-approved.kubernetes.io": APPROVED},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "sheep", "kind": "Sheep"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@contextlib.contextmanager
def brought(user, group):
    user.kubectl("create", "-f", "-", input=json.dumps(definition(group)))
    yield f"crd/sheep.{group}"
    user.kubectl("delete", "crd", f"sheep.{group}")


def paths(user):
    return json.loads(user.kubectl("get", "--raw", "/"))["paths"]


def test_the_root_lists_what_is_served_now(user):
    group = "/apis/meadow.k8s.io"
    assert {"/api/v1", "/apis/apps/v1", "/version"} <= set(paths(user))
    assert group not in paths(user)
    with brought(user, "meadow.k8s.io") as crd:
        user.kubectl("wait", "--for=condition=Established", crd)
        user.kubectl("wait", "--for=condition=KubernetesAPIApprovalPolicyConformant", crd)
        assert {group, f"{group}/v1"} <= set(paths(user))
    assert group not in paths(user)


@pytest.mark.parametrize("group", ["networking.k8s.io", "custom.metrics.k8s.io"])
def test_nothing_is_added_to_what_the_server_answers_itself(user, group):
    with brought(user, group) as crd:
        user.kubectl("wait", "--for=condition=NamesAccepted=False", crd)
        told = user.kubectl("describe", crd)
        assert f'group "{group}" is served by the server itself' in told
        assert "sheep" not in user.kubectl("api-resources")


def test_a_head_that_is_too_large_is_told_so(user):
    with contextlib.closing(connected(user)) as connection:
        connection.request("GET", "/version", headers={"x-large": "x" * 2_000_000})
        answer = connection.getresponse()
        assert (answer.status, answer.reason) == (431, "Request Header Fields Too Large")
        assert answer.read() == b"431 Request Header Fields Too Large"
