"""Locks and processes as /proc shows them."""

import asyncio
import os

from corral.node.host.proc import LOCK, acquire_lock, lock_holder, runs, state_of


async def test_a_reader_of_the_lock_file_is_not_its_holder(tmp_path):
    (tmp_path / LOCK).write_text("open\n")
    reader = await asyncio.create_subprocess_exec(
        "tail", "-f", tmp_path / LOCK, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await reader.stdout.readline() == b"open\n"
        assert lock_holder(tmp_path / LOCK) is None
    finally:
        reader.kill()
        await reader.wait()


async def test_the_holder_of_a_lock_is_found(tmp_path):
    lock = acquire_lock(tmp_path)
    holder = await asyncio.create_subprocess_exec("sleep", "60", pass_fds=[lock])
    os.close(lock)
    try:
        assert runs(tmp_path)
        assert lock_holder(tmp_path / LOCK) == holder.pid
        assert acquire_lock(tmp_path) is None
    finally:
        holder.kill()
        await holder.wait()
    assert not runs(tmp_path)
    assert state_of(holder.pid) is None
