"""CPU and memory of a pod change by its subresource, and nothing else does."""

import pytest
from tests.unit.server.conftest import STRATEGIC

PODS = "/api/v1/namespaces/default/pods"
POD = f"{PODS}/pod"
RESIZE = f"{POD}/resize"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


@pytest.fixture
async def stored(ask, pod):
    resources = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    pod["spec"]["containers"][0]["resources"] = resources
    answer = await ask("POST", PODS, pod)
    assert answer.status == 201
    return answer


def resources(stored, **values):
    name = stored["spec"]["containers"][0]["name"]
    return {"spec": {"containers": [{"name": name, "resources": values}]}}


async def test_requests_and_limits_change(ask, stored):
    change = resources(stored, requests={"cpu": "200m"}, limits={"memory": "3Gi"})
    answer = await ask("PATCH", RESIZE, change, headers=STRATEGIC)
    assert answer.status == 200
    found = (await ask("GET", POD))["spec"]["containers"][0]["resources"]
    assert found["requests"] == {"cpu": "200m", "memory": "1Gi"}
    assert found["limits"] == {"memory": "3Gi"}


async def test_the_subresource_changes_nothing_else(ask, stored):
    change = resources(stored, requests={"cpu": "200m"})
    change["metadata"] = {"labels": {"a": "b"}}
    change["spec"]["containers"][0]["image"] = "another"
    change["spec"]["nodeName"] = "elsewhere"
    assert (await ask("PATCH", RESIZE, change, headers=STRATEGIC)).status == 200
    found = await ask("GET", POD)
    assert "a" not in (found["metadata"].get("labels") or {})
    assert found["spec"]["containers"][0]["image"] == stored["spec"]["containers"][0]["image"]
    assert found["spec"].get("nodeName") == stored["spec"].get("nodeName")


async def test_resources_are_changed_by_the_subresource_only(ask, stored):
    change = resources(stored, requests={"cpu": "200m"})
    refused = await ask("PATCH", POD, change, headers=STRATEGIC)
    assert refused.status == 422
    assert "pod updates may not change fields other than" in refused["message"]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"requests": {"memory": "5Gi"}}, "must be less than or equal to memory limit of 2Gi"),
        ({"requests": {"ephemeral-storage": "1Gi"}}, "only cpu and memory resources are mutable"),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "Pod QOS Class may not change as a result of resizing",
        ),
    ],
)
async def test_an_invalid_resize_is_refused(ask, stored, values, fault):
    refused = await ask("PATCH", RESIZE, resources(stored, **values), headers=STRATEGIC)
    assert refused.status == 422
    assert fault in refused["message"]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"limits": {"memory": None}}, "limits: Forbidden: resource limits cannot be removed"),
        ({"limits": None}, "limits: Forbidden: resource limits cannot be removed"),
        ({"requests": {"cpu": None}}, "requests: Forbidden: resource requests cannot be removed"),
    ],
)
async def test_limits_and_requests_are_not_removed_by_a_resize(ask, stored, values, fault):
    refused = await ask("PATCH", RESIZE, resources(stored, **values), headers=STRATEGIC)
    assert refused.status == 422
    assert fault in refused["message"]


async def test_a_container_cannot_be_added_by_a_resize(ask, stored):
    change = {"spec": {"containers": [{"name": "more", "image": "x"}]}}
    refused = await ask("PATCH", RESIZE, change, headers=STRATEGIC)
    assert refused.status == 422
    assert "containers may not be added, removed or renamed" in refused["message"]


async def test_a_quota_bounds_a_resize(ask, stored):
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.memory": "1536Mi"}}}
    assert (await ask("POST", QUOTAS, quota)).status == 201
    change = resources(stored, requests={"memory": "2Gi"})
    refused = await ask("PATCH", RESIZE, change, headers=STRATEGIC)
    assert refused.status == 403
    assert "exceeded quota: small, requested: requests.memory=1Gi" in refused["message"]
    change = resources(stored, requests={"memory": "1536Mi"})
    assert (await ask("PATCH", RESIZE, change, headers=STRATEGIC)).status == 200


async def test_other_changes_of_a_pod_pass_a_quota_for_what_it_does_not_limit(ask, stored):
    await ask.create(QUOTAS, "q", spec={"hard": {"limits.cpu": "4"}})
    change = {"spec": {"activeDeadlineSeconds": 600}}
    assert (await ask("PATCH", POD, change, headers=STRATEGIC)).status == 200
