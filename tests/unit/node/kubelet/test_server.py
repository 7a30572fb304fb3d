"""Logs as a client sees them."""

import asyncio
import errno
import os
import random
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import httpx2
import pytest
from starlette.testclient import TestClient

from corral.aio import Background
from corral.api.object import Key
from corral.node.kubelet.logs import (
    LARGEST_BYTES,
    MOST_MARKS,
    NAME,
    OLDER,
    OUTPUT,
    Kept,
    Logs,
    Times,
)
from corral.node.kubelet.server import Kubelet
from corral.node.kubelet.vmi_endpoints import VmiEndpoints
from corral.node.metrics.sampling.kubelet_endpoints import ResourceEndpoints
from corral.node.metrics.sampling.sampler import Sampler
from corral.node.network.guest_ports import Ports
from corral.node.state.facts import Facts, State

URL = "/containerLogs/default/pod/compute"


class Machine:
    """What the kubelet asks of a machine."""

    def __init__(self, directory):
        self.directory = directory
        self.facts = Facts(state=State.RUNNING)
        self.record = SimpleNamespace(uid="uid", instance="vm")

    async def synced(self):
        raise AssertionError("logs can be read before the machine is found")


class Observed(Logs):
    """Logs that signal the beginning of a read."""

    def __init__(self):
        super().__init__()
        self.begun = asyncio.Event()

    @contextmanager
    def changes(self, directory):
        with super().changes(directory) as changed:
            self.begun.set()
            yield changed


@pytest.fixture
def machine(tmp_path):
    (tmp_path / NAME).write_bytes(b"one\r\ntwo\r\nthree")
    return Machine(tmp_path)


def kubelet(machine, logs=None):
    return Kubelet(
        lambda key: machine if key == Key("default", "pod") else None,
        logs or Logs(),
        VmiEndpoints(lambda key, uid: None, Ports(None)),
        ResourceEndpoints("here", Sampler()),
    ).asgi


@pytest.fixture
def client(machine):
    with TestClient(kubelet(machine)) as client:  # one event loop for all its connections
        yield client


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", b"one\r\ntwo\r\nthree"),
        ("?tailLines=1", b"three"),
        ("?tailLines=2", b"two\r\nthree"),
        ("?tailLines=9", b"one\r\ntwo\r\nthree"),
        ("?tailLines=0", b""),
        ("?limitBytes=5", b"one\r\n"),
        ("?limitBytes=0", b""),
    ],
)
def test_logs_are_truncated_by_options(client, query, expected):
    assert client.get(URL + query).content == expected


def test_the_console_log_has_its_own_container_name(client):
    of_log = client.get(URL.replace("/compute", "/guest-console-log") + "?tailLines=1")
    assert of_log.content == b"three"
    of_disk = client.get(URL.replace("/compute", "/volumeroot"))
    assert of_disk.content == b"", "a disk has nothing to say"


def test_each_line_gets_one_timestamp(client):
    lines = client.get(URL + "?timestamps=true").content.split(b"\n")
    assert [line.partition(b"Z ")[2] for line in lines] == [b"one\r", b"two\r", b"three"]


@pytest.mark.parametrize(
    "query",
    [
        "?tailLines=x",
        "?tailLines=-1",
        "?limitBytes=1.5",
        "?previous=true",
        "?sinceSeconds=0",
        "?sinceSeconds=x",
        "?sinceTime=yesterday",
        "?sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z",
    ],
)
def test_invalid_log_options_are_rejected(client, query):
    answer = client.get(URL + query)
    assert answer.status_code == 400
    assert answer.json()["kind"] == "Status"


def test_a_missing_pod_is_not_found(client):
    answer = client.get("/containerLogs/default/other/compute")
    assert answer.status_code == 404
    assert answer.json()["reason"] == "NotFound"


def test_the_rotated_part_of_a_log_comes_first(tmp_path):
    (tmp_path / OLDER).write_bytes(b"a\nb\n")
    (tmp_path / NAME).write_bytes(b"c\n")
    assert Logs().kept(tmp_path) == Kept(b"a\nb\nc\n", offset=-4)
    assert Logs().kept(tmp_path, lines=2).content == b"b\nc\n"


