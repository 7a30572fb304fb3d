"""What the controller says of a bound claim whose machine its cache lacks."""

import pytest
from tests.unit.controllers.claim.test_binder import COMPONENT, TEMPLATE

from corral.aio import Background
from corral.api.kinds.corral.claim import VirtualMachineClaim as Claim
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.controllers.claim.claim_controller import Claims
from corral.reconcile.context import ControllerContext

JOB = Key("default", "job")
VMI = Key("default", "vm")


@pytest.fixture
async def client(server):
    client = Client(InProcess(server.handle, COMPONENT))
    vmi = await client.create(Machine, {"metadata": {"name": VMI.name}, **TEMPLATE}, VMI.namespace)
    spec = {"warmPoolRef": {"name": "spares"}}
    await client.create(Claim, {"metadata": {"name": JOB.name}, "spec": spec}, JOB.namespace)
    bound = {"vmi": {"name": VMI.name, "uid": vmi.metadata.uid}}
    await client.patch(Claim, JOB, {"status": bound}, subresource="status")
    return client


async def readiness(client):
    """Let the controller sync the claim; return the reason of its condition Ready."""
    context = ControllerContext(client)
    loop = Claims(context)
    async with Background() as tasks:
        tasks.start(context.run(), name="context")
        await loop.claims.synced()
        await loop.vmis.synced()
        await loop.reconcile(JOB)
    found = await client.get(Claim, JOB.name, JOB.namespace)
    return next(one.reason for one in found.status.conditions if one.type == "Ready")


async def test_a_machine_that_the_cache_lacks_is_not_reported_as_deleted(client):
    assert await readiness(client) == "MachineNotReady"


async def test_a_machine_that_is_gone_is_reported_as_deleted(client):
    await client.delete(Machine, VMI)
    assert await readiness(client) == "MachineDeleted"


async def test_another_machine_of_the_name_is_not_the_claims(client):
    another = {"vmi": {"name": VMI.name, "uid": "another"}}
    await client.patch(Claim, JOB, {"status": another}, subresource="status")
    assert await readiness(client) == "MachineDeleted"
