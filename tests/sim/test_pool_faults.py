"""Whatever goes wrong on the way: nothing is lost, nothing doubled, no finalizer is left."""

import asyncio

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim
from tests.sim.cluster import CONTROLLER, Faults, cluster
from tests.sim.pools import STORAGE, Pools
from tests.sim.test_pool_state import DISK, HALTED, disks, start

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.reconcile.objects import controller_uid, key_of

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]


@pytest.mark.parametrize("seed", range(8))
async def test_pools_converge_in_spite_of_faults(seed):
    faults = Faults(seed, fail=0.1, lose_answer=0.1, delay=0.2, cut=0.05, double=0.1, until=60)
    async with cluster(nodes=2, faults=faults) as c:
        web = Pools(c)
        await web.create(5, maxUnavailable=2)
        for replicas in (2, 8, 4):
            await asyncio.sleep(faults.dice.uniform(0, 8))
            await web.patch(replicas=replicas)
            await web.image(f"cirros:{replicas}")
            names = sorted(await web.names())
            for name in names[: faults.dice.randrange(3)]:
                await web.delete(int(name.rpartition("-")[2]))
            if len(names) > 3:
                await web.change(int(names[-1].rpartition("-")[2]), {"ownerReferences": None})
        await asyncio.sleep(max(0.0, faults.until - asyncio.get_running_loop().time()))
        await web.until_ready(4, 600)
        await web.until_stable()
        await web.until_ready(4, 600)
        await web.until_finalizers_are_removed()
        await c.client.delete(Pool, web.key)
        await web.until_stable()
        left = await web.vms()
        assert all(vm.metadata.owner_references == [] for vm in left.values())
        await web.until_finalizers_are_removed()


@pytest.mark.parametrize("seed", range(6))
async def test_pools_converge_in_spite_of_crashes(seed):
    faults = Faults(seed, delay=0.1)
    async with cluster(faults=faults) as c:
        web = Pools(c)
        await web.create(6)
        for replicas in (6, 2, 5):
            await web.patch(replicas=replicas)
            await web.image(f"cirros:{replicas}")
            await asyncio.sleep(faults.dice.uniform(0, 0.6))
            await c.crash_loops()
            await asyncio.sleep(faults.dice.uniform(0, 5))
            c.start_loops()
        await web.until_stable()
        await web.until_ready(5, 400)
        assert len(await web.names()) == 5


@pytest.mark.parametrize("seed", range(4))
async def test_no_excess_vm_is_created(seed):
    """A cache that lags never makes a pool overshoot, nor skip a number."""
    faults = Faults(seed, delay=1.0, double=0.3)
    async with cluster(faults=faults) as c:
        web = Pools(c)
        await web.create(20)
        most = 0

        async def converged():
            nonlocal most
            most = max(most, len(await web.vms()))
            return (await web.get()).status.ready_replicas == 20

        await c.until(converged, 300)
        assert most == 20
        assert await web.names() == {f"web-{number}" for number in range(20)}


class Cut:
    """Lets the manager die in the middle of its n-th write to what belongs to pools."""

    OBJECTS = ("virtualmachinepools", "virtualmachines", "controllerrevisions", "datavolumes")

    def __init__(self, c, at: int, *, done: bool) -> None:
        self.reached = asyncio.Event()
        self.count = 0
        self._server = c.server
        self._handle = c.server.handle
        self._at = at
        self._done = done
        c.server.handle = self

    async def __call__(self, request):
        mine = request.user == CONTROLLER and request.method != "GET"
        if mine and any(f"/{name}" in request.path for name in self.OBJECTS):
            self.count += 1
            if self.count == self._at and self._done:
                await self._handle(request)
            if self.count >= self._at:
                self.reached.set()
                await asyncio.Event().wait()  # until the manager dies
        return await self._handle(request)

    def heal(self) -> None:
        self._server.handle = self._handle


async def shrink(web):
    await web.patch(replicas=0)


async def renew(web):
    spec = {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}
    await web.template({"metadata": {"labels": {"tier": "x"}}, "spec": spec})


async def grow(web):
    await web.patch(replicas=3)


async def detach(web):
    await web.change(0, {"ownerReferences": None})


async def dissolve(web):
    await web.c.client.delete(Pool, web.key, propagation="Orphan")


EXPECTED = {shrink: set(), renew: {0, 1}, grow: {0, 1, 2}, detach: {0, 1, 2}, dissolve: {0, 1}}
"""The numbers that are left after each change of a pool of two."""


@pytest.mark.parametrize("done", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("act", EXPECTED, ids=lambda act: act.__name__)
async def test_a_pool_converges_after_a_crash_at_any_write(act, done):
    for at in range(1, 40):
        async with cluster() as c:
            strategy = {"proactive": {"statePreservation": "Offline"}}
            web = await start(c, scaleInStrategy=strategy)
            before = await disks(c)
            await c.crash_loops()
            cut = Cut(c, at, done=done)
            c.start_loops()
            await act(web)
            with_cut = await _within(cut.reached, 30)
            await c.crash_loops()
            cut.heal()
            c.start_loops()
            await web.until_stable(6)
            await web.until_finalizers_are_removed()
            numbers = {int(name.rpartition("-")[2]) for name in await web.names()}
            assert numbers == EXPECTED[act], f"cut at write {at}"
            await _all_is_kept(c, web, before)
        if not with_cut:
            assert at > 2, "the change was not cut at all"
            return
    pytest.fail("a change of two VirtualMachines takes more writes than it should")


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _all_is_kept(c, web, before):
    """Every disk is the one that was there, and belongs to who has its number, or to nobody."""
    after = await disks(c)
    assert {name: uid for name, uid in after.items() if name in before} == before
    vms = await web.vms()
    for volume in (await c.client.list(DataVolume, "default")).items:
        vm = vms.get(volume.metadata.name.replace("disk", "web"))
        assert controller_uid(volume) == (vm.metadata.uid if vm is not None else "")


async def test_a_rolling_update_of_a_pool_with_disks_survives_a_crash_of_everything():
    async with cluster(stand_ins=STORAGE) as c:
        web = Pools(c)
        running = {**HALTED, "runStrategy": "Always"}
        await web.create(3, vm=running, spec={"volumes": [DISK]}, maxUnavailable=1)
        await web.until_ready(3)
        before = {key_of(one).name for one in (await c.client.list(PersistentVolumeClaim)).items}
        await renew(web)
        for _ in range(4):
            await asyncio.sleep(0.3)
            await c.crash_loops()
            c.kill_agent("node0")
            await asyncio.sleep(1)
            c.start_node("node0")
            c.start_loops()
        await web.until_stable()
        await web.until_ready(3)
        after = {key_of(one).name for one in (await c.client.list(PersistentVolumeClaim)).items}
        assert after == before
