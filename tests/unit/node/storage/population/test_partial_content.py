"""Content is written past the kernel's memory where that can be, and is the same where not."""

import errno
import fcntl
import os
import random

import pytest

from corral.node.storage.population.partial_content import CHUNK, PartialContent

CONTENT = random.Random(1).randbytes(3 * CHUNK + 777)


def take(directory, sizes):
    """Let a part take the content in pieces of such sizes, and what is left at once."""
    part = PartialContent(directory, max_bytes=len(CONTENT))
    part.begin("upload", "", 0)
    position = 0

    def read(buffer):
        nonlocal position
        count = min(next(sizes, CHUNK), len(buffer), len(CONTENT) - position)
        buffer[:count] = CONTENT[position : position + count]
        position += count
        return count

    part.write_from(read, lambda _: None)
    return part.path.read_bytes()


@pytest.mark.parametrize("sizes", [(), (1,), (4096, 5, 4096), (CHUNK, CHUNK - 1)])
def test_pieces_of_any_size_come_together(tmp_path, sizes):
    assert take(tmp_path, iter(sizes)) == CONTENT


def test_a_device_that_refuses_direct_writes_gets_others(tmp_path, monkeypatch):
    pwrite, refused = os.pwrite, []

    def strict(descriptor, content, position):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(position)
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(descriptor, content, position)

    monkeypatch.setattr("os.pwrite", strict)
    assert take(tmp_path, iter(())) == CONTENT
    assert len(refused) <= 1


def test_a_file_system_without_direct_writes_gets_others(tmp_path, monkeypatch):
    set_flags = fcntl.fcntl

    def strict(descriptor, command, flags=0):
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return set_flags(descriptor, command, flags)

    monkeypatch.setattr("fcntl.fcntl", strict)
    assert take(tmp_path, iter(())) == CONTENT
