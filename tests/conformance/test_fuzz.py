"""Whatever is sent, the server answers, says what is wrong, and goes on: it never fails itself."""

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.conformance.api import JSON_PATCH, MERGE, STRATEGIC, until
from tests.conformance.manifests import (
    config_map,
    core,
    machine,
    machines,
    path as path_to,
    replica_set,
    sets,
)

pytestmark = pytest.mark.conformance

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x", "labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "c", "image": "i", "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    },
}  # fmt: skip
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "x"},
    "spec": {
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31999,
        "clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "selector": {"a": "b"}, "externalIPs": ["192.0.2.1"],
        "sessionAffinity": "ClientIP", "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
        "ports": [{"name": "a", "port": 80, "targetPort": "web", "protocol": "TCP"}],
    },
}  # fmt: skip
SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "x"}},
    "addressType": "IPv4",
    "endpoints": [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "hostname": "a", "nodeName": "n"}
    ],
    "ports": [{"name": "a", "port": 80, "protocol": "TCP"}],
}
ENDPOINTS = {
    "apiVersion": "v1",
    "kind": "Endpoints",
    "metadata": {"name": "x"},
    "subsets": [{"addresses": [{"ip": "10.0.0.1", "hostname": "a"}], "ports": [{"port": 80}]}],
}
POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "x"},
    "spec": {
        "podSelector": {"matchLabels": {"a": "b"}},
        "ingress": [
            {
                "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                "ports": [{"port": 80, "endPort": 90, "protocol": "TCP"}],
            }
        ],
        "egress": [
            {"to": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}
        ],
        "policyTypes": ["Ingress", "Egress"],
    },
}
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**63, 2**64, 10**30, "", "x", "-", "\0", "\ud83d",
    "é" * 3, "a" * 300, "../..", "{}", "1Gi", "-1Gi", "1e9999", "9" * 400, "2026-13-45T99:99:99Z",
    [], [None], [[]], [1, "a", {}], {}, {"": ""}, {"a": None}, {"a": {"b": {"c": []}}},
    {"$patch": "replace"}, {"$patch": "nosuch"}, {"matchLabels": None}, "kubevirt.io/v1",
)  # fmt: skip


