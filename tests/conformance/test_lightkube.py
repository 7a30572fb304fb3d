"""lightkube, a client with typed and generic resources: unmodified, on a live server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import ConfigMap as ConfigMapModel
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap, Event, Namespace, Node, Pod, Secret
from lightkube.types import PatchType
from tests.conformance.manifests import machine, replica_set

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("lightkube"),
]

ReplicaSet = create_namespaced_resource(
    "kubevirt.io", "v1", "VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets"
)
Machine = create_namespaced_resource(
    "kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances"
)


@pytest.fixture
async def client(user) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(
        config=KubeConfig.from_file(user.one.directory / "kubeconfig"), trust_env=False
    )
    yield client
    await client.close()


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def secret(name: str) -> Secret:
    return Secret(metadata=ObjectMeta(name=name))


@pytest.mark.does("typed")
async def test_the_life_of_a_config_map(client, namespace):
    made = await client.create(config_map("x", a="1"), namespace=namespace)
    assert isinstance(made, ConfigMapModel)
    made.data["a"] = "2"
    assert (await client.replace(made)).data == {"a": "2"}
    with pytest.raises(ApiError) as refused:
        await client.replace(made)
    assert (refused.value.status.code, refused.value.status.reason) == (409, "Conflict")
    await client.delete(ConfigMap, "x", namespace=namespace)
    with pytest.raises(ApiError) as refused:
        await client.get(ConfigMap, "x", namespace=namespace)
    assert refused.value.status.reason == "NotFound"


@pytest.mark.does("patch")
@pytest.mark.parametrize(
    ("patch", "patch_type"),
    [
        ({"data": {"b": "2"}}, PatchType.MERGE),
        ({"data": {"b": "2"}}, PatchType.STRATEGIC),
        ([{"op": "add", "path": "/data/b", "value": "2"}], PatchType.JSON),
    ],
)
async def test_patches(client, namespace, patch, patch_type):
    await client.create(config_map("x", a="1"), namespace=namespace)
    changed = await client.patch(ConfigMap, "x", patch, namespace=namespace, patch_type=patch_type)
    assert changed.data == {"a": "1", "b": "2"}


@pytest.mark.does("apply")
async def test_server_side_apply(client, namespace):
    applied = await client.apply(config_map("x", a="1"), namespace=namespace, field_manager="one")
    assert applied.data == {"a": "1"}
    with pytest.raises(ApiError) as refused:
        await client.apply(config_map("x", a="2"), namespace=namespace, field_manager="two")
    assert refused.value.status.details.causes[0].reason == "FieldManagerConflict"
    mine = config_map("x", a="2")
    forced = await client.apply(mine, namespace=namespace, field_manager="two", force=True)
    assert forced.data == {"a": "2"}


@pytest.mark.does("list")
async def test_lists_are_read_page_by_page(client, namespace):
    for name in "abcde":
        await client.create(secret(name), namespace=namespace)
    listed = client.list(Secret, namespace=namespace, chunk_size=2)
    assert [one.metadata.name async for one in listed] == list("abcde")
    chosen = client.list(Secret, namespace=namespace, fields={"metadata.name": "c"})
    assert [one.metadata.name async for one in chosen] == ["c"]


@pytest.mark.does("watch")
async def test_a_watch_follows_a_list(client, namespace):
    await client.create(secret("a"), namespace=namespace)
    events = []
    async with asyncio.timeout(60):
        async for change, one in client.watch(Secret, namespace=namespace):
            events.append((change, one.metadata.name))
            if len(events) == 1:
                await client.patch(Secret, "a", {"stringData": {"x": "1"}}, namespace=namespace)
            elif len(events) == 2:
                await client.delete(Secret, "a", namespace=namespace)
            else:
                break
    assert events == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.does("custom")
@pytest.mark.does("scale")
async def test_a_replica_set_as_a_generic_resource(client, namespace):
    await client.create(ReplicaSet(replica_set("web", 2)), namespace=namespace)
    await ready(client, namespace, 2)
    found = await client.get(ReplicaSet, "web", namespace=namespace)
    assert found.status["labelSelector"] == "app=web"
    await client.patch(ReplicaSet, "web", {"spec": {"replicas": 1}}, namespace=namespace,
                       patch_type=PatchType.MERGE)  # fmt: skip
    await ready(client, namespace, 1)
    scale = await client.get(ReplicaSet.Scale, "web", namespace=namespace)
    assert scale.spec.replicas == 1
    scale.spec.replicas = 3
    await client.replace(scale, "web", namespace=namespace)
    await ready(client, namespace, 3)
    machines = [one async for one in client.list(Machine, namespace=namespace)]
    kept = [one for one in machines if one.metadata.deletionTimestamp is None]
    assert [one.status["phase"] for one in kept] == ["Running"] * 3
    pods = [one async for one in client.list(Pod, namespace=namespace, labels={"app": "web"})]
    assert sum(pod.metadata.deletionTimestamp is None for pod in pods) == 3
    assert all(pod.metadata.ownerReferences[0].kind == "VirtualMachineInstance" for pod in pods)
    await client.delete(ReplicaSet, "web", namespace=namespace)


async def ready(client: AsyncClient, namespace: str, replicas: int) -> None:
    """Wait, by a watch, until a set has so many ready machines and no more."""
    async with asyncio.timeout(60):
        async for _, found in client.watch(ReplicaSet, namespace=namespace):
            status = found.status or {}
            if status.get("readyReplicas") == status.get("replicas") == replicas:
                return


@pytest.mark.does("status")
async def test_a_condition_is_waited_for(client, namespace):
    await client.create(Machine(machine("one")), namespace=namespace)
    async with asyncio.timeout(60):
        await client.wait(Machine, "one", for_conditions=["Ready"], namespace=namespace)
    await client.delete(Machine, "one", namespace=namespace)


@pytest.mark.does("errors")
async def test_a_strategic_patch_of_a_custom_kind_is_refused(client, namespace):
    await client.create(ReplicaSet(replica_set("web", 0)), namespace=namespace)
    with pytest.raises(ApiError) as refused:
        await client.patch(ReplicaSet, "web", {"spec": {"replicas": 1}}, namespace=namespace)
    assert refused.value.status.code == 415


@pytest.mark.does("connect")
async def test_typed_kinds(client, namespace):
    await client.create(Secret(metadata=ObjectMeta(name="s"), stringData={"a": "b"}),
                        namespace=namespace)  # fmt: skip
    assert (await client.get(Secret, "s", namespace=namespace)).data == {"a": "Yg=="}
    assert (await client.get(Namespace, namespace)).status.phase == "Active"
    (node, *_) = [one async for one in client.list(Node)]
    lease = await client.get(Lease, node.metadata.name, namespace="kube-node-lease")
    assert lease.spec.holderIdentity == node.metadata.name
    events = [one async for one in client.list(Event, namespace="*")]
    assert all(one.involvedObject for one in events)


async def test_all_of_a_kind_are_deleted(client, namespace):
    for name in "ab":
        await client.create(secret(name), namespace=namespace)
    await client.deletecollection(Secret, namespace=namespace)
    assert [one async for one in client.list(Secret, namespace=namespace)] == []
