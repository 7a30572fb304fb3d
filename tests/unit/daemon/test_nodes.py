"""The nodes of a manager at its start: objects of users do not prevent it."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from lightkube.models.core_v1 import Node, Pod

from corral.aio import Background
from corral.api.errors import Conflict, Forbidden
from corral.api.kinds.cdi.cdiconfig import CDIConfig
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.config import Hollow, Settings
from corral.daemon.bootstrap import create_defaults, publish_upload_url
from corral.daemon.nodes import node_names, node_remover, play, sync_nodes
from corral.reconcile.controller import REQUEUED
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store

GROUP = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
async def server():
    """A server with every cluster's objects, and the node ``earlier`` with two pods."""
    store = Store.in_memory()
    server = ApiServer(store)
    await create_defaults(server)
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    await client.create(Node, {"metadata": {"name": "earlier"}})
    for name in "ab":
        spec = {"nodeName": "earlier", "containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}
        await client.create(Pod, pod)
    yield server
    await store.close()


@pytest.fixture
def client(server):
    return Client(InProcess(server.handle, ADMINISTRATOR))


@pytest.fixture
def settings(tmp_path):
    return Settings(directory=tmp_path, hollow=Hollow())


async def names(client, view):
    return sorted(each.metadata.name for each in (await client.list(view)).items)


async def refuse(server, client, **rule):
    """Create a policy that rejects an operation."""
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    policy = {
        "metadata": {"name": "never"},
        "spec": {
            "matchConstraints": {"resourceRules": [everything | rule]},
            "validations": [{"expression": "false"}],
        },
    }
    binding = {
        "metadata": {"name": "never"},
        "spec": {"policyName": "never", "validationActions": ["Deny"]},
    }
    await client.request("POST", f"{GROUP}/validatingadmissionpolicies", document=policy)
    await client.request("POST", f"{GROUP}/validatingadmissionpolicybindings", document=binding)


@asynccontextmanager
async def removing(client, gone):
    """Remove nodes; the block gets a function that waits for the outcome."""
    loop = node_remover(client, gone)

    async def until(outcome):
        while not loop.results[outcome]:
            await asyncio.sleep(0.05)

    async with Background() as tasks, asyncio.timeout(60):
        tasks.start(loop.run(), name=loop.name)
        yield until


async def test_a_removed_node_is_deleted_with_its_pods(server, client, settings):
    played, gone = await sync_nodes(settings, client)
    assert (played, [*gone]) == (list(node_names(settings)), ["earlier"])
    assert await names(client, Node) == []
    async with removing(client, gone) as until:
        await until("success")
    assert await names(client, Pod) == []


async def test_nodes_of_other_hosts_are_kept(server, client, settings):
    endpoints = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}
    await client.patch(Node, Key("", "earlier"), {"status": endpoints}, subresource="status")
    _, gone = await sync_nodes(settings, client)
    assert gone == {}
    assert await names(client, Node) == ["earlier"]
    assert await names(client, Pod) == ["a", "b"]


class Emptied:
    """A node whose last machine has ended."""

    name = "earlier"

    async def run(self):
        return


async def test_a_retired_node_is_deleted_with_its_last_machine(server, client):
    gone = {}
    loop = node_remover(client, gone)
    await play(Emptied(), client, gone, loop)
    assert (len(loop.queue), [*gone]) == (1, ["earlier"])


async def test_a_deleted_retired_node_is_no_error(server, client):
    await client.delete(Node, Key("", "earlier"), grace_seconds=0)
    gone = {}
    await play(Emptied(), client, gone, node_remover(client, gone))
    assert gone == {}


async def allow(client):
    await client.request("DELETE", f"{GROUP}/validatingadmissionpolicybindings/never")


async def test_a_rejected_deletion_of_pods_prevents_no_start(server, client, settings):
    await refuse(server, client, resources=["pods"])
    _, gone = await sync_nodes(settings, client)
    assert await names(client, Node) == []
    async with removing(client, gone) as until:
        await until("error")
        assert await names(client, Pod) == ["a", "b"]
        await allow(client)
        await until("success")
        assert await names(client, Pod) == []


async def test_a_rejected_deletion_of_a_node_is_retried(server, client, settings):
    await refuse(server, client, resources=["nodes"])
    _, gone = await sync_nodes(settings, client)
    async with removing(client, gone) as until:
        await until("error")
        assert await names(client, Node) == ["earlier"]
        assert await names(client, Pod) == ["a", "b"], "its pods go with it"
        await allow(client)
        await until("success")
        assert await names(client, Node) == []
        assert await names(client, Pod) == []


async def test_a_rejected_list_of_pods_is_no_error(server, client, settings, monkeypatch):
    async def refused(*_, **__):
        raise Forbidden("not now")

    _, gone = await sync_nodes(settings, client)
    monkeypatch.setattr(Client, "list", refused)
    async with removing(client, gone) as until:
        await until("error")
        monkeypatch.undo()
        await until("success")
    assert await names(client, Pod) == []


async def test_a_recreated_node_is_kept(server, client, settings):
    _, gone = await sync_nodes(settings, client)
    await client.create(Node, {"metadata": {"name": "earlier"}})
    async with removing(client, gone) as until:
        await until("success")
    assert await names(client, Node) == ["earlier"]
    assert await names(client, Pod) == ["a", "b"]


async def test_a_policy_that_rejects_everything_prevents_no_start(server, client, settings):
    own = node_names(settings)[0]
    retired = {"metadata": {"name": own, "annotations": {"corral.dev/retired": "true"}}}
    await client.create(Node, retired)
    await refuse(server, client, resources=["*/*"])
    played, _ = await sync_nodes(settings, client)
    assert played == [own]
    assert await names(client, Node) == sorted(["earlier", own])
    await publish_upload_url(server, "https://127.0.0.1:6443", "authority")
    assert await names(client, CDIConfig) == []


async def test_a_conflict_of_a_webhook_is_not_another_node(server, client, settings, monkeypatch):
    async def refused(*_, **__):
        raise Conflict("admission webhook denied the request")

    monkeypatch.setattr(Client, "delete", refused)
    _, gone = await sync_nodes(settings, client)
    async with removing(client, gone) as until:
        await until(REQUEUED)
        assert await names(client, Node) == ["earlier"]
        monkeypatch.undo()
        await until("success")
        assert await names(client, Node) == []
        assert await names(client, Pod) == []


async def test_a_node_with_another_uid_keeps_its_pods(server, client):
    async with removing(client, {"earlier": "another-uid"}) as until:
        await until("success")
    assert await names(client, Node) == ["earlier"]
    assert await names(client, Pod) == ["a", "b"]
