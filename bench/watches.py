"""Watches: how soon many watchers hear of a change, and what those cost that hear of nothing."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bench.api import VMIS
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure, percentile
from bench.load import fill

MAPS = "/api/v1/namespaces/default/configmaps"
OBJECTS = (0, 1000, 10_000)
WATCHERS = (1, 16, 64)
RATE = 200
"""Writes a second."""
SECONDS = 3
IDLE = 1000


def measure() -> list[Figure]:
    figures = []
    for objects in OBJECTS:
        with cluster("--machine", "hollow", "--no-controllers") as one:
            fill(one, VMIS, lambda number: vmi(f"filler-{number}"), objects)
            for watchers in WATCHERS:
                delays = asyncio.run(fan_out(one, watchers))
                name = f"event to {watchers} watchers, {RATE} writes/s, {objects} objects"
                notes = {f"p{each}_ms": round(percentile(delays, each), 2) for each in (50, 99)}
                goal = "≤ 30 ms" if watchers == max(WATCHERS) else ""
                figures.append(Figure(f"{name}, p99", [notes["p99_ms"]], "ms", goal, notes))
    with cluster("--machine", "hollow", "--no-controllers") as one:
        time.sleep(3)
        figures += asyncio.run(idle(one))
    return figures


async def idle(one: Cluster) -> list[Figure]:
    """What the manager holds for watchers that wait, and spends on them."""
    before = one.memory_mib()
    async with AsyncExitStack() as stack:
        for number in range(IDLE):
            await stack.enter_async_context(_watch(one, VMIS))
            if number == IDLE // 2:
                half = one.memory_mib()
        await asyncio.sleep(2)
        grown, spent = one.memory_mib() - before, one.cpu_seconds()
        await asyncio.sleep(10)
        spent = one.cpu_seconds() - spent
    notes = {"mib_of_the_second_half": round(before + grown - half, 1)}
    return [
        Figure(f"memory of {IDLE} idle watchers", [grown], "MiB", "≤ 50 MiB", notes),
        Figure(f"processor of {IDLE} idle watchers", [spent / 10 * 100], "% of a core"),
    ]


async def fan_out(one: Cluster, watchers: int) -> list[float]:
    """Milliseconds from before the write was sent until each watcher had read the event."""
    delays: list[float] = []

    async def listen(reader: asyncio.StreamReader) -> None:
        while True:
            line = await reader.readline()
            at = line.find(b'"sent":"')
            if at >= 0 and b'"ADDED"' in line[:40]:
                sent = float(line[at + 8 : line.index(b'"', at + 8)])
                if sent >= start:
                    delays.append((time.monotonic() - sent) * 1e3)

    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(_watch(one, MAPS)) for _ in range(watchers)]
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(listen(reader)) for reader in readers]
            await _write(one, start)
            await asyncio.sleep(1)
            for task in tasks:
                task.cancel()
    assert len(delays) >= RATE * SECONDS * watchers * 0.999, len(delays)
    return delays


async def _write(one: Cluster, start: float) -> None:
    """Create objects at a steady rate, each with the moment at which it was sent."""
    reader, writer = await _connect(one)
    for number in range(RATE * SECONDS):
        await asyncio.sleep(max(0, start + number / RATE - time.monotonic()))
        body = json.dumps({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"generateName": "event-"}, "data": {"sent": repr(time.monotonic())},
        })  # fmt: skip
        writer.write(
            f"POST {MAPS} HTTP/1.1\r\n{_head(one)}"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n{body}".encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 201 " in answer.split(b"\r\n", 1)[0], answer
        lengths = [
            line.split(b":")[1]
            for line in answer.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        ]
        await reader.readexactly(int(lengths[0]))
    writer.close()


@asynccontextmanager
async def _watch(one: Cluster, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """A watch that has begun, as what can be read of it."""
    reader, writer = await _connect(one)
    query = "watch=true&allowWatchBookmarks=true&resourceVersion=1"
    writer.write(f"GET {path}?{query} HTTP/1.1\r\n{_head(one)}\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer.split(b"\r\n", 1)[0], answer
    try:
        yield reader
    finally:
        writer.transport.abort()


def _head(one: Cluster) -> str:
    return f"Host: x\r\nAuthorization: {one.headers['Authorization']}\r\n"


async def _connect(one: Cluster) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", one.port, ssl=context, limit=1 << 20)
