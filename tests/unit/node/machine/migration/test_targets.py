"""Targets of migrations on this host: their states, and the files that both sides have."""

import asyncio
from types import SimpleNamespace

import pytest

from corral.node.hypervisor import GuestError, NoAnswerError
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.targets import LocalTarget, MigrationTargets


@pytest.fixture
def target():
    return LocalTarget(SimpleNamespace(received=False), ["root"])


async def test_a_migration_without_a_target_here_has_no_answer():
    with pytest.raises(NoAnswerError, match="node b has no target for this migration"):
        await MigrationTargets().reach("m", "b")


async def test_the_source_waits_until_the_target_is_complete(target):
    waiting = asyncio.ensure_future(target.complete())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await target.state() is TargetState.RECEIVING
    target.is_complete = True
    target.notify()
    await waiting
    assert await target.state() is TargetState.COMPLETE


async def test_a_target_that_ends_fails_the_source(target):
    waiting = asyncio.ensure_future(target.complete())
    await asyncio.sleep(0)
    target.fail("QEMU has ended")
    with pytest.raises(GuestError, match="the target failed: QEMU has ended"):
        await waiting
    assert await target.state() is TargetState.ABSENT
    with pytest.raises(GuestError):
        await target.run_guest(paused=False)


async def test_a_target_requested_to_run_the_guest_is_not_cancelled(target):
    notifying = asyncio.ensure_future(target.run_guest(paused=False))
    await asyncio.sleep(0)
    await target.cancel("too late")
    assert not target.failure
    target.is_running = True
    target.notify()
    await notifying
    assert await target.state() is TargetState.RUNNING


async def test_a_target_is_cancelled_once_the_addresses_lead_to_the_source_again():
    log = []

    async def give_back():
        await asyncio.sleep(0)
        log.append("given back")

    async def wait():
        await target.notified()
        log.append("notified")

    target = LocalTarget(SimpleNamespace(received=False), give_back=give_back)
    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    await target.cancel("it was cancelled")
    await waiting
    assert log == ["given back", "notified"]
    assert target.changed.is_set()
    await target.cancel("again")
    assert (target.failure, log) == ("it was cancelled", ["given back", "notified"])


async def test_memory_is_received_once(target):
    (await target.open_memory()).close()
    with pytest.raises(GuestError):
        await target.open_memory()
    assert target.memory is not None
    target.memory.close()


async def test_a_disk_is_received_once():
    async def open_disks():
        return "stream"

    target = LocalTarget(SimpleNamespace(received=False, open_disks=open_disks), ["root", "data"])
    for volume in target.disks:
        assert await target.open_disk(volume) == "stream"
        with pytest.raises(GuestError, match=f"its disk {volume} is received already"):
            await target.open_disk(volume)


async def test_a_disk_that_is_not_copied_cannot_be_opened(target):
    with pytest.raises(GuestError, match="the target has no disk other"):
        await target.open_disk("other")


VMI = SimpleNamespace(metadata=SimpleNamespace(uid="u"))


async def test_a_target_has_the_files_that_its_source_never_writes(tmp_path):
    targets = MigrationTargets()
    source, folder = tmp_path / "source" / "volumes", tmp_path / "target" / "volumes"
    source.mkdir(parents=True)
    for name in ("root.image.raw", "seed.iso", "root.qcow2"):
        (source / name).write_text(name)
    targets.directories["u"] = tmp_path / "source"
    for _ in range(2):  # an attempt may be repeated
        await targets.copy_files("m", VMI, "a", folder)
    assert sorted(each.name for each in folder.iterdir()) == ["root.image.raw", "seed.iso"]
    assert (folder / "root.image.raw").samefile(source / "root.image.raw")


async def test_a_source_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(GuestError, match="node a does not have the source of this migration"):
        await MigrationTargets().copy_files("m", VMI, "a", tmp_path)


class Elsewhere:
    """The other hosts."""

    def __init__(self):
        self.calls = []

    async def reach(self, *arguments):
        self.calls.append(arguments)
        return "a target"

    async def copy_files(self, *arguments):
        self.calls.append(arguments)


async def test_nodes_of_other_hosts_are_reached_there(tmp_path):
    remote = Elsewhere()
    targets = MigrationTargets(lambda node: node == "a", remote)
    assert targets.is_own("a")
    assert not targets.is_own("b")
    assert await targets.reach("m", "b") == "a target"
    await targets.copy_files("m", VMI, "b", tmp_path)
    assert remote.calls == [("m", "b"), ("m", VMI, "b", tmp_path)]
    with pytest.raises(NoAnswerError):
        await targets.reach("m", "a")
