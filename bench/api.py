"""The API over HTTPS: creates, gets, lists and watches."""

import asyncio
import json
import ssl
import statistics
import time

from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure, percentile
from bench.load import fill, wrk

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"


def measure() -> list[Figure]:
    with cluster("--machine", "hollow", "--no-controllers") as one:
        creates = [wrk(one, VMIS, clients=16, body=vmi()) for _ in range(3)]
        name = one.call("POST", VMIS, vmi("one"))["metadata"]["name"]
        gets = [wrk(one, f"{VMIS}/{name}", clients=16) for _ in range(3)]
    with cluster("--machine", "hollow", "--no-controllers") as one:
        fill(one, VMIS, lambda number: vmi(f"filler-{number}"), 10_000)
        lists = [_timed(one) for _ in range(7)]
        delays = [asyncio.run(fan_out(one)) for _ in range(3)]
    return [
        Figure("VMI creates, 16 clients", [each["per_second"] for each in creates], "/s", "≥ 1500/s",
               {"p99_ms": statistics.median(each["p99_ms"] for each in creates)}),
        Figure("gets, 16 clients", [each["per_second"] for each in gets], "/s", "≥ 4000/s",
               {"p99_ms": statistics.median(each["p99_ms"] for each in gets)}),
        Figure("list of 10 000 VMIs", lists, "s", "≤ 0.4 s"),
        Figure("watch event to 50 watchers, 200/s, p99", [percentile(each, 99) for each in delays], "ms", "≤ 30 ms"),
        Figure("watch event to 50 watchers, 200/s, p50", [percentile(each, 50) for each in delays], "ms"),
    ]  # fmt: skip


def _timed(one: Cluster) -> float:
    connection = one.connect()
    connection.connect()
    begun = time.perf_counter()
    connection.request("GET", VMIS, headers=one.headers)
    said = connection.getresponse().read()
    seconds = time.perf_counter() - begun
    connection.close()
    assert said.count(b'"VirtualMachineInstance"') >= 10_000 or len(said) > 5_000_000
    return seconds


async def fan_out(
    one: Cluster, watchers: int = 50, rate: int = 200, seconds: int = 5
) -> list[float]:
    """Milliseconds from before the write was sent until each watcher had read the event."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    token = one.headers["Authorization"]
    path = "/api/v1/namespaces/default/configmaps"
    delays: list[float] = []

    async def connect():
        return await asyncio.open_connection("127.0.0.1", one.port, ssl=context, limit=1 << 20)

    async def watch(begun: asyncio.Event) -> None:
        reader, writer = await connect()
        writer.write(
            f"GET {path}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        while True:
            line = await reader.readline()
            at = line.find(b'"sent":"')
            if at >= 0 and b'"ADDED"' in line[:40]:
                sent = float(line[at + 8 : line.index(b'"', at + 8)])
                if sent >= start:
                    delays.append((time.monotonic() - sent) * 1e3)

    async def write() -> None:
        reader, writer = await connect()
        for number in range(rate * seconds):
            due = start + number / rate
            await asyncio.sleep(max(0, due - time.monotonic()))
            body = json.dumps({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"generateName": "event-"}, "data": {"sent": repr(time.monotonic())},
            })  # fmt: skip
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 201 " in head.split(b"\r\n", 1)[0], head
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)

    async with asyncio.TaskGroup() as group:
        started = [asyncio.Event() for _ in range(watchers)]
        start = float("inf")
        tasks = [group.create_task(watch(event)) for event in started]
        for event in started:
            await event.wait()
        start = time.monotonic()
        await write()
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
    assert len(delays) >= rate * seconds * watchers * 0.999, len(delays)
    return delays
