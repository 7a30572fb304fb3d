"""What quotas let in, and their refusals in the real server's words."""

import asyncio

import pytest
from tests.unit.server.conftest import CLAIMS, MACHINES, MAPS, PODS, SERVICES

from corral.api.kinds.core.kinds import CONFIG_MAP
from corral.api.kinds.core.pod import POD
from corral.api.object import Key
from corral.server.request.call import storage
from corral.store import Store

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def a_pod(name, **resources):
    container = {"name": "main", "image": "demo", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def asks(cpu, memory="64Mi"):
    return {"requests": {"cpu": cpu, "memory": memory}}


def a_claim(name, size="1Gi", of=""):
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": of,
            "resources": {"requests": {"storage": size}},
        },
    }


def a_service(name, kind="NodePort", ports=(80,)):
    listed = [{"name": f"p{port}", "port": port} for port in ports]
    return {"metadata": {"name": name}, "spec": {"type": kind, "ports": listed}}


async def limit(ask, hard, **spec):
    await ask.create(QUOTAS, "q", spec={"hard": hard, **spec})


async def test_objects_over_quota_are_rejected(ask):
    await limit(ask, {"requests.cpu": "300m", "pods": "10"})
    assert (await ask("POST", PODS, a_pod("a", **asks("200m")))).status == 201
    refused = await ask("POST", PODS, a_pod("b", **asks("200m")))
    assert refused.status == 403
    assert refused["reason"] == "Forbidden"
    assert refused["details"] == {"name": "b", "kind": "pods"}
    assert refused["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=200m, '
        "used: requests.cpu=200m, limited: requests.cpu=300m"
    )
    assert (await ask("POST", PODS, a_pod("c", **asks("100m")))).status == 201


async def test_a_pod_with_an_invalid_deletion_time_affects_no_other(ask):
    """Such a pod may be stored from before graces were bounded."""
    await limit(ask, {"pods": "2"})
    assert (await ask("POST", PODS, a_pod("broken"))).status == 201
    key = Key("default", "broken")
    broken = ask.server.store.latest(storage(POD), key).document()
    broken["metadata"] |= {
        "deletionTimestamp": "8361-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 200_000_000_000,
    }
    await ask.server.store.write(storage(POD), key, broken)
    assert (await ask("POST", PODS, a_pod("a"))).status == 201
    refused = await ask("POST", PODS, a_pod("b"))
    assert "used: pods=2, limited: pods=2" in refused["message"]


async def test_every_exceeded_resource_is_named(ask):
    await limit(ask, {"memory": "96Mi", "limits.cpu": "1", "count/pods": "1"})
    both = {"requests": {"memory": "64Mi"}, "limits": {"cpu": "600m"}}
    assert (await ask("POST", PODS, a_pod("a", **both))).status == 201
    assert (await ask("POST", PODS, a_pod("b", **both)))["message"].endswith(
        "exceeded quota: q, requested: count/pods=1,limits.cpu=600m,memory=64Mi, "
        "used: count/pods=1,limits.cpu=600m,memory=64Mi, "
        "limited: count/pods=1,limits.cpu=1,memory=96Mi"
    )


async def test_a_pod_must_specify_resources_that_a_quota_bounds(ask):
    await limit(ask, {"requests.memory": "1Gi", "limits.cpu": "1", "pods": "3"})
    pod = a_pod("a")
    pod["spec"]["containers"].append({"name": "beside", "image": "demo"} | {"resources": asks("1")})
    refused = await ask("POST", PODS, pod)
    assert refused.status == 403
    assert refused["message"] == (
        'pods "a" is forbidden: failed quota: q: must specify limits.cpu for: beside,main; '
        "requests.memory for: main"
    )


async def test_of_two_concurrent_requests_only_one_gets_the_rest_of_a_quota(ask):
    await limit(ask, {"pods": "1"})
    answers = await asyncio.gather(*(ask("POST", PODS, a_pod(name)) for name in "abcd"))
    assert sorted(answer.status for answer in answers) == [201, 403, 403, 403]


async def test_a_deletion_frees_quota(ask):
    await limit(ask, {"configmaps": "1"})
    assert (await ask("POST", MAPS, {"metadata": {"name": "a"}})).status == 201
    refused = await ask("POST", MAPS, {"metadata": {"name": "b"}})
    assert refused["message"] == (
        'configmaps "b" is forbidden: exceeded quota: q, requested: configmaps=1, '
        "used: configmaps=1, limited: configmaps=1"
    )
    await ask("DELETE", f"{MAPS}/a")
    assert (await ask("POST", MAPS, {"metadata": {"name": "b"}})).status == 201


