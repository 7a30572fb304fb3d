"""Which ClusterRoles are aggregated anew when one changes."""

import asyncio
from contextlib import asynccontextmanager

from lightkube.models.rbac_v1 import ClusterRole

from corral.aio import Background
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster.clusterrole_aggregation import Aggregation
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.store import Store


def role(name, **labels):
    return {"metadata": {"name": name, "labels": labels}}


def aggregated(name, **labels):
    selectors = [{"matchLabels": labels}]
    return role(name) | {"aggregationRule": {"clusterRoleSelectors": selectors}}


@asynccontextmanager
async def aggregation():
    """Two aggregated roles of a server, one for each colour, none of them enqueued."""
    store = Store.in_memory()
    client = Client(InProcess(ApiServer(store).handle, ADMINISTRATOR))
    for each in (aggregated("all-red", colour="red"), aggregated("all-blue", colour="blue")):
        await client.create(ClusterRole, each)
    context = ControllerContext(client)
    loop = Aggregation(context)
    async with asyncio.timeout(60), Background() as tasks:
        tasks.start(context.run(), name="context")
        await loop.roles.synced()
        assert await enqueued(loop) == {"all-red", "all-blue"}
        yield loop, client
    await store.close()


async def enqueued(loop):
    """Return the names of the roles that wait to be aggregated, which then wait no more."""
    names = set()
    while len(loop.queue):
        async with loop.queue.process_next() as key:
            names.add(key.name)
    return names


async def seen(loop, holds):
    while not holds(loop.roles):
        await asyncio.sleep(0)


async def test_a_role_enqueues_those_that_it_extends_or_extended():
    async with aggregation() as (loop, client):
        key = Key("", "part")
        await client.create(ClusterRole, role("part", colour="red"))
        await seen(loop, lambda roles: roles.get(key))
        assert await enqueued(loop) == {"all-red"}
        await client.patch(ClusterRole, key, {"metadata": {"labels": {"colour": "blue"}}})
        await seen(loop, lambda roles: roles.get(key).metadata.labels == {"colour": "blue"})
        assert await enqueued(loop) == {"all-red", "all-blue"}
        await client.delete(ClusterRole, key)
        await seen(loop, lambda roles: not roles.get(key))
        assert await enqueued(loop) == {"all-blue"}


async def test_an_unrelated_role_enqueues_none():
    async with aggregation() as (loop, client):
        await client.create(ClusterRole, role("other", colour="green"))
        await seen(loop, lambda roles: roles.get(Key("", "other")))
        assert await enqueued(loop) == set()
