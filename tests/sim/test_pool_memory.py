"""Machines of a pool whose memory is kept; the test plays the node that saves and restores it."""

import asyncio

import pytest
from lightkube.models.core_v1 import PersistentVolumeClaim as Claim
from tests.sim.cluster import cluster
from tests.sim.pools import STORAGE, Pools

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.pool import VirtualMachinePool as Pool
from corral.api.kinds.vmi.saved_memory import (
    IDENTITY,
    RESTORE_FROM,
    SAVED_MACHINE,
    Mark,
    mark_annotation,
    saves_to,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.controllers.pool.memory_plan import SAVE_TIMEOUT_SECONDS
from corral.controllers.pool.scale_plan import is_marked
from corral.node.hypervisor import Change
from corral.node.machine.lifecycle import Machine as NodeMachine
from corral.reconcile.objects import annotations_of, key_of

pytestmark = pytest.mark.looptime

ONLINE = {"proactive": {"statePreservation": "Online"}}


async def claims(c) -> dict[str, Claim]:
    return {key_of(one).name: one for one in (await c.client.list(Claim, "default")).items}


async def play_node(c, *, saves=True, restores=True):
    """Save what is to be saved, and take the mark off what was gone on from, for ever."""
    saved = set()
    while True:
        for machine in await c.machines():
            uid, phase = machine.metadata.uid, machine.status.phase
            if (claim := saves_to(machine)) and uid not in saved and phase == "Running":
                saved.add(uid)
                if saves:
                    await asyncio.sleep(2)
                    mark = Mark(identity=uid, instance=str(machine.key))
                    await annotate(c, claim, mark_annotation(mark))
                c.end(machine, Change.POWERED_OFF)
            claim = machine.metadata.annotations.get(RESTORE_FROM)
            if claim and restores and phase == "Running":
                await annotate(c, claim, mark_annotation(None))
        await asyncio.sleep(0.1)


async def annotate(c, claim, annotations):
    try:
        change = {"metadata": {"annotations": annotations}}
        await c.component.patch(Claim, Key("default", claim), change)
    except NotFound:
        return


async def started(c, replicas=2) -> Pools:
    web = Pools(c)
    await web.create(replicas, scaleInStrategy=ONLINE)
    await web.until_ready(replicas)
    return web


@pytest.fixture
def node():
    """Plays the node of a cluster for the length of a test."""
    tasks = []

    def play(c, **how):
        tasks.append(asyncio.get_running_loop().create_task(play_node(c, **how)))

    yield play
    for task in tasks:
        task.cancel()


async def test_memory_is_saved_and_restored_under_the_same_ordinal(node):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c)
        before = await web.machines()
        node(c)
        await web.patch(replicas=0)
        await web.until_ready(0)
        await web.until_stable()
        found = await claims(c)
        assert set(found) == {"web-0-memory", "web-1-memory"}
        assert all(SAVED_MACHINE in annotations_of(claim) for claim in found.values())
        [owner] = found["web-0-memory"].metadata.ownerReferences
        assert (owner.kind, owner.name) == ("VirtualMachinePool", "web")
        # 64 MiB, an eighth of it, and room
        assert found["web-0-memory"].spec.resources.requests["storage"] == "328Mi"
        await web.patch(replicas=2)
        await web.until_ready(2)
        for name, machine in (await web.machines()).items():
            annotations = machine.metadata.annotations
            assert annotations[RESTORE_FROM] == f"{name}-memory"
            assert annotations[IDENTITY] == before[name].metadata.uid
        await c.until(lambda: _no_claims(c))
        await web.until_stable()
        await web.until_ready(2)
        for vm in (await web.vms()).values():
            annotations = vm.spec.template.metadata.annotations
            assert RESTORE_FROM not in annotations
            assert annotations[IDENTITY] == before[vm.metadata.name].metadata.uid
            # what kubectl wait compares
            assert vm.status.observed_generation == vm.metadata.generation
        assert await web.events("SuccessfulUpdate") == []


async def _no_claims(c):
    return not await claims(c)


async def test_a_vm_whose_memory_cannot_be_saved_is_deleted_without_it(node):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c)
        node(c, saves=False)
        await web.patch(replicas=0)
        await web.until_ready(0)
        await web.until_stable()
        assert await claims(c) == {}
        assert sum("the VMI ended" in message for message in await web.events("FailedUpdate")) == 2
        await web.patch(replicas=1)
        await web.until_ready(1)
        [machine] = (await web.machines()).values()
        assert RESTORE_FROM not in machine.metadata.annotations


