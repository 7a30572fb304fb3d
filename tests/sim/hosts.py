"""Hosts of a simulated cluster that can be cut off: their links, clocks and watchdogs.

Also a census of what runs, which fails a test at the instant at which a machine that must be the
only one of its name runs twice.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

from corral.api.errors import Unavailable
from corral.api.kinds.core import node_lease
from corral.api.request import Request, Response
from corral.client.server_clock import ServerClock
from corral.node.fencing import lease, watchdog
from corral.node.health import NodeCondition
from corral.node.hollow.hypervisor import HollowGuest
from corral.node.state import machine_record as records
from corral.node.status.node_status import clock_condition

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Link:
    """The way of a node to the API server: up, or down in one of several ways.

    silent: what is sent while it is down stays without an answer until it is up, instead of being
    refused; delay: how long requests take, which arrive also if nobody waits for them any more.
    """

    def __init__(self, inner: Any, clock: ServerClock) -> None:
        self._inner = inner
        self._clock = clock
        self._is_up = asyncio.Event()
        self._is_up.set()
        self.silent = False
        self.delay = 0.0
        self._under_way: set[asyncio.Task[Response]] = set()

    def follow(self, other: "Link") -> None:
        """Be in the state of another link."""
        self._is_up, self.silent, self.delay = other._is_up, other.silent, other.delay

    def cut(self, *, silent: bool = False) -> None:
        self.silent = silent
        self._is_up.clear()

    def heal(self) -> None:
        self._is_up.set()

    async def send(self, request: Request) -> Response:
        await self._pass()
        if self.delay:
            task = asyncio.create_task(self._late(request, self.delay))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            response = await asyncio.shield(task)
        else:
            response = await self._send(request)
        await self._pass()
        if not isinstance(response.body, bytes):
            response.body = self._lines(response.body)
        return response

    async def _late(self, request: Request, seconds: float) -> Response:
        await asyncio.sleep(seconds)
        return await self._send(request)

    async def _send(self, request: Request) -> Response:
        sent = self._clock.begin()
        response: Response = await self._inner.send(request)
        now = EPOCH.timestamp() + asyncio.get_running_loop().time()
        self._clock.observe(formatdate(now, usegmt=True), sent)
        return response

    async def _pass(self) -> None:
        """Wait or raise Unavailable while the link is down."""
        if not self._is_up.is_set():
            if self.silent:
                await self._is_up.wait()
            raise Unavailable("a fault of the test: the link is down")

    async def _lines(self, lines: Any) -> Any:
        try:
            async for line in lines:
                await self._pass()
                yield line
        finally:
            await lines.aclose()


@dataclass
class Joined:
    """The host of a node that has joined.

    booted: seconds since its boot at the beginning; rate: how fast its clock runs; skew: by how
    much its time of day is off, in seconds.
    """

    booted: float = 1000.0
    rate: float = 1.0
    skew: float = 0.0
    link: Link | None = None

    def __post_init__(self) -> None:
        self.server_clock = ServerClock(lambda: self.clock().timestamp())

    def boottime(self) -> float:
        return self.booted + asyncio.get_running_loop().time() * self.rate

    def clock(self) -> datetime:
        return EPOCH + timedelta(seconds=self.boottime() - self.booted + self.skew)

    def link_over(self, inner: Any) -> Link:
        """Return the link of a new agent, in the state of the one before."""
        before, self.link = self.link, Link(inner, self.server_clock)
        if before is not None:
            self.link.follow(before)
        return self.link


def clock_condition_of(host: Joined | None) -> Callable[[], NodeCondition | None]:
    """Return what reads the condition of a host's clock; the first host has none."""
    if host is None:
        return lambda: None
    return partial(clock_condition, host.server_clock)


class Census:
    """The exclusive machines that run, by namespace and name of their VMIs."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, str], set[Path]] = {}
        self.most = 0
        """The most machines that ran at once: what proves that the census counts."""

    def begin(self, directory: Path) -> None:
        record = records.read(directory)
        if record is None or not record.exclusive:
            return
        there = self.running.setdefault((record.namespace, record.instance), set())
        there.add(directory)
        assert len(there) == 1, f"{record.instance} runs twice: {sorted(map(str, there))}"
        self.most = max(self.most, sum(map(len, self.running.values())))

    def end(self, directory: Path) -> None:
        for there in self.running.values():
            there.discard(directory)


def count(monkeypatch: Any) -> Census:
    """Return a census of all hollow guests from now on."""
    census = Census()
    run, vanish = HollowGuest._run, HollowGuest._vanish

    def running(guest: HollowGuest) -> None:
        census.begin(guest._directory)
        run(guest)

    def vanishing(guest: HollowGuest) -> None:
        census.end(guest._directory)
        vanish(guest)

    monkeypatch.setattr(HollowGuest, "_run", running)
    monkeypatch.setattr(HollowGuest, "_vanish", vanishing)
    return census


async def watch(node: Path, clock: Any, census: Census) -> None:
    """Play a node's watchdog: its program for real processes, by the clock of the simulation."""
    while True:
        renewed = watchdog.last_renewal(node, clock())
        left = float("-inf") if renewed is None else renewed + node_lease.WATCHDOG_SECONDS - clock()
        stopped = (node / lease.STOPPED).exists()  # no watchdog runs then
        if renewed is not None and left <= 0 and not stopped:
            for machine in watchdog.exclusive_machines(node):
                if any(machine in there for there in census.running.values()):
                    end_guest(machine, census)
        await asyncio.sleep(left if left > 0 else 1.0)


def end_guest(machine: Path, census: Census) -> None:
    """Kill a hollow guest whose agent is dead: its state goes, as a process would."""
    census.end(machine)
    with suppress(FileNotFoundError):
        (machine / "hollow.json").unlink()
    (machine / watchdog.FENCED).touch()
