"""Claims that are bound: what becomes of the others when one fails."""

import pytest
from tests.unit.reconcile.test_spares import make_spare

from corral.aio import Background
from corral.api.errors import Forbidden, Unavailable
from corral.api.kinds.corral.claim import VirtualMachineClaim as Claim
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool as WarmPool
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.controllers.claim.binder import Binder
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid
from corral.reconcile.spares import template_hash

COMPONENT = User(name="system:serviceaccount:kubevirt:kubevirt-controller")
POOL = Key("default", "spares")
MEMORY = {"resources": {"requests": {"memory": "64M"}}}
TEMPLATE = {"spec": {"domain": {"devices": {}, **MEMORY}}}


class Troubled:
    """A transport that fails the requests whose path and body have all of certain words."""

    def __init__(self, server):
        self._inner = InProcess(server.handle, COMPONENT)
        self.words, self.error, self.is_sent = (), None, False

    def fail(self, *words, error, is_sent=False):
        self.words, self.error, self.is_sent = words, error, is_sent

    async def send(self, request):
        text = f"{request.method} {request.path} {(request.body or b'').decode()}"
        fails = self.error is not None and all(word in text for word in self.words)
        if fails and not self.is_sent:
            raise self.error
        response = await self._inner.send(request)
        if fails:
            raise self.error
        return response


class Fixture:
    """A warm pool with spares, claims of it, and the controller that binds them."""

    def __init__(self, transport):
        self.transport = transport
        self.client = Client(transport)
        self.context = ControllerContext(self.client)
        self.binder = Binder(self.context)

    async def claim(self, name):
        document = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": POOL.name}}}
        await self.client.create(Claim, document, POOL.namespace)

    async def spare(self, pool, name):
        await make_spare(self.client, pool, template_hash(pool.spec.template), name)

    async def synced(self):
        spares = self.binder.spares
        for informer in (self.binder.claims, spares.pools, spares.sets, spares.vmis):
            await informer.synced()

    async def bound(self, name):
        """Return status and reason of the condition Bound."""
        found = await self.client.get(Claim, name, POOL.namespace)
        return next((one.status, one.reason) for one in found.status.conditions)

    async def owners(self):
        listed = await self.client.list(Machine, POOL.namespace)
        return {vmi.metadata.name: controller_uid(vmi) for vmi in listed.items}


@pytest.fixture
async def fixture(server):
    made = Fixture(Troubled(server))
    spec = {"template": TEMPLATE, "replicas": 2}
    document = {"metadata": {"name": POOL.name, "namespace": POOL.namespace}, "spec": spec}
    created = await made.client.create(WarmPool, document)
    for name in ("a", "b"):
        await made.spare(created, name)
    for name in ("first", "second"):
        await made.claim(name)
    async with Background() as tasks:
        tasks.start(made.context.run(), name="context")
        await made.synced()
        yield made


async def test_a_refused_claim_says_so_and_the_next_one_is_bound(fixture):
    fixture.transport.fail(
        "PATCH", "virtualmachineinstances", '"first"', error=Forbidden("not this one")
    )
    with pytest.raises(Forbidden):  # it is tried again
        await fixture.binder.reconcile(POOL)
    assert await fixture.bound("first") == ("False", "HandOutFailed")
    assert await fixture.bound("second") == ("True", "Bound")


async def test_no_claim_goes_before_one_that_could_not_be_tried(fixture):
    fixture.transport.fail(
        "PATCH", "virtualmachineinstances", '"first"', error=Unavailable("later")
    )
    with pytest.raises(Unavailable):
        await fixture.binder.reconcile(POOL)
    assert await fixture.bound("second") == ("False", "WaitingForSpare")


async def test_a_status_that_cannot_be_written_keeps_nobody_waiting(fixture):
    fixture.transport.fail("PATCH", "claims/first/status", error=Unavailable("later"))
    with pytest.raises(Unavailable):
        await fixture.binder.reconcile(POOL)
    assert await fixture.bound("second") == ("True", "Bound")


async def test_a_claim_whose_hand_out_was_not_answered_gets_no_second_machine(fixture):
    fixture.transport.fail(
        "PATCH", "virtualmachineinstances", '"first"', error=TimeoutError(), is_sent=True
    )
    stale = fixture.binder.spares.vmis.indexed
    with pytest.raises(ExceptionGroup):
        await fixture.binder.reconcile(POOL)
    fixture.transport.fail(error=None)
    seen = await fixture.owners()
    fixture.binder.spares.vmis.indexed = lambda *_: []  # the cache lags behind
    await fixture.binder.reconcile(POOL)
    fixture.binder.spares.vmis.indexed = stale
    assert await fixture.owners() == seen
    assert await fixture.bound("first") == ("True", "Bound")
