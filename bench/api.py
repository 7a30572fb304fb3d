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
        _rate("VMI creates, 16 clients", creates, "≥ 1500/s"),
        _rate("gets, 16 clients", gets, "≥ 4000/s"),
        Figure("list of 10 000 VMIs", lists, "s", "≤ 0.4 s"),
        *(
            Figure(
                f"watch event to 50 watchers, 200/s, p{percent}",
                [percentile(each, percent) for each in delays],
                "ms",
                goal,
            )
            for percent, goal in ((99, "≤ 30 ms"), (50, ""))
        ),
    ]


def _rate(name: str, runs: list[dict[str, float]], goal: str) -> Figure:
    p99 = statistics.median(run["p99_ms"] for run in runs)
    return Figure(name, [run["per_second"] for run in runs], "/s", goal, {"p99_ms": p99})


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

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
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
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
                f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
            )
            writer.write(f"{head}{body}".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b" 201 " in answer.split(b"\r\n", 1)[0], answer
            length = next(
                int(line.split(b":")[1])
                for line in answer.split(b"\r\n")
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
