"""Asynchronous standard input and output: pipes, files, terminals."""

import asyncio
import os
import pty
import termios
from contextlib import closing

import pytest

from corral.cli.virtctl import stdio


async def all_of(descriptor: int) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([data async for data in stdio.read(descriptor)])


async def test_a_pipe_does_not_block_other_tasks():
    reading, writing = os.pipe()
    data = os.urandom(300_000)  # more than a pipe holds: a write that waits would wait for ever

    async def write() -> None:
        await stdio.write(writing, data)
        os.close(writing)

    task = asyncio.ensure_future(write())
    assert await all_of(reading) == data
    await task
    os.close(reading)


async def test_a_file_is_read_to_its_end(tmp_path):
    file = tmp_path / "input"
    file.write_bytes(b"x" * 200_000)
    with file.open("rb") as opened:
        assert not stdio.is_pollable(opened.fileno())
        assert await all_of(opened.fileno()) == b"x" * 200_000


async def test_a_closed_output_is_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        await stdio.write(writing, b"x")
    os.close(writing)


async def test_a_closed_terminal_is_the_end_of_input():
    ours, theirs = pty.openpty()
    os.close(ours)
    assert await all_of(theirs) == b""
    os.close(theirs)


def test_a_terminal_is_raw_for_the_block_alone():
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)

    def fail() -> None:
        with stdio.raw(theirs):
            assert termios.tcgetattr(theirs) != before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_a_file_is_not_made_raw(tmp_path):
    with closing((tmp_path / "file").open("w")) as file, stdio.raw(file.fileno()):
        pass