def places(document: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every path in a document."""
    if path:
        yield path
    if isinstance(document, dict | list):
        pairs = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in pairs:
            yield from places(value, (*path, key))


def put(document: Any, path: tuple, value: Any) -> Any:
    """A copy of a document with another value at a path."""
    copy = json.loads(json.dumps(document))
    at = copy
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return copy


def understood(answer: Any, sent: Any) -> None:
    """The server answered, and a refusal is a Status with a reason and a text."""
    assert answer.status_code < 500, f"{sent!r}: {answer.status_code} {answer.text}"
    if answer.status_code >= 400:
        status = answer.json()
        assert status["kind"] == "Status", sent
        assert status["reason"], sent
        assert status["message"], sent


def full_machine() -> dict:
    """A machine that uses much of what there is."""
    document = machine("x", {"a": "b"})
    spec = document["spec"]
    spec["domain"]["cpu"] = {"cores": 1, "sockets": 1, "features": [{"name": "apic"}]}
    spec["domain"]["memory"] = {"guest": "64Mi"}
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["readinessProbe"] = {"tcpSocket": {"port": 22}, "periodSeconds": 1}
    spec["tolerations"] = [{"key": "a", "operator": "Exists"}]
    spec["domain"]["devices"]["disks"] += [{"name": "seed", "disk": {"bus": "virtio"}}]
    spec["volumes"] += [{"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}}]
    return document


@pytest.mark.parametrize(
    "kind", ["machine", "set", "pod", "config map", "service", "endpoints", "slice", "policy"]
)
def test_no_value_of_any_field_breaks_the_server(api, namespace, kind):
    path, document = {
        "machine": (machines(namespace), full_machine()),
        "set": (sets(namespace), replica_set("x", 0)),
        "pod": (core("pods", namespace), POD),
        "config map": (core("configmaps", namespace), config_map("x", a="b")),
        "service": (core("services", namespace), SERVICE),
        "endpoints": (core("endpoints", namespace), ENDPOINTS),
        "slice": (path_to("/apis/discovery.k8s.io/v1", "endpointslices", namespace), SLICE),
        "policy": (path_to("/apis/networking.k8s.io/v1", "networkpolicies", namespace), POLICY),
    }[kind]
    dice = random.Random(kind)
    for place in places(document):
        for value in dice.sample(ODD, 8):
            sent = put(document, place, value)
            body = json.dumps(sent)
            answer = api.post(
                path, content=body, params={"dryRun": "All"},
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
            understood(answer, sent)


def test_accepted_objects_do_not_stop_the_controllers(api, namespace):
    """Odd machines and sets are really made; a plain set beside them gets its machines."""
    dice = random.Random(1)
    headers = {"Content-Type": "application/json"}
    made = 0
    for path, document in (
        (machines(namespace), full_machine()),
        (sets(namespace), replica_set("x", 1)),
    ):
        document["metadata"] = {"generateName": "odd-", "labels": {"a": "b"}}
        for place in places(document):
            for value in dice.sample(ODD, 0 if place[-1] == "replicas" else 10):
                sent = put(document, place, value)
                answer = api.post(path, content=json.dumps(sent), headers=headers)
                understood(answer, sent)
                made += answer.status_code == 201
    assert made > 50
    api.create(sets(namespace), replica_set("plain", 2))
    path = sets(namespace, "plain")
    until(
        "it is ready",
        lambda: api.get_document(path).get("status", {}).get("readyReplicas") == 2,
    )


@pytest.mark.parametrize("media", [MERGE, STRATEGIC, JSON_PATCH])
def test_no_patch_breaks_the_server(api, namespace, media):
    api.create(core("configmaps", namespace), config_map("x", a="b"))
    path = core("configmaps", namespace, "x")
    dice = random.Random(media)
    for value in ODD:
        understood(api.send_patch(path, value, media, dryRun="All"), value)
        for field in ("metadata", "data", "kind", "nosuch", "$patch", "$retainKeys"):
            patch: Any = {field: value}
            understood(api.send_patch(path, patch, media, dryRun="All"), patch)
        for key in (
            "labels", "ownerReferences", "finalizers", "managedFields", "uid",
            "$setElementOrder/finalizers", "$deleteFromPrimitiveList/finalizers",
        ):  # fmt: skip
            patch = {"metadata": {key: value}}
            understood(api.send_patch(path, patch, media, dryRun="All"), patch)
        pointer = dice.choice(["", "/", "/data", "/data/a", "/metadata/name", "/a/0/b", "/data/~1"])
        for action in ("add", "replace", "test", "remove", "move", "copy"):
            step = {
                "op": action,
                "path": pointer,
                "value": value,
                "from": dice.choice(["", "/data"]),
            }
            understood(api.send_patch(path, [step], media, dryRun="All"), step)


@pytest.mark.parametrize("kind", ["node", "pod", "namespace", "service"])
def test_no_strategic_patch_breaks_the_server(api, namespace, kind):
    node = api.items(core("nodes"))[0]
    path, document = {
        "node": (core("nodes", name=node["metadata"]["name"]), node),
        "pod": (core("pods", namespace, "x"), POD),
        "namespace": (core("namespaces", name=namespace), {"spec": {"finalizers": ["a"]}}),
        "service": (core("services", namespace, "x"), SERVICE),
    }[kind]
    if kind in ("pod", "service"):
        api.create(core(f"{kind}s", namespace), document)
    dice = random.Random(kind)
    chosen = [place for place in places(document) if place[0] in ("metadata", "spec", "status")]
    for place in dice.sample(chosen, min(len(chosen), 60)):
        patch: Any = dice.choice(ODD)
        for step in reversed(place):
            patch = [patch] if isinstance(step, int) else {step: patch}
        understood(api.send_patch(path, patch, STRATEGIC, dryRun="All"), patch)


def test_no_query_breaks_the_server(api, namespace):
    names = [
        "limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "timeoutSeconds",
        "resourceVersionMatch", "pretty", "includeObject", "nosuch", "allowWatchBookmarks", "",
    ]  # fmt: skip
    values = [
        "", "0", "-1", "1.5", "x", "9" * 30, "a=b", "a in (", "a in (b),!c", "=", ",", "!",
        "a==b==c", "\0", "é", "%", "a" * 5000, "metadata.name=x,,", "metadata.name=\\",
    ]  # fmt: skip
    for name in names:
        for value in values:
            query = f"{quote(name)}={quote(value)}"
            understood(api.get(f"{core('configmaps', namespace)}?{query}"), query)
    for query in ("&&&", "=", "a&a=b&a=c", "limit=1&limit=2", "%zz", "watch=maybe"):
        understood(api.get(f"{core('configmaps', namespace)}?{query}&timeoutSeconds=1"), query)


def test_no_path_breaks_the_server(api):
    for path in (
        "/", "//", "/api//", "/apis/", "/apis//v1", "/api/v1//pods", "/api/v1/namespaces//pods",
        "/api/v1/namespaces/%00/pods", "/api/v1/namespaces/default/pods/%ff", "/api/v1/pods/x",
        "/api/v1/watch", "/api/v1/watch/", "/api/v1/namespaces/default/pods/x/log/more",
        "/apis/kubevirt.io", "/apis/kubevirt.io/", "/apis/kubevirt.io/v1/", "/openapi/v3/api",
        "/openapi/v3/", "/openapi", "/version/x", "/readyz/x", "/metrics/", "/%2e%2e/etc/passwd",
        "/api/v1/namespaces/default/pods/" + "x" * 3000, "/api/v1/" + "a/" * 500,
    ):  # fmt: skip
        for method in ("GET", "POST", "PUT", "PATCH", "OPTIONS"):
            answer = api.request(method, path, json={})
            assert answer.status_code < 500, f"{method} {path}: {answer.text}"


def test_no_header_breaks_the_server(api, namespace):
    path = core("configmaps", namespace)
    for name, value in (
        ("Accept", ";;;"),
        ("Accept", "application/json;as=Table;v=v9;g=meta.k8s.io"),
        ("Accept", "application/json;as=Nosuch;v=v1;g=meta.k8s.io"),
        ("Accept", "a" * 5000),
        ("Accept", "application/json;q=x"),
        ("Content-Type", ";"),
        ("Content-Type", "application/json; charset=utf-7"),
        ("Content-Type", "a/" + "b" * 3000),
        ("Impersonate-User", ""),
        ("Impersonate-User", "é"),
        ("Impersonate-Group", "system:masters"),
        ("If-None-Match", '"' * 100),
        ("Accept-Encoding", "br;q=0, *;q=x"),
        ("Authorization", "Bearer \xff"),
    ):
        headers = {name: value.encode("latin-1")}
        for answer in (
            api.get(path, headers=headers),
            api.post(path, content=json.dumps(config_map()), headers=headers),
        ):
            assert answer.status_code < 500, f"{name}: {value}: {answer.text}"
