"""Ending the machines of a host that no manager looks after, and what is left of them."""

import asyncio

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hollow.hypervisor import Behaviour, Hollow
from corral.node.hypervisor import Definition, StuckError
from corral.node.machine.shutdown import end_machines
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Outcome, Record, Stage


async def test_record_and_logs_of_a_finished_machine_stay(tmp_path):
    directory = tmp_path / records.MACHINES / "u1"
    (directory / "volumes").mkdir(parents=True)
    record = Record(
        namespace="default", instance="one", uid="u1", pod="p", pod_uid="pu", stage=Stage.STARTED
    )
    records.write(directory, record)
    for name in ("root.qcow2", "console.log", "console.log.1", "volumes/seed.iso"):
        (directory / name).write_text("secret")
    ended = []
    await end_machines(tmp_path, Hollow(), seconds=0, ended=ended.append)
    assert ended == ["one"]
    assert sorted(each.name for each in directory.iterdir()) == [
        *("console.log", "console.log.1", "machine.json")
    ]
    assert records.read(directory).stage is Stage.ENDED


async def machine(hypervisor, node, name):
    """A machine that runs, and its record."""
    directory = node / records.MACHINES / name
    directory.mkdir(parents=True)
    known = {"namespace": "default", "instance": name, "uid": name, "pod": name, "pod_uid": name}
    records.write(directory, Record(**known, stage=Stage.STARTED))
    document = {"metadata": {"name": name}, "spec": {"domain": {"devices": {}}}}
    vmi = msgspec.convert(document, VirtualMachineInstance)
    guest = await hypervisor.start(Definition(vmi=vmi, directory=directory))
    await guest.resume()
    return guest


@pytest.fixture
def hypervisor(monkeypatch):
    monkeypatch.setattr("corral.node.hollow.plugs.HollowPlugs.plug_initial", lambda *_: None)
    return Hollow(Behaviour(shutdown_seconds=1))


@pytest.mark.looptime
async def test_a_machine_that_cannot_be_killed_delays_no_other(tmp_path, hypervisor):
    await machine(hypervisor, tmp_path, "well")
    held = await machine(hypervisor, tmp_path, "held")
    held.hung = held.stuck = True
    ended = []
    began = asyncio.get_running_loop().time()
    with pytest.raises(
        StuckError, match="killed, but still there: held: their QEMU waits in the kernel"
    ):
        await end_machines(tmp_path, hypervisor, seconds=5, ended=ended.append)
    assert ended == ["well"]
    assert asyncio.get_running_loop().time() - began < 90
    left = {path.name: record for path, record in records.scan(tmp_path / records.MACHINES)}
    assert left["well"].stage is Stage.ENDED
    assert left["well"].outcome is Outcome.SUCCEEDED
    assert left["held"].stage is Stage.STARTED, "whoever comes next ends it"


@pytest.mark.looptime
async def test_a_machine_that_cannot_be_killed_is_retried_after_a_pause(tmp_path, monkeypatch):
    directory = tmp_path / records.MACHINES / "held"
    directory.mkdir(parents=True)
    known = {"namespace": "default", "instance": "held", "uid": "held", "pod": "p", "pod_uid": "p"}
    records.write(directory, Record(**known, stage=Stage.STARTED, outcome=Outcome.FAILED))
    tries = []

    async def end(_self, directory):
        tries.append(directory)
        assert len(tries) < 1000, "it is tried without a pause"
        raise StuckError("it is set not to end")

    monkeypatch.setattr(Hollow, "end", end)
    with pytest.raises(StuckError):
        await end_machines(tmp_path, Hollow(), seconds=0, ended=lambda _: None)
    assert len(tries) > 1
