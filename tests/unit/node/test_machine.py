"""The life of one machine, with a guest that is not there: what it does to what others hold."""

import asyncio
from types import SimpleNamespace

import pytest

from corral.node import record as records
from corral.node.boots import Boots
from corral.node.hollow import Hollow
from corral.node.hypervisor import HungError
from corral.node.limits.bounds import Bounds
from corral.node.machine import Machine
from corral.node.networking import Networking
from corral.node.record import Record, Stage

pytestmark = pytest.mark.looptime

NAMED = {"namespace": "default", "instance": "vm", "uid": "u", "pod": "p", "pod_uid": "p"}


class Limits:
    """Has stopped what an earlier manager left, as one that bounds processors by itself does."""

    def __init__(self):
        self.stopped = True

    async def wake(self, _directory):
        self.stopped = False

    async def lift(self, _uid, _groups): ...

    async def ran_out(self, _groups):
        return False

    async def clear(self, _uid, _groups): ...

    def step_back(self, _uid, _back): ...

    def release(self, _uid): ...


@pytest.fixture
def limits():
    return Limits()


@pytest.fixture
def hypervisor(limits):
    class Stoppable(Hollow):
        async def find(self, directory):
            if limits.stopped:
                raise HungError("it does not answer")
            return await super().find(directory)

        async def end(self, directory):
            assert not limits.stopped, "QEMU does not hear that it is to end"
            await super().end(directory)

    return Stoppable()


@pytest.fixture
def told():
    return []


@pytest.fixture
def machine_of(tmp_path, hypervisor, limits, told, monkeypatch):
    """A machine as an earlier manager has left it: its record says so much."""
    monkeypatch.setattr(asyncio, "to_thread", inline)

    def make(**on_record):
        record = Record(bounds=Bounds(cpu_nanos=300_000_000), **NAMED | on_record)
        records.write(tmp_path, record)
        return Machine(
            record,
            tmp_path,
            hypervisor=hypervisor,
            networking=Networking(None),
            boots=Boots(hypervisor.boots_at_once),
            voice=SimpleNamespace(
                changed=lambda: None,
                of_pod=lambda *event: told.append(event),
                of_instance=lambda *event: told.append(event),
            ),
            steps=lambda _step: None,
            beside=lambda _machine, _tasks: None,
            limits=limits,
        )

    return make


async def inline(function, *arguments):
    return function(*arguments)


async def test_what_was_stopped_by_an_earlier_manager_is_woken_before_it_is_asked(
    machine_of, told, limits
):
    machine = machine_of(stage=Stage.STARTED)
    async with asyncio.timeout(60):
        await machine.run(None, None)
    assert not limits.stopped
    assert "Unresponsive" not in [reason for _, reason, _ in told]
    assert machine.record.stage is Stage.ENDED
