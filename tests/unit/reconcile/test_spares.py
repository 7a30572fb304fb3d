"""Hand-outs of spares: one write, one winner."""

import asyncio

import pytest
from tests.unit.reconcile.test_ownership import make_set

from corral.aio import Background
from corral.api.errors import Conflict, Unavailable
from corral.api.kinds.corral.warm_pool import (
    FROM_WARM_POOL,
    TEMPLATE_HASH_LABEL,
    WARM_POOL_LABEL,
    VirtualMachineWarmPool,
)
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid, owner_reference
from corral.reconcile.spares import Spares, template_hash

COMPONENT = User(name="system:serviceaccount:kubevirt:kubevirt-controller")
POOL = Key("default", "spares")
LABELS = {"app": "web"}


@pytest.fixture
def controllers(server):
    return Client(InProcess(server.handle, COMPONENT))


async def make_pool(client, target="web"):
    reference = {"apiVersion": "kubevirt.io/v1", "kind": ReplicaSet.kind, "name": target}
    document = {
        "metadata": {"name": POOL.name, "namespace": POOL.namespace},
        "spec": {"targetRef": reference, "replicas": 3},
    }
    return await client.create(VirtualMachineWarmPool, document)


async def make_spare(client, pool, digest, name, *, ready=True):
    labels = {WARM_POOL_LABEL: pool.metadata.name, TEMPLATE_HASH_LABEL: digest, "mine": "yes"}
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": labels,
        "ownerReferences": [owner_reference(pool)],
    }
    memory = {"resources": {"requests": {"memory": "64M"}}}
    spec = {"domain": {"devices": {}, **memory}}
    await client.create(Machine, {"metadata": metadata, "spec": spec})
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": "Running", "conditions": [condition]}
    return await client.patch(Machine, Key("default", name), {"status": status})


class Fixture:
    """A set, its warm pool, and what a controller sees of them."""

    def __init__(self, client, web, pool):
        self.client, self.web, self.pool = client, web, pool
        self.digest = template_hash(web.spec.template)
        self.context = ControllerContext(client)
        self.spares = Spares(self.context)

    async def spare(self, name, **fields):
        return await make_spare(self.client, self.pool, self.digest, name, **fields)

    async def hand_out(self, spares=None, **options):
        spares = spares or self.spares
        given, _ = await spares.hand_out(self.pool, self.web, LABELS, **options)
        return sorted(vmi.metadata.name for vmi in given)

    async def synced(self):
        for informer in (self.spares.pools, self.spares.sets, self.spares.vmis):
            await informer.synced()


@pytest.fixture
async def fixture(controllers):
    web = await make_set(controllers, "web")
    made = Fixture(controllers, web, await make_pool(controllers))
    for name in ("a", "b"):
        await made.spare(name)
    async with Background() as tasks:
        tasks.start(made.context.run(), name="context")
        await made.synced()
        yield made


async def test_a_handed_out_spare_has_the_labels_and_the_owner_and_stays_what_it_was(fixture):
    before = await fixture.client.get(Machine, "a", "default")
    assert await fixture.hand_out() == ["a"]
    after = await fixture.client.get(Machine, "a", "default")
    assert (after.metadata.uid, after.status) == (before.metadata.uid, before.status)
    assert after.metadata.labels == {"app": "web", "mine": "yes"}
    assert after.metadata.annotations[FROM_WARM_POOL] == "spares"
    assert controller_uid(after) == fixture.web.metadata.uid
    assert len(after.metadata.owner_references) == 1


async def test_as_many_are_handed_out_as_there_are(fixture):
    assert await fixture.hand_out(count=3) == ["a", "b"]
    assert await fixture.hand_out() == []
    assert fixture.spares.misses == {(POOL, ReplicaSet.kind): 2}
    (misses,) = fixture.spares.families()
    assert [sample.value for sample in misses.samples] == [2]


async def test_of_many_that_ask_at_once_each_spare_has_one_winner(fixture):
    owners = [await make_set(fixture.client, f"rival{number}") for number in range(8)]
    answers = await asyncio.gather(
        *(fixture.spares.hand_out(fixture.pool, owner, LABELS) for owner in owners)
    )
    given = [
        (vmi, owner) for owner, answer in zip(owners, answers, strict=True) for vmi in answer.given
    ]
    assert sorted(vmi.metadata.name for vmi, _ in given) == ["a", "b"]
    for vmi, owner in given:
        after = await fixture.client.get(Machine, vmi.metadata.name, "default")
        assert controller_uid(after) == owner.metadata.uid


async def test_a_spare_whose_status_changes_meanwhile_is_handed_out_all_the_same(fixture):
    await fixture.client.patch(Machine, Key("default", "a"), {"metadata": {"labels": {"x": "y"}}})
    assert await fixture.hand_out(count=2) == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {TEMPLATE_HASH_LABEL: "another"}}},
        {"metadata": {"labels": {WARM_POOL_LABEL: None}}},
        {"status": {"phase": "Failed"}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    ],
)
async def test_a_spare_that_is_not_ready_or_outdated_is_not_handed_out(fixture, change):
    await fixture.client.patch(Machine, Key("default", "a"), change)
    assert await fixture.hand_out(count=2) == ["b"]


async def test_the_deleted_owner_gets_nothing(fixture):
    await fixture.client.delete(ReplicaSet, fixture.web.key, propagation="Orphan")
    with pytest.raises(Conflict, match="adopts nothing"):
        await fixture.hand_out()
    assert len(fixture.spares.vmis.items()) == 2


async def test_a_hand_out_whose_response_was_lost_counts(fixture):
    send = fixture.client._transport.send

    class Lossy:
        lost = 0

        async def send(self, request):
            response = await send(request)
            if request.method == "PATCH" and not self.lost:
                self.lost += 1
                raise Unavailable("response lost")
            return response

    lossy = Spares(ControllerContext(Client(Lossy()), informers=fixture.context.informers))
    stale = lossy.ready(fixture.pool)
    with pytest.raises(Unavailable):
        await lossy.hand_out(fixture.pool, fixture.web, LABELS)
    lossy.ready = lambda _: stale
    assert await fixture.hand_out(lossy) == ["a"]


async def test_the_hash_is_that_of_all_but_the_labels(controllers):
    web = await make_set(controllers, "web")
    template = web.spec.template
    digest = template_hash(template)
    template.metadata.labels = {"other": "labels"}
    assert template_hash(template) == digest
    template.metadata.annotations = {"a": "b"}
    assert template_hash(template) != digest
    template.metadata.annotations = {}
    template.spec.hostname = "web"
    assert template_hash(template) != digest
