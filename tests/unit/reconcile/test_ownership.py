"""Owners of objects: one is added, one is taken away, and the others stay."""

import pytest
from lightkube.models.core_v1 import ConfigMap

from corral.api.errors import Conflict
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.object import Key
from corral.reconcile.objects import controller_uid, owner_reference, owners_of
from corral.reconcile.ownership import adopt, release

OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}


async def make_set(client, name):
    labels = {"app": "web"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"domain": {"devices": {}}}},
    }
    metadata = {"name": name, "namespace": "default"}
    return await client.create(ReplicaSet, {"metadata": metadata, "spec": spec})


async def make_orphan(client, name="one", owners=(OTHER,)):
    metadata = {"name": name, "namespace": "default", "ownerReferences": list(owners)}
    return await client.create(ConfigMap, {"metadata": metadata})


async def read(client, name="one"):
    return await client.get(ConfigMap, name, "default")


def names(view):
    return [(owner.name, owner.controller) for owner in owners_of(view)]


async def test_an_adopted_object_keeps_its_other_owners(client):
    web, orphan = await make_set(client, "web"), await make_orphan(client)
    (adopted,) = await adopt(client, web, [orphan])
    assert names(adopted) == names(await read(client)) == [("other", False), ("web", True)]


async def test_a_plain_owner_becomes_the_controller(client):
    web = await make_set(client, "web")
    loose = {key: owner_reference(web)[key] for key in OTHER}
    (adopted,) = await adopt(client, web, [await make_orphan(client, owners=[loose, OTHER])])
    assert names(adopted) == [("other", False), ("web", True)]


async def test_of_two_sets_one_adopts_an_orphan(client):
    one, two = await make_set(client, "web"), await make_set(client, "rival")
    orphan = await make_orphan(client)
    await adopt(client, one, [orphan])
    with pytest.raises(Conflict):
        await adopt(client, two, [orphan])
    assert controller_uid(await read(client)) == one.metadata.uid


async def test_a_deleted_or_changed_orphan_does_not_prevent_other_adoptions(client):
    web = await make_set(client, "web")
    orphans = [await make_orphan(client, name) for name in ("one", "two", "three")]
    await client.delete(ConfigMap, Key("default", "one"))
    assert len(await adopt(client, web, orphans[:2])) == 1
    with pytest.raises(Conflict):
        await adopt(client, web, orphans[1:])
    assert controller_uid(await read(client, "three")) == web.metadata.uid


@pytest.mark.parametrize("again", [True, False])
async def test_a_deleted_or_recreated_owner_adopts_nothing(client, again):
    web, orphan = await make_set(client, "web"), await make_orphan(client)
    await client.delete(ReplicaSet, web.key)
    if again:
        await make_set(client, "web")
    with pytest.raises(Exception, match=r"deleted or replaced|not found"):
        await adopt(client, web, [orphan])
    assert names(await read(client)) == [("other", False)]


async def test_a_terminating_owner_adopts_nothing(client):
    web, orphan = await make_set(client, "web"), await make_orphan(client)
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await client.patch(ReplicaSet, web.key, held)
    await client.delete(ReplicaSet, web.key)
    with pytest.raises(Conflict, match="adopts nothing"):
        await adopt(client, web, [orphan])


async def test_a_released_object_keeps_its_other_owners(client):
    web = await make_set(client, "web")
    adopted = await adopt(client, web, [await make_orphan(client)])
    await release(client, web.metadata.uid, adopted)
    assert names(await read(client)) == [("other", False)]
    alone = await adopt(client, web, [await make_orphan(client, "alone", ())])
    await release(client, web.metadata.uid, alone)
    assert owners_of(await read(client, "alone")) == []


async def test_objects_adopted_by_another_are_not_released(client):
    one, two = await make_set(client, "web"), await make_set(client, "rival")
    seen = await adopt(client, one, [await make_orphan(client)])
    await release(client, one.metadata.uid, seen)
    await adopt(client, two, [await read(client)])
    with pytest.raises(Conflict):
        await release(client, one.metadata.uid, seen)
    assert controller_uid(await read(client)) == two.metadata.uid


async def test_deleted_objects_need_no_release(client):
    web = await make_set(client, "web")
    adopted = await adopt(client, web, [await make_orphan(client)])
    await client.delete(ConfigMap, Key("default", "one"))
    await release(client, web.metadata.uid, adopted)


async def test_without_orphans_nothing_is_requested(client):
    gone = await make_set(client, "gone")
    await client.delete(ReplicaSet, gone.key)
    assert await adopt(client, gone, []) == []
