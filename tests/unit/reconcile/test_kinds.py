"""Which kinds loops know of, as definitions come, change and go."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.unit.reconcile.conftest import ADMIN

from corral.aio import Background
from corral.api.kinds import KINDS, kind_of
from corral.api.kinds.crd.definition import CustomResourceDefinition
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import Partial

pytestmark = pytest.mark.looptime

GROUP = "farm.example.com"
NAME = Key("", f"herds.{GROUP}")
HERDS = ("herds", f"{GROUP}/v1")
BUILT_IN = {(kind.group, kind.plural) for kind in KINDS}


def definition(stored="v1", *further, served=True, group=GROUP, plural="herds", kind="Herd"):
    """Of a kind that is served in some versions, the first of which its objects are stored in."""
    versions = [
        {"name": name, "served": served, "storage": name == stored}
        | {"schema": {"openAPIV3Schema": {"type": "object"}}}
        for name in (stored, *further)
    ]
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }


async def until_idle():
    """Give watches a minute of virtual time."""
    await asyncio.sleep(60)


async def establish(client, document, status="True"):
    """Make a definition of a kind that is served from now on, or is not yet."""
    condition = {"type": "Established", "status": status, "reason": "InitialNamesAccepted"}
    established = {
        "conditions": [condition | {"message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "acceptedNames": document["spec"]["names"],
    }
    key = Key("", document["metadata"]["name"])
    await client.create(CustomResourceDefinition, document)
    await client.patch(CustomResourceDefinition, key, {"status": established}, subresource="status")
    await until_idle()


async def change(client, document):
    await client.patch(CustomResourceDefinition, NAME, {"spec": document["spec"]})
    await until_idle()


async def remove(client):
    await client.delete(CustomResourceDefinition, NAME)
    await client.patch(CustomResourceDefinition, NAME, {"metadata": {"finalizers": None}})
    await until_idle()


@asynccontextmanager
async def following(client):
    """Kinds that change, and those that a follower was notified of, beside those built in."""
    context, notified = ControllerContext(client), []

    def came(kind):
        if (kind.group, kind.plural) not in BUILT_IN:
            notified.append((kind.plural, kind.served_api_version))

    context.kinds.subscribe(came)
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        await context.kinds.synced()
        yield context, notified


async def test_followers_get_built_in_kinds_at_once(client):
    notified = []
    ControllerContext(client).kinds.subscribe(notified.append)
    assert notified == [kind for kind in KINDS if kind.is_kept]


async def test_followers_get_a_custom_kind_once_it_is_served(client):
    async with following(client) as (context, notified):
        await establish(client, definition(), status="False")
        assert notified == []
        assert context.kinds.table.by_kind(GROUP, "Herd") is None
        await remove(client)
        await establish(client, definition())
        labels = {"metadata": {"labels": {"colour": "brown"}}}
        await client.patch(CustomResourceDefinition, NAME, labels)
        await until_idle()
        assert notified == [HERDS]
        assert context.kinds.table.by_kind(GROUP, "Herd").plural == "herds"


async def test_built_in_kinds_ignore_their_definitions(client):
    """People see KubeVirt's kinds as definitions; loops read them with views of their own."""
    kind = kind_of(VirtualMachine)
    names = {"plural": kind.plural, "kind": kind.name}
    async with following(client) as (context, notified):
        await establish(client, definition(group=kind.group, **names))
        assert notified == []
        assert context.kinds.table.by_kind(kind.group, kind.name) is kind


async def test_a_kind_that_is_served_in_one_more_version_keeps_its_caches(client):
    """Who follows it has them already; what the table answers is the kind as it is now."""
    async with following(client) as (context, notified):
        await establish(client, definition("v1"))
        informer = context.informers.of(Partial, kind=context.kinds.table.by_kind(GROUP, "Herd"))
        await change(client, definition("v1", "v1alpha1"))
        assert notified == [HERDS]
        kind = context.kinds.table.by_kind(GROUP, "Herd")
        assert [version.name for version in kind.versions] == ["v1", "v1alpha1"]
        assert context.informers.of_kind(kind) == [informer]


async def test_a_changed_storage_version_ends_the_caches_of_a_kind(client):
    async with following(client) as (context, notified):
        await establish(client, definition("v1"))
        before = context.kinds.table.by_kind(GROUP, "Herd")
        context.informers.of(Partial, kind=before)
        await change(client, definition("v2", "v1"))
        assert notified == [HERDS, ("herds", f"{GROUP}/v2")]
        assert context.informers.of_kind(before) == []


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "not served"])
async def test_a_removed_kind_is_announced_again_when_it_returns(client, removed):
    async with following(client) as (context, notified):
        await establish(client, definition())
        kind = context.kinds.table.by_kind(GROUP, "Herd")
        context.informers.of(Partial, kind=kind)
        if removed:
            await remove(client)
        else:
            await change(client, definition(served=False))
        assert context.kinds.table.by_kind(GROUP, "Herd") is None
        assert context.informers.of_kind(kind) == []
        if removed:
            await establish(client, definition())
        else:
            await change(client, definition())
        assert notified == [HERDS, HERDS]


async def test_definitions_are_synced_when_nothing_is_pending(client, server):
    async with following(client) as (context, _):
        await establish(client, definition())
        assert await context.kinds.are_current(client)
        somebody_else = Client(InProcess(server.handle, ADMIN))
        labels = {"metadata": {"labels": {"colour": "brown"}}}
        await somebody_else.patch(CustomResourceDefinition, NAME, labels)
        assert not await context.kinds.are_current(client)
        await until_idle()
        assert await context.kinds.are_current(client)