async def test_a_dry_run_is_checked_and_uses_no_quota(ask):
    await limit(ask, {"configmaps": "1"})
    tried = f"{MAPS}?dryRun=All"
    assert (await ask("POST", tried, {"metadata": {"name": "a"}})).status == 201
    assert (await ask("POST", MAPS, {"metadata": {"name": "a"}})).status == 201
    assert (await ask("POST", tried, {"metadata": {"name": "b"}})).status == 403


async def test_finished_pods_use_no_resources_but_count_as_objects(ask):
    await limit(ask, {"pods": "1", "count/pods": "2"})
    for name, status in (("a", 201), ("b", 403)):
        assert (await ask("POST", PODS, a_pod(name))).status == status
    over = {"status": {"phase": "Succeeded"}}
    assert (await ask.patch(f"{PODS}/a/status", over)).status == 200
    assert (await ask("POST", PODS, a_pod("b"))).status == 201
    assert (await ask.patch(f"{PODS}/b/status", over)).status == 200
    refused = await ask("POST", PODS, a_pod("c"))
    assert "requested: count/pods=1, used: count/pods=2" in refused["message"]


async def test_objects_of_any_kind_can_be_counted(ask, machine):
    counted = "count/virtualmachineinstances.kubevirt.io"
    await limit(ask, {counted: "1"})
    assert (await ask("POST", MACHINES, machine)).status == 201
    machine["metadata"]["name"] = "another"
    refused = await ask("POST", MACHINES, machine)
    assert refused.status == 403
    assert refused["message"] == (
        'virtualmachineinstances.kubevirt.io "another" is forbidden: exceeded quota: q, '
        f"requested: {counted}=1, used: {counted}=1, limited: {counted}=1"
    )
    assert refused["details"]["group"] == "kubevirt.io"


async def test_services_count_by_type_and_node_ports(ask):
    hard = {"services.nodeports": "2", "services.loadbalancers": "1"}
    await limit(ask, hard)
    assert (await ask("POST", SERVICES, a_service("a", "ClusterIP", (1, 2, 3)))).status == 201
    assert (await ask("POST", SERVICES, a_service("b", ports=(1, 2)))).status == 201
    refused = await ask("POST", SERVICES, a_service("c"))
    assert "requested: services.nodeports=1, used: services.nodeports=2" in refused["message"]
    without = a_service("d", "LoadBalancer")
    without["spec"]["allocateLoadBalancerNodePorts"] = False
    assert (await ask("POST", SERVICES, without)).status == 201


async def test_updates_over_quota_are_rejected(ask):
    await limit(ask, {"services.nodeports": "0"})
    assert (await ask("POST", SERVICES, a_service("a", "ClusterIP"))).status == 201
    refused = await ask.patch(f"{SERVICES}/a", {"spec": {"type": "NodePort"}})
    assert refused.status == 403
    assert (await ask.patch(f"{SERVICES}/a", {"metadata": {"labels": {"b": "c"}}})).status == 200


async def test_claims_count_by_size_and_class(ask):
    hard = {
        "requests.storage": "10Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "2Gi",
        "slow.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
    }
    await limit(ask, hard)
    assert (await ask("POST", CLAIMS, a_claim("a", "2Gi", of="fast"))).status == 201
    refused = await ask("POST", CLAIMS, a_claim("b", "1Gi", of="fast"))
    name = "fast.storageclass.storage.k8s.io/requests.storage"
    assert f"requested: {name}=1Gi, used: {name}=2Gi, limited: {name}=2Gi" in refused["message"]
    assert (await ask("POST", CLAIMS, a_claim("c", of="slow"))).status == 403
    assert (await ask("POST", CLAIMS, a_claim("d", "9Gi"))).status == 403
    assert (await ask("POST", CLAIMS, a_claim("d", "8Gi"))).status == 201


async def test_claims_of_the_default_class_count_for_it(ask):
    await ask.create(CLASSES, "fast", provisioner="example.org/disks")
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    await ask.patch(f"{CLASSES}/fast", {"metadata": {"annotations": mark}})
    name = "fast.storageclass.storage.k8s.io/persistentvolumeclaims"
    await limit(ask, {name: "0"})
    claim = a_claim("a")
    del claim["spec"]["storageClassName"]
    assert (await ask("POST", CLAIMS, claim)).status == 403


