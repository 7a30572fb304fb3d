"""The manager is killed between any two steps of the end of a machine."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.limited_machine import BUSY, Limited, disk_with
from tests.real_machine import hypervisor, new_directory

from corral.node.host.process import runs
from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import Limits
from corral.node.machine.shutdown import end_machines
from corral.node.state import machine_record as records
from corral.node.state.machine_record import Outcome, Stage

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
OFF = bytes([0xBA, 0x04, 0x06, 0xB8, 0x00, 0x20, 0xEF, *BUSY])
"""The code of a guest that turns itself off: ACPI's sleep state S5."""
PANIC = bytes([0xBA, 0x05, 0x05, 0xB0, 0x01, 0xEE, *BUSY])
"""The code of a guest that says that it has panicked, at the port for that (pvpanic)."""

MANAGER = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.limited_machine import Limited
from corral.node.limits.bounds import Bounds
from corral.node.limits.limits import Limits
from corral.node.qemu.hypervisor import Qemu

kill_at, stopped = sys.argv[1], sys.argv[2] == "stopped"
data, directory, disk = (Path(each) for each in sys.argv[3:6])

async def main():
    qemu = Qemu(directory.parent)
    await qemu.prepare()
    one = Limited(qemu, directory, disk, Bounds(), Limits(data))
    one.vmi.spec.domain.devices.panic_devices = [{"model": "isa"}]
    def step(name):
        if name == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "resumed" and stopped:
            one.machine.stop(0)
    one.machine._state.step = step
    await one.run()

asyncio.run(main())
"""


@pytest.fixture
def machines(tmp_path):
    """The directory of a node's machines."""
    directory = tmp_path / records.MACHINES
    directory.mkdir(mode=0o711)
    return directory


async def killed(kill_at: str, how: str, data: Path, directory: Path, disk: Path) -> None:
    """A manager whose machine comes to its end, and that is killed over it."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MANAGER, kill_at, how, data, directory, disk,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )  # fmt: skip
    assert await child.wait() == -signal.SIGKILL


GUESTS = [
    (OFF, "runs", Outcome.SUCCEEDED, "was shut down"),
    (PANIC, "runs", Outcome.FAILED, "crashed"),
    (BUSY, "stopped", Outcome.FAILED, "did not shut down in time"),
]


@pytest.mark.parametrize("kill_at", ["decided", "ended"])
@pytest.mark.parametrize(("code", "how", "outcome", "message"), GUESTS)
async def test_a_restarted_manager_completes_a_stop_with_its_reason(
    tmp_path, machines, kill_at, code, how, outcome, message
):
    disk, directory = disk_with(tmp_path, code), new_directory(machines)
    async with hypervisor(machines) as qemu:
        await killed(kill_at, how, tmp_path, directory, disk)
        assert runs(directory) is (kill_at == "decided")
        one = Limited(qemu, directory, disk, Bounds(), Limits(tmp_path))
        await one.run()
        assert one.machine.facts.ended
        assert not runs(directory)
        record = records.read(directory)
        assert (record.stage, record.outcome) == (Stage.ENDED, outcome)
        assert message in record.message


async def test_stopping_all_machines_includes_one_whose_guest_has_ended(tmp_path, machines):
    disk, directory = disk_with(tmp_path, OFF), new_directory(machines)
    async with hypervisor(machines) as qemu:
        await killed("decided", "runs", tmp_path, directory, disk)
        ended = []
        await end_machines(tmp_path, qemu, seconds=60, ended=ended.append)
        assert ended == ["vm"]
        assert not runs(directory)
        assert records.read(directory).outcome is Outcome.SUCCEEDED
