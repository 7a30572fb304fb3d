"""kr8s, a client with asyncio that feels like kubectl: unmodified, on a live server."""

import asyncio
from collections.abc import AsyncIterator

import kr8s
import pytest
from kr8s.asyncio.objects import ConfigMap, Pod, Secret, new_class
from tests.conformance.manifests import config_map, machine, replica_set, secret

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("kr8s"),
    pytest.mark.usefixtures("leaves_sockets"),
    # it warns of every server that is newer than itself
    pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning"),
]

ReplicaSet = new_class(
    "VirtualMachineInstanceReplicaSet", "kubevirt.io/v1", asyncio=True,
    scalable=True, scalable_spec="replicas",
)  # fmt: skip
Machine = new_class("VirtualMachineInstance", "kubevirt.io/v1", asyncio=True)


@pytest.fixture
async def api(user, namespace) -> AsyncIterator[kr8s.asyncio.Api]:
    kubeconfig = str(user.one.directory / "kubeconfig")
    api = await kr8s.asyncio.api(kubeconfig=kubeconfig, namespace=namespace)
    yield api
    await asyncio.get_running_loop().shutdown_asyncgens()  # the client leaves streams open,
    await api._session.aclose()  # and its connections


async def made(kind, manifest, api):
    one = await kind(manifest, namespace=api.namespace, api=api)
    await one.create()
    return one


@pytest.mark.does("connect")
async def test_it_connects(api):
    assert (await api.version())["gitVersion"].startswith("v1.")


@pytest.mark.does("discovery")
async def test_it_finds_kinds_by_their_short_names(api):
    kinds = {each["name"] for each in await api.api_resources()}
    assert {"pods", "virtualmachineinstancereplicasets", "virtualmachinepools"} <= kinds


@pytest.mark.does("typed")
async def test_the_life_of_a_config_map(api):
    one = await made(ConfigMap, config_map("x", a="1"), api)
    assert await one.exists()
    await one.delete()
    assert not await one.exists()


@pytest.mark.does("custom")
@pytest.mark.does("scale")
async def test_a_set_is_scaled(api):
    one = await made(ReplicaSet, replica_set("web", replicas=0), api)
    await one.scale(2)
    await one.refresh()
    assert one.replicas == 2
    await one.delete()


@pytest.mark.does("patch")
async def test_patches(api):
    one = await made(ConfigMap, config_map("x", a="1"), api)
    await one.patch({"data": {"b": "2"}})
    await one.patch([{"op": "remove", "path": "/data/a"}], type="json")
    assert one.raw["data"] == {"b": "2"}
    await one.label({"color": "red"})
    assert one.labels["color"] == "red"


@pytest.mark.does("list")
async def test_lists(api):
    for name in "abc":
        await made(Secret, secret(name), api)
    named = [one.name async for one in api.get("secrets")]
    assert named == list("abc")
    chosen = [one.name async for one in api.get("secrets", field_selector="metadata.name=b")]
    assert chosen == ["b"]


@pytest.mark.does("watch")
async def test_a_watch(api):
    await made(Secret, secret("before"), api)
    seen = []
    async for kind, one in api.watch("secrets"):
        seen.append((kind, one.name))
        if one.name == "after":
            break
        await made(Secret, secret("after"), api)
    assert seen == [("ADDED", "before"), ("ADDED", "after")]


@pytest.mark.does("exec")
@pytest.mark.does("logs")
async def test_a_machines_pod(api):
    one = await made(Machine, machine("vm"), api)
    await one.wait("condition=Ready", timeout=60)
    (pod,) = [each async for each in Pod.list(api=api)]
    said = await pod.exec(["echo", "hello"], container="compute")
    assert said.stdout.decode().strip() == "echo hello"
    with pytest.raises(kr8s.ServerError, match="container nosuch is not valid"):
        assert not [line async for line in pod.logs(container="nosuch")]


@pytest.mark.does("errors")
async def test_refusals(api):
    with pytest.raises(kr8s.NotFoundError):
        await ConfigMap.get("nosuch", api=api)
    with pytest.raises(kr8s.ServerError, match=r"spec\.replicas"):
        await made(ReplicaSet, replica_set("web", replicas=-1), api)