@pytest.mark.parametrize(
    ("spec", "pod", "status"),
    [
        ({"scopes": ["BestEffort"]}, a_pod("a"), 403),
        ({"scopes": ["BestEffort"]}, a_pod("a", **asks("1m")), 201),
        ({"scopes": ["NotBestEffort"]}, a_pod("a", **asks("1m")), 403),
        ({"scopes": ["NotBestEffort"]}, a_pod("a"), 201),
        ({"scopes": ["Terminating"]}, a_pod("a"), 201),
        ({"scopes": ["NotTerminating"]}, a_pod("a"), 403),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, a_pod("a"), 201),
    ],
)
async def test_a_quota_with_scopes_applies_to_matching_pods_only(ask, spec, pod, status):
    await limit(ask, {"pods": "0"}, **spec)
    assert (await ask("POST", PODS, pod)).status == status


@pytest.mark.parametrize(
    ("operator", "values", "of_gold", "of_none"),
    [
        ("In", ["gold", "silver"], 403, 201),
        ("In", ["silver"], 201, 201),
        ("NotIn", ["gold"], 201, 403),
        ("Exists", None, 403, 201),
        ("DoesNotExist", None, 201, 403),
    ],
)
async def test_a_quota_can_select_pods_by_priority_class(ask, operator, values, of_gold, of_none):
    requirement = {"scopeName": "PriorityClass", "operator": operator}
    requirement |= {"values": values} if values else {}
    await limit(ask, {"pods": "0"}, scopeSelector={"matchExpressions": [requirement]})
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await ask("POST", classes, {"metadata": {"name": "gold"}, "value": 1})
    gold = a_pod("gold")
    gold["spec"]["priorityClassName"] = "gold"
    assert (await ask("POST", PODS, gold)).status == of_gold
    assert (await ask("POST", PODS, a_pod("none"))).status == of_none


async def test_a_quota_with_scopes_does_not_apply_to_other_kinds(ask):
    await limit(ask, {"count/configmaps": "0"}, scopes=["NotTerminating"])
    assert (await ask("POST", MAPS, {"metadata": {"name": "a"}})).status == 201


async def test_quotas_of_other_namespaces_do_not_apply(ask):
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    await limit(ask, {"configmaps": "0"})
    there = MAPS.replace("default", "other")
    assert (await ask("POST", there, {"metadata": {"name": "a"}})).status == 201


async def test_events_are_never_over_quota(ask):
    await limit(ask, {"count/events": "0"})
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default", "kind": "Pod", "name": "p"},
    }
    assert (await ask("POST", MAPS.replace("configmaps", "events"), event)).status == 201


async def test_a_quota_below_the_usage_admits_nothing(ask):
    for name in "ab":
        assert (await ask("POST", MAPS, {"metadata": {"name": name}})).status == 201
    await limit(ask, {"configmaps": "1"})
    refused = await ask("POST", MAPS, {"metadata": {"name": "c"}})
    assert "used: configmaps=2, limited: configmaps=1" in refused["message"]
    assert (await ask.patch(f"{MAPS}/a", {"data": {"b": "c"}})).status == 200


async def test_usage_of_a_kind_is_computed_once_for_all_quotas(ask, monkeypatch):
    looks = []

    def latest_all(store, kind, namespace="", real=Store.latest_all):
        looks.append((kind, namespace))
        return real(store, kind, namespace)

    for name in "abc":
        await ask.create(QUOTAS, name, spec={"hard": {"configmaps": "2", "pods": "1"}})
    monkeypatch.setattr(Store, "latest_all", latest_all)
    for name, status in (("a", 201), ("b", 201), ("c", 403)):
        looks.clear()
        assert (await ask("POST", MAPS, {"metadata": {"name": name}})).status == status
        assert looks.count((storage(CONFIG_MAP), "default")) == 1


async def test_cached_usage_of_namespaces_without_quotas_is_dropped(ask):
    for name in ("one", "two", "three"):
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        space = f"/api/v1/namespaces/{name}"
        await ask.create(f"{space}/resourcequotas", "q", spec={"hard": {"configmaps": "1"}})
        made = await ask("POST", f"{space}/configmaps", {"metadata": {"name": "a"}})
        assert made.status == 201
        assert set(ask.server.rest.quotas._totals) == {name}
        await ask("DELETE", f"{space}/resourcequotas/q")