async def test_a_log_is_followed_until_its_machine_ends(machine):
    logs = Observed()
    transport = httpx2.ASGITransport(kubelet(machine, logs))
    chunks = []
    async with Background() as tasks:
        tasks.start(logs.run(), name="logs")

        async def read():
            async with httpx2.AsyncClient(transport=transport, base_url="http://node") as client:
                chunks.append((await client.get(URL + "?follow=true&tailLines=1")).content)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(read())
            await logs.begun.wait()
            with (machine.directory / NAME).open("ab") as log:
                log.write(b" four")
            with (machine.directory / NAME).open("ab") as log:
                log.write(b" five")
            machine.facts = Facts(state=State.ENDED)
            logs.forget(machine.directory)
    assert chunks == [b"three four five"]


async def test_a_missing_log_can_be_followed(machine):
    logs = Observed()
    path = machine.directory / NAME
    path.unlink()
    transport = httpx2.ASGITransport(kubelet(machine, logs))
    async with Background() as tasks:
        tasks.start(logs.run(), name="logs")

        async def read():
            async with httpx2.AsyncClient(transport=transport, base_url="http://node") as client:
                return (await client.get(URL + "?follow=true")).content

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            await logs.begun.wait()
            path.write_bytes(b"first words")
            logs.follow(machine.directory)
            machine.facts = Facts(state=State.ENDED)
            logs.forget(machine.directory)
    assert reading.result() == b"first words"


async def test_following_a_log_survives_its_rotation(machine):
    """Nor when it is forgotten at the same time."""
    logs = Observed()
    begun = asyncio.Event()
    printed = random.Random(1).randbytes(LARGEST_BYTES + 100_000)
    path = machine.directory / NAME
    found = path.read_bytes()
    async with Background() as tasks, asyncio.timeout(60):
        tasks.start(logs.run(), name="logs")
        await asyncio.sleep(0)
        logs.follow(machine.directory)

        async def read():
            nonlocal found
            with logs.changes(machine.directory) as changed:
                grown = logs.grown(
                    machine.directory, len(found), changed, lambda: machine.facts.ended
                )
                async for place, chunk in grown:
                    assert place == len(found)
                    found += chunk
                    begun.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            await logs.begun.wait()
            with path.open("ab", buffering=0) as guest:
                guest.write(printed[:100_000])
                await begun.wait()
                guest.write(printed[100_000:])
                while path.stat().st_size:  # before the reader has its turn
                    await asyncio.sleep(0)
                guest.write(b"last words")
            machine.facts = Facts(state=State.ENDED)
            logs.forget(machine.directory)
    assert found == b"one\r\ntwo\r\nthree" + printed + b"last words"


async def test_the_size_of_a_log_is_limited(tmp_path):
    logs = Logs()
    path = tmp_path / NAME
    with path.open("ab", buffering=0) as guest:
        async with Background() as tasks:
            tasks.start(logs.run(), name="logs")
            await asyncio.sleep(0)
            logs.follow(tmp_path)
            guest.write(b"x" * (LARGEST_BYTES + 1))
            async with asyncio.timeout(60):
                with logs.changes(tmp_path) as changed:
                    while not (tmp_path / OLDER).exists():
                        await changed.wait()
            guest.write(b"after")
    assert path.read_bytes() == b"after"
    assert (tmp_path / OLDER).stat().st_size == LARGEST_BYTES


async def test_what_qemu_prints_is_limited(tmp_path):
    logs = Logs()
    path, older = tmp_path / OUTPUT, tmp_path / f"{OUTPUT}.1"
    (tmp_path / NAME).touch()
    with path.open("ab", buffering=0) as qemu:
        async with asyncio.timeout(60), Background() as tasks:
            tasks.start(logs.run(), name="logs")
            await asyncio.sleep(0)
            logs.follow(tmp_path)
            qemu.write(b"lost" + b"x" * LARGEST_BYTES)
            while not older.exists() or path.stat().st_size:
                await asyncio.sleep(0.01)
            qemu.write(b"after")
            logs.forget(tmp_path)
    assert path.read_bytes() == b"after"
    assert older.read_bytes() == b"x" * LARGEST_BYTES


