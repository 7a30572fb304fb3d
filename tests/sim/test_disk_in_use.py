"""A machine whose disk another one has: who that is, and what happens when it goes."""

import asyncio

import pytest
from tests.sim.test_saved_memory import (
    event_message,
    host_with_storage,
    in_phase,
    machine_of,
    running,
)

from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
from corral.api.object import Key
from corral.node.hollow.hypervisor import Hollow
from corral.node.hypervisor import StartError

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

DISK = {"name": "data", "disk": {"bus": "virtio"}}
VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "memory"}}
IN_USE = "the claim memory is in use by keeper"


@pytest.fixture
def one_at_a_time(monkeypatch):
    """Let no machine start while another one runs, as QEMU does with one disk."""
    start = Hollow.start

    async def refuse(self, definition):
        if self.guests:
            raise StartError("StartFailed", "its disk is used by another machine", busy="data")
        return await start(self, definition)

    monkeypatch.setattr(Hollow, "start", refuse)


async def waiting(host):
    """Make a machine that cannot start, and wait until it rests for minutes."""
    await running(host, "keeper", domain=domain(DISK), volumes=[VOLUME])
    document = {
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": {"domain": domain(DISK), "volumes": [VOLUME]},
    }
    await host.whole.client.create(Machine, document)
    assert (await event_message(host, "vm", "StartFailed")).endswith(f"another machine: {IN_USE}")
    await asyncio.sleep(200)


def domain(*disks):
    return {"resources": {"requests": {"memory": "64M"}}, "devices": {"disks": list(disks)}}


async def test_a_vmi_reports_the_user_of_its_disk_and_starts_once_that_is_gone(
    tmp_path, one_at_a_time
):
    async with host_with_storage(tmp_path) as host:
        await waiting(host)
        conditions = (await machine_of(host, "vm")).status.conditions
        assert any(one.type == "Synchronized" and IN_USE in one.message for one in conditions)
        began = asyncio.get_running_loop().time()
        await host.whole.client.delete(Machine, Key("default", "keeper"))
        await in_phase(host, "vm", "Running")
        assert asyncio.get_running_loop().time() - began < 5
