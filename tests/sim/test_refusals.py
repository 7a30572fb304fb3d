"""A webhook may deny writes of controllers with a Conflict, too: reported, and retried."""

import asyncio

import pytest
from tests.sim.cluster import cluster, replica_set
from tests.sim.pools import Pools

from corral.api.errors import Conflict
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet as ReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.daemon.component_users import CONTROLLER, STAND_IN

pytestmark = pytest.mark.looptime


class Denial:
    """Lets a server answer with a Conflict to what loops ask about a kind, until it is lifted."""

    def __init__(self, c, method, plural) -> None:
        self._server, self._handle = c.server, c.server.handle
        self._method, self._plural = method, f"/{plural}/"
        c.server.handle = self

    async def __call__(self, request):
        ours = request.user in (CONTROLLER, STAND_IN)
        named = self._plural in request.path and not request.path.endswith("/status")
        if ours and named and request.method == self._method:
            raise Conflict("a webhook says no")
        return await self._handle(request)

    def lift(self):
        self._method = ""


async def denied(c, method, plural):
    """Have such requests of the loops denied from now on."""
    denial = Denial(c, method, plural)
    await c.crash_loops()
    c.start_loops()  # they go through it from now on
    return denial


async def test_a_set_reports_a_rejected_deletion_of_a_vmi():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        denial = await denied(c, "DELETE", "virtualmachineinstances")
        await c.scale("test", 1)

        async def says_so():
            return [
                (one.reason, one.message) for one in (await c.replica_set("test")).status.conditions
            ] == [("FailedDelete", "a webhook says no")]

        await c.until(says_so)
        assert any(event.reason == "FailedDelete" for event in await c.events("test"))
        assert len(await c.machines()) == 2
        denial.lift()
        await c.until_ready("test", 1, 1000)
        assert (await c.replica_set("test")).status.conditions == []


async def test_a_pool_reports_a_rejected_deletion_of_a_vm():
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        denial = await denied(c, "DELETE", "virtualmachines")
        await web.patch(replicas=1)

        async def says_so():
            return [one.reason for one in (await web.get()).status.conditions] == ["FailedScaleIn"]

        await c.until(says_so)
        assert len(await web.names()) == 2
        denial.lift()
        await web.until_ready(1, 1000)


async def test_a_vm_whose_annotation_is_rejected_is_not_deleted():
    """The mark says what is to be kept of it."""
    async with cluster() as c:
        web = Pools(c)
        await web.create(2)
        await web.until_ready(2)
        denial = await denied(c, "PATCH", "virtualmachines")
        await web.patch(replicas=1, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
        await asyncio.sleep(30)
        going = [vm.metadata.deletion_timestamp for vm in (await web.vms()).values()]
        assert going == [None, None]
        denial.lift()
        await web.until_ready(1, 1000)


async def test_a_vm_reports_a_rejected_deletion_of_its_vmi():
    async with cluster() as c:
        web = Pools(c)
        await web.create(1)
        await web.until_ready(1)
        denial = await denied(c, "DELETE", "virtualmachineinstances")
        await c.client.patch(VirtualMachine, Key("default", "web-0"), HALT)

        async def says_so():
            conditions = (await web.vm(0)).status.conditions
            return "FailedDelete" in [each.reason for each in conditions if each.type == "Failure"]

        await c.until(says_so)
        denial.lift()

        async def is_halted():
            return not await c.machines()

        await c.until(is_halted, 1000)


HALT = {"spec": {"runStrategy": "Halted"}}


async def test_a_rejected_deletion_by_the_garbage_collector_is_retried():
    async with cluster() as c:
        await c.client.create(ReplicaSet, replica_set(replicas=2))
        await c.until_ready("test", 2)
        denial = await denied(c, "DELETE", "virtualmachineinstances")
        await c.client.delete(ReplicaSet, Key("default", "test"))
        await asyncio.sleep(30)
        assert len((await c.client.list(Machine)).items) == 2
        denial.lift()

        async def is_empty():
            return not await c.machines()

        await c.until(is_empty, 1000)