async def test_no_memory_is_saved_of_a_vm_that_does_not_run():
    async with cluster(stand_ins=STORAGE) as c:
        web = Pools(c)
        await web.create(1, scaleInStrategy=ONLINE, spec={"nodeSelector": {"nowhere": "to"}})
        await web.until_stable()
        await web.patch(replicas=0)
        await web.until_gone("web-0", seconds=10)
        assert await claims(c) == {}


async def test_a_vm_with_saved_memory_is_not_restarted_before_its_deletion(node):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        uids = set()
        node(c)
        await web.patch(replicas=0)

        async def is_gone():
            uids.update(machine.metadata.uid for machine in await c.machines())
            return not await web.names()

        await c.until(is_gone, every=0.01)
        assert len(uids) == 1


async def test_scale_out_waits_for_a_save_in_progress(node):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        node(c)
        await web.patch(replicas=0)
        await asyncio.sleep(1)
        await web.patch(replicas=1)
        await c.until(lambda: _restored(web))
        await web.until_ready(1)


async def _restored(web):
    machines = await web.machines()
    return "web-0" in machines and RESTORE_FROM in machines["web-0"].metadata.annotations


@pytest.mark.parametrize("moment", [0.02, 0.06, 0.1, 0.5, 1.0, 2.1, 2.3])
async def test_memory_is_kept_after_a_crash_of_the_manager_at_any_write(node, moment):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c)
        node(c)
        await web.patch(replicas=0)
        for _ in range(3):
            await asyncio.sleep(moment)
            await c.crash_loops()
            await asyncio.sleep(1)
            c.start_loops()
        await c.until(lambda: _empty(web))
        await web.until_stable()
        assert set(await claims(c)) == {"web-0-memory", "web-1-memory"}


@pytest.fixture
def deaf(monkeypatch):
    """Nodes do not hear that they are to save a machine."""
    monkeypatch.setattr(NodeMachine, "save", lambda *_args, **_kwargs: None)


async def _is_asked(c):
    return any(saves_to(machine) for machine in await c.machines())


async def _has_claim(c):
    return bool(await claims(c))


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("reached", [_has_claim, _is_asked])
async def test_memory_is_kept_if_the_manager_is_down_for_long(node, reached):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        await web.patch(replicas=0)
        await c.until(lambda: reached(c), every=0.001)
        await c.crash_loops()
        await asyncio.sleep(2 * SAVE_TIMEOUT_SECONDS)
        node(c)
        c.start_loops()
        await c.until(lambda: _empty(web))
        assert SAVED_MACHINE in annotations_of((await claims(c))["web-0-memory"])
        assert await web.events("FailedUpdate") == []


@pytest.mark.usefixtures("deaf")
async def test_memory_that_is_not_saved_in_time_is_dropped_with_an_event():
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        await web.patch(replicas=0)
        await asyncio.sleep(SAVE_TIMEOUT_SECONDS - 10)
        assert await web.names() == {"web-0"}
        await web.until_gone("web-0", seconds=30)
        [message] = await web.events("FailedUpdate")
        assert message == (
            "Error preserving state of VM default/web-0: not saved within 600 seconds "
            "(claim web-0-memory is Bound): deleting it without its memory"
        )


async def _empty(web):
    return not await web.names()


async def test_a_vm_detached_before_its_save_runs_on_unchanged(node):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        await web.patch(replicas=0)
        await asyncio.sleep(0.5)
        assert (await web.vm(0)).spec.strategy == "Manual"
        await web.change(0, {"ownerReferences": None})
        node(c)
        await web.until_stable(6)
        vm = await web.vm(0)
        assert not is_marked(vm)
        assert (vm.spec.strategy, vm.status.printable_status) == ("Always", "Running")
        assert await claims(c) == {}


async def test_saved_memory_is_deleted_with_its_pool(node):
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        node(c)
        await web.patch(replicas=0)
        await web.until_ready(0)
        await c.client.delete(Pool, web.key)
        await c.until(lambda: _no_claims(c))


async def test_deleting_a_pool_does_not_wait_for_a_save():
    async with cluster(stand_ins=STORAGE) as c:
        web = await started(c, 1)
        await web.patch(replicas=0)
        await asyncio.sleep(1)
        await c.client.delete(Pool, web.key)
        await web.until_gone("web-0", seconds=20)
        await c.until(lambda: _no_claims(c))
        with pytest.raises(NotFound):
            await c.client.get(Machine, "web-0", "default")
