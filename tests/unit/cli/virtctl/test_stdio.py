"""Standard input and output are read and written beside other work, whatever they are."""

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


async def test_a_pipe_is_read_and_written_while_others_work():
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


async def test_output_that_nobody_reads_says_so():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        await stdio.write(writing, b"x")
    os.close(writing)


async def test_a_terminal_that_goes_away_has_said_all():
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


def test_what_is_no_terminal_is_left_alone(tmp_path):
    with closing((tmp_path / "file").open("w")) as file, stdio.raw(file.fileno()):
        pass
