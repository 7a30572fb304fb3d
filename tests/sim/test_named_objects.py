"""The Secrets that the VMIs of a joined node name, as that node reads them from a real server."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from lightkube.models.core_v1 import ConfigMap, Secret
from tests.sim.cluster import ADMIN, cluster

from corral.aio import Background
from corral.api.errors import Forbidden
from corral.api.kinds import kind_of
from corral.api.kinds.auth.certificate_signing_request import NODE_GROUP
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Vmi
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.node.agent.node_informers import NodeInformers
from corral.reconcile.objects import key_of

pytestmark = pytest.mark.looptime


@dataclass
class FromOutside:
    """A transport whose user is that of a joined node, and no component of the server's process."""

    inner: InProcess
    node: str

    async def send(self, request):
        user = {"impersonate-user": f"system:node:{self.node}", "impersonate-group": NODE_GROUP}
        request.headers = {**request.headers, **user}
        return await self.inner.send(request)


def node_client(c, node="node0"):
    return Client(FromOutside(InProcess(c.server.handle, ADMIN), node))


def secret(name, value="eA=="):
    return {"metadata": {"name": name, "namespace": "default"}, "data": {"key": value}}


async def vmi(c, name, secret_name):
    volume = {"name": "s", "secret": {"secretName": secret_name}}
    spec = {
        "domain": {"resources": {"requests": {"memory": "64M"}}, "devices": {}},
        "terminationGracePeriodSeconds": 0,
        "volumes": [volume],
    }
    await c.client.create(Vmi, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    async def placed():
        return bool((await c.client.get(Vmi, name, "default")).status.node_name)

    await c.until(placed)


@asynccontextmanager
async def following(c):
    """Yield the changes that a node's informer of Secrets reports."""
    informers = NodeInformers(node_client(c), "node0")
    changes = []

    def changed(old, new):
        kind = "ADDED" if old is None else "DELETED" if new is None else "MODIFIED"
        changes.append((kind, key_of(new or old).name))

    informers.metadata(kind_of(Secret)).handle(changed)
    async with Background() as tasks:
        tasks.start(informers.run(), name="informers")
        yield changes


async def test_a_node_sees_changes_of_the_secrets_that_its_vmis_name():
    async with cluster() as c, following(c) as changes:
        await c.client.create(Secret, secret("other"))
        await c.client.create(Secret, secret("keys"))
        await vmi(c, "first", "keys")
        await vmi(c, "second", "keys")
        await asyncio.sleep(5)
        assert changes == [("ADDED", "keys")]
        await c.client.replace(Secret, secret("keys", "eQ=="))
        await c.client.delete(Secret, Key("default", "keys"))
        await asyncio.sleep(5)
        assert changes[1:] == [("MODIFIED", "keys"), ("DELETED", "keys")]


async def test_a_secret_that_is_created_later_is_seen():
    async with cluster() as c, following(c) as changes:
        await vmi(c, "first", "late")
        await asyncio.sleep(5)
        assert changes == []
        await c.client.create(Secret, secret("late"))
        await asyncio.sleep(5)
        assert changes == [("ADDED", "late")]


async def test_a_secret_is_no_longer_followed_when_the_last_vmi_has_gone():
    async with cluster() as c, following(c) as changes:
        await c.client.create(Secret, secret("keys"))
        await vmi(c, "first", "keys")
        await asyncio.sleep(5)
        await c.client.delete(Vmi, Key("default", "first"))
        await asyncio.sleep(60)
        del changes[:]
        await c.client.replace(Secret, secret("keys", "eQ=="))
        await asyncio.sleep(60)
        assert changes == []


@pytest.mark.parametrize(
    ("node", "namespace", "fields"),
    [
        ("node0", "default", ""),
        ("node0", "", "metadata.name=keys"),
        ("node0", "default", "metadata.name!=keys"),
        ("node0", "default", "metadata.name=other"),
        ("node0", "kube-system", "metadata.name=keys"),
        ("node7", "default", "metadata.name=keys"),
    ],
)
async def test_a_node_lists_and_watches_no_other_secrets(node, namespace, fields):
    async with cluster() as c:
        await c.client.create(Secret, secret("keys"))
        await c.client.create(Secret, secret("other"))
        await vmi(c, "first", "keys")
        client = node_client(c, node)
        with pytest.raises(Forbidden):
            await client.list(Secret, namespace, fields=fields)
        watch = client.watch(Secret, namespace, resource_version="0", fields=fields)
        with pytest.raises(Forbidden):
            await anext(watch)
        with pytest.raises(Forbidden):  # the name is that of a Secret
            await client.list(ConfigMap, "default", fields="metadata.name=keys")


async def test_a_node_lists_the_named_secret_alone():
    async with cluster() as c:
        await c.client.create(Secret, secret("keys"))
        await vmi(c, "first", "keys")
        found = await node_client(c).list(Secret, "default", fields="metadata.name=keys")
        assert [each.metadata.name for each in found.items] == ["keys"]
