"""Programs that run to their end."""

import asyncio
import os
import select
import tempfile
from contextlib import suppress

import pytest

from corral.node.host import command
from corral.node.host.command import run


async def test_the_result_is_status_and_output():
    result = await run("sh", "-c", "cat; echo wrong >&2; exit 3", seconds=60, stdin=b"given")
    assert result == (3, b"given", b"wrong\n")


async def test_a_signal_is_a_negative_status():
    assert (await run("sh", "-c", "kill -9 $$", seconds=60)).status == -9


async def test_it_reads_an_open_file_in_a_directory_and_environment(tmp_path):
    with tempfile.TemporaryFile() as file:
        file.write(b"of a file")
        file.seek(0)
        environment = {**os.environ, "WORD": "said"}
        result = await run(
            "sh", "-c", "cat; echo $WORD; pwd",
            seconds=60, stdin=file, environment=environment, directory=tmp_path,
        )  # fmt: skip
    assert result.output.decode() == f"of a filesaid\n{tmp_path}\n"


async def test_a_program_that_is_not_there_raises():
    with pytest.raises(FileNotFoundError):
        await run("corral-nonesuch", seconds=60)


async def test_after_its_time_it_is_killed():
    with pytest.raises(TimeoutError):
        await run("sleep", "1000", seconds=0.1)


async def test_it_ends_with_its_caller_and_so_does_what_it_runs(tmp_path):
    os.mkfifo(tmp_path / "child")
    script = f"sleep 1000 & echo $! > {tmp_path}/child; wait"
    task = asyncio.create_task(run("sh", "-c", script, seconds=60))
    child = int(await asyncio.to_thread((tmp_path / "child").read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    require_gone(child)


async def test_a_start_that_is_cancelled_leaves_no_program(monkeypatch):
    start, started = asyncio.create_subprocess_exec, []
    half_way, going_on = asyncio.Event(), asyncio.Event()

    async def slow_start(*words, **options):
        started.append(await start(*words, **options))
        half_way.set()
        await going_on.wait()
        return started[0]

    monkeypatch.setattr(command.asyncio, "create_subprocess_exec", slow_start)
    task = asyncio.create_task(run("sleep", "1000", seconds=60))
    await half_way.wait()
    task.cancel()
    await asyncio.sleep(0)
    going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await started[0].wait() == -9


def require_gone(pid):
    """Wait for the end of a process that was killed."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], 60)[0]
        finally:
            os.close(descriptor)