async def test_a_log_that_cannot_be_rotated_is_reported_once(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("corral.node.kubelet.logs.files.replace", full)
    logs, printed = Logs(), b"x" * (LARGEST_BYTES + 1)
    (tmp_path / NAME).write_bytes(printed)
    async with asyncio.timeout(60), Background() as tasks:
        tasks.start(logs.run(), name="logs")
        await asyncio.sleep(0)
        logs.follow(tmp_path)
        assert logs.kept(tmp_path).offset == 0
        with logs.changes(tmp_path) as changed, (tmp_path / NAME).open("ab", buffering=0) as guest:
            for _ in range(3):
                guest.write(b"more")
                await changed.wait()
                changed.clear()
            chunks = logs.grown(tmp_path, 0, changed, lambda: True)
            assert b"".join([chunk async for _, chunk in chunks]) == printed + b"more" * 3


async def test_an_unwatched_log_is_rotated_when_it_is_followed(tmp_path):
    logs = Logs()
    (tmp_path / NAME).write_bytes(b"lost" + b"x" * (LARGEST_BYTES - 4) + b"kept")
    async with Background() as tasks:
        tasks.start(logs.run(), name="logs")
        await asyncio.sleep(0)
        logs.follow(tmp_path)
        assert (tmp_path / NAME).stat().st_size == 0
    assert logs.kept(tmp_path).content == b"x" * (LARGEST_BYTES - 4) + b"kept"
    assert logs.kept(tmp_path).offset == 4
    assert (tmp_path / OLDER).stat().st_mode & 0o777 == 0o600


async def test_logs_since_a_time(machine):
    """By when the manager saw it grow; what was there before is as old as the file."""
    logs = Logs()
    path = machine.directory / NAME
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    transport = httpx2.ASGITransport(kubelet(machine, logs))
    async with (
        Background() as tasks,
        httpx2.AsyncClient(transport=transport, base_url="http://node") as client,
    ):
        tasks.start(logs.run(), name="logs")
        await asyncio.sleep(0)
        logs.follow(machine.directory)
        assert (await client.get(URL + "?sinceSeconds=600")).content == b""
        assert (await client.get(URL + "?sinceSeconds=4000")).content == b"one\r\ntwo\r\nthree"
        with logs.changes(machine.directory) as changed:
            with path.open("ab") as log:
                log.write(b" times\r\nfour\r\n")
            async with asyncio.timeout(60):
                await changed.wait()
        fresh = b"three times\r\nfour\r\n"
        assert (await client.get(URL + "?sinceSeconds=600")).content == fresh
        moment = datetime.fromtimestamp(an_hour_ago + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert (await client.get(f"{URL}?sinceTime={moment}")).content == fresh
        assert (await client.get(URL + "?sinceSeconds=600&tailLines=1")).content == b"four\r\n"
        stamped = (await client.get(URL + "?timestamps=true")).content.decode().splitlines()
    then = datetime.fromtimestamp(an_hour_ago, UTC).strftime("%Y-%m-%dT%H:%M")
    assert [line.startswith(then) for line in stamped] == [True, True, True, False]


def test_the_number_of_time_marks_is_limited():
    times = Times()
    for second in range(10_000):
        times.add(10 * (second + 1), float(second))
    assert len(times._ends) <= MOST_MARKS
    assert times.since(9_999.0) == 99_990
    assert times.at(99_995) == 9_999.0
    assert times.at(100_000) is None
    assert times.since(0) == 0
    assert 45_000 < times.since(5_000.0) <= 50_000, "rather too much than too little"


def test_one_time_mark_per_second():
    times = Times()
    for moment, end in ((1.0, 10), (1.5, 20), (1.9, 20), (2.0, 30)):
        times.add(end, moment)
    assert [times.at(place) for place in (0, 15, 25, 30)] == [1.0, 1.0, 2.0, None]
