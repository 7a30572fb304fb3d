import asyncio
import resource
from pathlib import Path

import pytest

from corral.server.flowcontrol.memory_trim import DELAY_SECONDS, MIN_STREAMS, MemoryTrim

pytestmark = pytest.mark.looptime


async def test_memory_is_trimmed_once_after_many_streams():
    trims = []
    trimming = MemoryTrim(lambda: trims.append(1))
    for _ in range(MIN_STREAMS - 1):
        trimming.stream_ended()
    await asyncio.sleep(2 * DELAY_SECONDS)
    assert trims == []
    for _ in range(MIN_STREAMS):
        trimming.stream_ended()
    await asyncio.sleep(2 * DELAY_SECONDS)
    assert trims == [1]


async def test_trimmed_memory_is_returned_to_the_system():
    kept = [[bytes(3000) for _ in range(20_000)][::50]]  # so that it does not end in one piece
    trimming, held = MemoryTrim(), resident()
    for _ in range(MIN_STREAMS):
        trimming.stream_ended()
    await asyncio.sleep(2 * DELAY_SECONDS)
    assert kept
    assert resident() < held - (20 << 20)


def resident():
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
