"""kubernetes-asyncio, the client that operators in Python use: unmodified, on a live server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch
from tests.conformance.manifests import replica_set

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("kubernetes-asyncio"),
]

GROUP, VERSION, PLURAL = "kubevirt.io", "v1", "virtualmachineinstancereplicasets"


@pytest.fixture
async def connection(user) -> AsyncIterator[client.ApiClient]:
    connection = await config.new_client_from_config(str(user.one.directory / "kubeconfig"))
    async with connection:
        yield connection


@pytest.fixture
def core(connection) -> client.CoreV1Api:
    return client.CoreV1Api(connection)


@pytest.fixture
def custom(connection) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(connection)


def place(namespace: str, name: str = "") -> dict[str, str]:
    where = {"group": GROUP, "version": VERSION, "namespace": namespace, "plural": PLURAL}
    return where | {"name": name} if name else where


@pytest.mark.does("connect")
async def test_the_version(connection):
    server = await client.VersionApi(connection).get_code()
    assert server.git_version.startswith(f"v{server.major}.{server.minor}")


async def test_namespaces(core):
    names = [one.metadata.name for one in (await core.list_namespace()).items]
    assert {"default", "kube-system", "kube-node-lease"} <= set(names)


@pytest.mark.does("typed")
async def test_the_life_of_a_config_map(core, namespace):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="x"), data={"a": "1"})
    made = await core.create_namespaced_config_map(namespace, body)
    assert made.metadata.uid
    made.data["a"] = "2"
    await core.replace_namespaced_config_map("x", namespace, made)
    await core.patch_namespaced_config_map("x", namespace, {"data": {"b": "3"}})
    read = await core.read_namespaced_config_map("x", namespace)
    assert read.data == {"a": "2", "b": "3"}
    with pytest.raises(client.ApiException) as refused:
        await core.replace_namespaced_config_map("x", namespace, made)
    assert refused.value.status == 409
    await core.delete_namespaced_config_map("x", namespace)
    with pytest.raises(client.ApiException) as refused:
        await core.read_namespaced_config_map("x", namespace)
    assert refused.value.status == 404


async def test_secrets_and_service_accounts(core, namespace):
    metadata = client.V1ObjectMeta(name="login")
    secret = client.V1Secret(metadata=metadata, string_data={"user": "ada"})
    made = await core.create_namespaced_secret(namespace, secret)
    assert made.data == {"user": "YWRh"}
    account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="builder"))
    await core.create_namespaced_service_account(namespace, account)
    listed = await core.list_namespaced_service_account(namespace)
    assert "builder" in [one.metadata.name for one in listed.items]


@pytest.mark.does("lease")
async def test_leases(connection, namespace):
    leases = client.CoordinationV1Api(connection)
    spec = client.V1LeaseSpec(holder_identity="me", lease_duration_seconds=15)
    body = client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=spec)
    made = await leases.create_namespaced_lease(namespace, body)
    made.spec.holder_identity = "you"
    taken = await leases.replace_namespaced_lease("leader", namespace, made)
    assert taken.spec.holder_identity == "you"


async def test_nodes(core):
    (node, *_) = (await core.list_node()).items
    assert node.status.capacity["cpu"]
    assert {one.type: one.status for one in node.status.conditions}["Ready"] == "True"


@pytest.mark.does("custom")
@pytest.mark.does("scale")
async def test_a_replica_set_as_a_custom_object(core, custom, namespace):
    made = await custom.create_namespaced_custom_object(
        **place(namespace), body=replica_set("web", 1)
    )
    assert made["metadata"]["generation"] == 1
    await ready(custom, namespace, 1)
    scale = await custom.get_namespaced_custom_object_scale(**place(namespace, "web"))
    assert scale["status"] == {"replicas": 1, "selector": "app=web"}
    patched = await custom.patch_namespaced_custom_object_scale(
        **place(namespace, "web"),
        body={"spec": {"replicas": 2}},
        _content_type="application/merge-patch+json",  # the client takes every patch for a list
    )
    assert patched["spec"] == {"replicas": 2}
    await ready(custom, namespace, 2)
    pods = await core.list_namespaced_pod(namespace, label_selector="kubevirt.io=virt-launcher")
    assert [pod.status.phase for pod in pods.items] == ["Running"] * 2
    status = await custom.get_namespaced_custom_object_status(**place(namespace, "web"))
    assert status["status"]["labelSelector"] == "app=web"
    listed = await custom.list_namespaced_custom_object(**place(namespace), label_selector="!x")
    assert [one["metadata"]["name"] for one in listed["items"]] == ["web"]
    listed = await custom.list_cluster_custom_object(GROUP, VERSION, PLURAL)
    assert namespace in [one["metadata"]["namespace"] for one in listed["items"]]
    document = await custom.get_namespaced_custom_object(**place(namespace, "web"))
    document["spec"]["replicas"] = 0
    await replaced(custom, namespace, document)
    gone = await custom.delete_namespaced_custom_object(**place(namespace, "web"))
    assert gone["status"] == "Success"


async def ready(custom: client.CustomObjectsApi, namespace: str, replicas: int) -> None:
    """Wait, by a watch, until a set has so many ready machines."""
    async with watch.Watch() as watcher, asyncio.timeout(60):
        stream = watcher.stream(custom.list_namespaced_custom_object, **place(namespace))
        async for event in stream:
            if event["object"].get("status", {}).get("readyReplicas") == replicas:
                return


async def replaced(
    custom: client.CustomObjectsApi, namespace: str, document: dict[str, Any]
) -> None:
    """Replace, as often as the controller was quicker."""
    while True:
        try:
            await custom.replace_namespaced_custom_object(**place(namespace, "web"), body=document)
        except client.ApiException as error:
            if error.status != 409:
                raise
            newest = await custom.get_namespaced_custom_object(**place(namespace, "web"))
            document["metadata"]["resourceVersion"] = newest["metadata"]["resourceVersion"]
        else:
            return


@pytest.mark.does("watch")
async def test_a_watch_sends_each_change(core, namespace):
    listed = await core.list_namespaced_secret(namespace)
    async with watch.Watch() as watcher, asyncio.timeout(60):
        stream = watcher.stream(
            core.list_namespaced_secret, namespace,
            resource_version=listed.metadata.resource_version,
        )  # fmt: skip
        body = client.V1Secret(metadata=client.V1ObjectMeta(name="x"))
        await core.create_namespaced_secret(namespace, body)
        await core.patch_namespaced_secret("x", namespace, {"stringData": {"a": "1"}})
        await core.delete_namespaced_secret("x", namespace)
        events = [await anext(stream) for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert {event["object"].metadata.name for event in events} == {"x"}


@pytest.mark.does("list")
async def test_pages(core, namespace):
    for name in "abc":
        body = client.V1Secret(metadata=client.V1ObjectMeta(name=name))
        await core.create_namespaced_secret(namespace, body)
    first = await core.list_namespaced_secret(namespace, limit=2)
    token = first.metadata._continue
    rest = await core.list_namespaced_secret(namespace, limit=2, _continue=token)
    assert [one.metadata.name for one in first.items + rest.items] == ["a", "b", "c"]


@pytest.mark.does("errors")
async def test_a_refusal_says_what_is_wrong(custom, namespace):
    body = replica_set("web", 1)
    body["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    with pytest.raises(client.ApiException, match=r"selector does not match labels\.") as refused:
        await custom.create_namespaced_custom_object(**place(namespace), body=body)
    assert refused.value.status == 422


@pytest.mark.does("discovery")
async def test_discovery(connection):
    groups = await client.ApisApi(connection).get_api_versions()
    assert "kubevirt.io" in [group.name for group in groups.groups]
    resources = await client.CoreV1Api(connection).get_api_resources()
    assert "pods" in [resource.name for resource in resources.resources]
