"""The target of a migration: what its source is told when the target is stopped meanwhile."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from corral.aio import run_until
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hollow.hypervisor import Hollow, HollowNetworks
from corral.node.hypervisor import Definition
from corral.node.machine.disk_leases import MachineLeases
from corral.node.machine.migration.arrival import Arrival
from corral.node.machine.migration.handover import Target
from corral.node.machine.migration.targets import MigrationTargets
from corral.node.network.attachment import Networking
from corral.node.state.machine_record import Record, Stage
from corral.node.state.machine_state import MachineState

VMI = msgspec.convert(
    {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
    },
    VirtualMachineInstance,
)
pytestmark = pytest.mark.looptime

RECORD = Record(
    namespace="default",
    instance="vm",
    uid="u",
    pod="p",
    pod_uid="q",
    arrival="m",
    stage=Stage.RECEIVING,
)


async def test_a_target_that_is_stopped_while_it_runs_the_guest_tells_its_source(tmp_path):
    stop, entered = asyncio.Event(), asyncio.Event()

    class Slow(HollowNetworks):
        async def take_over(self, owner):
            entered.set()
            await asyncio.sleep(1)

    hollow, targets = Hollow(), MigrationTargets()
    recorder = SimpleNamespace(changed=lambda: None)
    state = MachineState(RECORD, tmp_path, recorder=recorder, step=lambda *_: None)
    arrival = Arrival(
        state,
        hypervisor=hollow,
        networking=Networking(Slow()),
        targets=targets,
        limits=None,
        leases=MachineLeases(),
        arrived=lambda _guest: None,
        require=lambda _record: None,
    )
    guest = await hollow.start(Definition(vmi=VMI, directory=tmp_path))
    guest._state.stopped = True
    living = asyncio.ensure_future(run_until(stop, arrival.resume(guest)))
    await asyncio.sleep(1)
    target = await targets.reach("m", "b")
    telling = asyncio.ensure_future(target.run_guest(paused=False))
    await entered.wait()
    stop.set()
    async with asyncio.timeout(10):
        await living
        await telling
    assert await target.state() is Target.RUNNING
    assert state.record.stage is Stage.STARTED
    await guest.destroy()
