"""Programs beside the manager, tried with shells that end on request."""

import asyncio
import os
import signal

import pytest

from corral.aio import Background
from corral.node.host import process
from corral.node.host.process import launch, runs
from corral.node.network import helper_processes as helpers
from corral.node.network.helper_processes import Helper
from corral.node.network.netlink import NetworkError


class Shell:
    """A helper that runs a script, and its problems."""

    def __init__(self, directory, script):
        self.script = script
        self.starts = 0
        self.changed = asyncio.Event()
        self.helper = Helper("shell", directory, self.start, on_change=self.changed.set)

    async def start(self, descriptors, output):
        self.starts += 1
        return launch(["sh", "-c", self.script], descriptors=descriptors, output=output)

    async def next_problem(self):
        async with asyncio.timeout(60):
            await self.changed.wait()
        self.changed.clear()
        return self.helper.problem


@pytest.fixture
async def shell(tmp_path):
    made = Shell(tmp_path / "shell", "exec sleep 60")
    yield made
    await made.helper.end()
    assert not runs(tmp_path / "shell")


async def test_a_helper_is_started_once(shell):
    first = await shell.helper.ensure()
    assert await shell.helper.ensure() is first
    assert shell.starts == 1


async def test_a_cancelled_start_leaves_a_complete_helper(shell, tmp_path):
    start, begun, go = shell.start, asyncio.Event(), asyncio.Event()

    async def slowly(descriptors, output):
        begun.set()
        await go.wait()
        return await start(descriptors, output)

    shell.helper._start = slowly
    task = asyncio.create_task(shell.helper.ensure())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shell.helper.is_running
    assert runs(tmp_path / "shell")


async def test_a_restarted_manager_adopts_the_helper(shell, tmp_path):
    first = await shell.helper.ensure()
    shell.helper.release()
    later = Shell(tmp_path / "shell", "exit 1")
    assert (await later.helper.ensure()).identity == first.identity
    assert later.starts == 0
    later.helper.release()


async def test_a_killed_helper_is_started_again(shell, monkeypatch):
    monkeypatch.setattr(helpers, "_STABLE_SECONDS", 0.05)
    async with Background() as tasks:
        tasks.start(shell.helper.run(), name="shell")
        async with asyncio.timeout(60):
            while not shell.helper.is_running:
                await asyncio.sleep(0.01)
        first = await shell.helper.ensure()
        await asyncio.sleep(0.1)
        os.kill(first.identity.pid, signal.SIGKILL)
        assert await shell.next_problem() == "shell has ended and is started again"
        assert await shell.next_problem() == ""
        assert (await shell.helper.ensure()).identity != first.identity


async def test_a_helper_that_exits_reports_why(shell):
    shell.script = "echo no such namespace >&2; echo more; exit 1"
    async with Background() as tasks:
        tasks.start(shell.helper.run(), name="shell")
        assert (
            await shell.next_problem()
            == "shell has ended early and is started again: no such namespace"
        )
        shell.script = "exec sleep 60"
        async with asyncio.timeout(60):
            while not shell.helper.is_running:
                await asyncio.sleep(0.01)


async def test_a_helper_that_does_not_exit_is_reported(shell, monkeypatch):
    running = await shell.helper.ensure()
    with monkeypatch.context() as kernel:
        kernel.setattr(process, "END_SECONDS", 0.01)
        kernel.setattr(running, "kill", lambda: None)
        with pytest.raises(NetworkError, match=rf"shell \(process {running.identity.pid}\)"):
            async with asyncio.timeout(60):
                await shell.helper.end()


async def test_a_helper_that_cannot_be_started_is_reported(tmp_path):
    async def missing(descriptors, output):
        raise NetworkError("pasta is missing", "Install it")

    changed = asyncio.Event()
    helper = Helper("pasta", tmp_path, missing, on_change=changed.set)
    async with Background() as tasks:
        tasks.start(helper.run(), name="pasta")
        async with asyncio.timeout(60):
            await changed.wait()
        assert helper.problem == "pasta is missing. Install it"
