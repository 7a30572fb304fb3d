"""Garbage: circles of owners that wait for each other."""

import asyncio

import pytest
from lightkube.models.core_v1 import ConfigMap, Namespace
from tests.sim.cluster import cluster

from corral.api.errors import Conflict, NotFound
from corral.api.kinds.core.kinds import CONFIG_MAP
from corral.api.object import Key
from corral.cluster.garbage_collector import Garbage
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import Partial

pytestmark = pytest.mark.looptime
SPACE = "lab"


async def made(c, *names):
    await c.client.create(Namespace, {"metadata": {"name": SPACE}})
    for name in names:
        await c.client.create(ConfigMap, {"metadata": {"name": name, "namespace": SPACE}})


async def own(whole, **owners):
    """Make each name's object depend on the named others, which are not to go before it."""
    for name, named in owners.items():
        references = [await reference(whole, one) for one in named.split()]
        change = {"metadata": {"ownerReferences": references}}
        await whole.client.patch(ConfigMap, Key(SPACE, name), change)
    await asyncio.sleep(1)


async def reference(c, name):
    found = await c.client.get(ConfigMap, name, SPACE)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": found.metadata.uid,
        "blockOwnerDeletion": True,
    }


async def delete(c, *names):
    for name in names:
        await c.client.delete(ConfigMap, Key(SPACE, name), propagation="Foreground")


async def left(c):
    return sorted(one.metadata.name for one in (await c.client.list(ConfigMap, SPACE)).items)


async def becomes(c, *expected):
    async def are_left():
        return await left(c) == sorted(expected)

    await c.until(are_left, 30)


@pytest.mark.parametrize("at_once", [("a",), ("a", "b"), ("a", "b", "c")])
async def test_a_cycle_of_owners_is_deleted_in_the_foreground(at_once):
    async with cluster() as c:
        await made(c, "a", "b", "c")
        await own(c, a="c", b="a", c="b")
        await delete(c, *at_once)
        await becomes(c)


async def test_an_object_that_owns_itself_is_deleted():
    async with cluster() as c:
        await made(c, "a")
        await own(c, a="a")
        await delete(c, "a")
        await becomes(c)


async def test_dependents_outside_of_the_cycle_still_block_deletion():
    """The circle a, b has d below it, which something holds; so has e, above it, to wait."""
    async with cluster() as c:
        await made(c, "a", "b", "d", "e")
        await own(c, a="b e", b="a", d="b")
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await c.client.patch(ConfigMap, Key(SPACE, "d"), hold)
        await delete(c, "e", "a")
        await asyncio.sleep(30)
        assert {"b", "d"} <= set(await left(c))
        release = {"metadata": {"finalizers": None}}
        await c.client.patch(ConfigMap, Key(SPACE, "d"), release)
        await becomes(c)


async def test_an_owner_is_deleted_once_no_dependent_blocks_it():
    async with cluster() as c:
        await made(c, "owner", "held")
        await own(c, held="owner")
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        await c.client.patch(ConfigMap, Key(SPACE, "held"), hold)
        await delete(c, "owner")
        await asyncio.sleep(5)
        assert await left(c) == ["held", "owner"]
        free = await reference(c, "owner") | {"blockOwnerDeletion": False}
        change = {"metadata": {"ownerReferences": [free]}}
        await c.client.patch(ConfigMap, Key(SPACE, "held"), change)
        await becomes(c, "held")


async def test_a_namespace_with_a_cycle_is_deleted():
    async with cluster() as c:
        await made(c, "a", "b")
        await own(c, a="b", b="a")
        await delete(c, "a", "b")
        await c.client.delete(Namespace, Key("", SPACE))

        async def is_gone():
            try:
                await c.client.get(Namespace, SPACE)
            except NotFound:
                return True
            return False

        await c.until(is_gone, 60)


async def test_what_another_owner_has_adopted_meanwhile_is_kept():
    async with cluster(only=()) as c:
        await made(c, "owner", "other", "child")
        await own(c, child="owner")
        stale = await c.client.get(Partial, "child", SPACE, kind=CONFIG_MAP)
        loop = Garbage(ControllerContext(c.client))
        loop._changed(CONFIG_MAP, None, stale)
        await c.client.delete(ConfigMap, Key(SPACE, "owner"))
        await own(c, child="other")
        with pytest.raises(Conflict):
            await loop.reconcile(stale.metadata.uid)
        assert await left(c) == ["child", "other"]
        loop._changed(
            CONFIG_MAP, stale, await c.client.get(Partial, "child", SPACE, kind=CONFIG_MAP)
        )
        await loop.reconcile(stale.metadata.uid)
        assert await left(c) == ["child", "other"]
