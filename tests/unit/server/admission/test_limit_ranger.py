"""What limit ranges give to pods, and refuse, in the real server's words."""

import pytest
from tests.unit.server.admission.test_resource_quota import a_claim, a_pod
from tests.unit.server.conftest import CLAIMS, PODS

RANGES = "/api/v1/namespaces/default/limitranges"


async def limit(ask, name="limits", of="Container", **item):
    await ask.create(RANGES, name, spec={"limits": [{"type": of, **item}]})


async def test_containers_get_default_resources(ask):
    await limit(ask, default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "100m"})
    pod = a_pod("a", limits={"memory": "64Mi"})
    pod["spec"]["initContainers"] = [{"name": "first", "image": "demo"}]
    made = await ask("POST", PODS, pod)
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "64Mi"},
        "requests": {"cpu": "100m", "memory": "64Mi"},
    }
    assert made["spec"]["initContainers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }
    assert made.metadata["annotations"] == {
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: cpu request for container main; cpu limit for container main; "
            "cpu, memory request for init container first; "
            "cpu, memory limit for init container first"
        )
    }
    assert made["status"]["qosClass"] == "Burstable"


async def test_defaults_determine_the_qos_class(ask):
    both = {"cpu": "1", "memory": "1Gi"}
    await limit(ask, default=both)
    assert (await ask("POST", PODS, a_pod("a")))["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("item", "resources", "fault"),
    [
        (
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"max": {"cpu": "1"}, "default": {"cpu": "1"}},
            {"requests": {"cpu": "1500m"}},
            "maximum cpu usage per Container is 1, but request is 1500m",
        ),
        (
            {"min": {"memory": "64Mi"}},
            {"requests": {"memory": "32Mi"}},
            "minimum memory usage per Container is 64Mi, but request is 32Mi",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "300m"}, "requests": {"cpu": "100m"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            (
                "cpu max limit to request ratio per Container is 2, but no request is specified or "
                "request is 0"
            ),
        ),
        (
            {"max": {"cpu": "1", "memory": "1Mi"}},
            {"limits": {"cpu": "2", "memory": "2Mi"}},
            (
                "[maximum cpu usage per Container is 1, but limit is 2, "
                "maximum memory usage per Container is 1Mi, but limit is 2Mi]"
            ),
        ),
    ],
)
async def test_containers_must_be_within_the_range(ask, item, resources, fault):
    await limit(ask, **item)
    refused = await ask("POST", PODS, a_pod("a", **resources))
    assert refused.status == 403
    assert refused["message"] == f'pods "a" is forbidden: {fault}'


async def test_all_containers_of_a_pod_together_must_be_within_the_range(ask):
    await limit(ask, of="Pod", min={"cpu": "100m"}, max={"cpu": "1"})
    resources = {"limits": {"cpu": "600m"}}
    pod = a_pod("a", **resources)
    pod["spec"]["overhead"] = {"cpu": "500m"}
    assert (await ask("POST", PODS, pod)).status == 201, "overhead is none of a range's business"
    pod = a_pod("b", **resources)
    pod["spec"]["initContainers"] = [
        {"name": "log", "image": "i", "restartPolicy": "Always", "resources": resources}
    ]
    refused = await ask("POST", PODS, pod)
    assert refused["message"].endswith("maximum cpu usage per Pod is 1, but limit is 1200m")
    assert (await ask("POST", PODS, a_pod("d")))["message"].endswith(
        "[minimum cpu usage per Pod is 100m.  No request is specified, "
        "maximum cpu usage per Pod is 1.  No limit is specified]"
    )


async def test_existing_pods_are_not_checked_again(ask):
    assert (await ask("POST", PODS, a_pod("a"))).status == 201
    await limit(ask, of="Pod", min={"cpu": "1"})
    assert (await ask.patch(f"{PODS}/a", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_claims_must_be_within_the_range(ask):
    await limit(ask, of="PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "2Gi"})
    assert (await ask("POST", CLAIMS, a_claim("a", "1Gi"))).status == 201
    refused = await ask("POST", CLAIMS, a_claim("b", "512Mi"))
    assert refused.status == 403
    assert refused["message"] == (
        'persistentvolumeclaims "b" is forbidden: minimum storage usage per PersistentVolumeClaim '
        "is 1Gi, but request is 512Mi"
    )
    refused = await ask("POST", CLAIMS, a_claim("b", "3Gi"))
    assert refused["message"].endswith(
        "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
    )


async def test_a_dry_run_is_rejected_as_well(ask):
    await limit(ask, max={"cpu": "1"})
    pod = a_pod("a", limits={"cpu": "2"})
    assert (await ask("POST", f"{PODS}?dryRun=All", pod)).status == 403


async def test_a_pod_without_required_resources_is_rejected(ask):
    await limit(ask, max={"cpu": "1"}, default={"cpu": "1"})
    for bare in ({}, {"spec": {}}):
        refused = await ask("POST", PODS, {"metadata": {"name": "a"}, **bare})
        assert refused.status == 422
        assert "spec.containers: Required value" in refused["message"]
    await limit(ask, "claims", "PersistentVolumeClaim", max={"storage": "1Gi"})
    refused = await ask("POST", CLAIMS, {"metadata": {"name": "a"}})
    assert refused.status in (403, 422)
