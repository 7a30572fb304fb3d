"""Targets on other hosts, by their channels and the server of the other host."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from tests.sim.host_network import HostNetwork

from corral.aio import Background
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.object import Key
from corral.node.hypervisor import GuestError, NoAnswerError
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.remote_targets import CANCEL_SECONDS, RemoteTargets
from corral.node.machine.migration.targets import LocalTarget, stream_pair

VMI = Key("default", "vm")


class Api:
    """The VMI that the other host reads."""

    def __init__(self):
        self.state = MigrationState(migration_uid="m", source_node="one", target_node="two")

    async def get(self, _view, _name, _namespace):
        status = SimpleNamespace(migration_state=self.state)
        return SimpleNamespace(metadata=SimpleNamespace(uid="u"), status=status)


class Guest:
    received = False

    async def open_disks(self):
        ours, self.disks = stream_pair()
        return ours


@pytest.fixture
async def site():
    """Two hosts; the second one has the target of the migration m."""
    network, api = HostNetwork(), Api()
    one, two = (network.targets(name, api) for name in ("one", "two"))
    local = LocalTarget(Guest(), ["root"], VMI, "u")
    two.add("m", local)
    async with Background() as tasks:
        network.begin("one", tasks)
        yield SimpleNamespace(network=network, api=api, one=one, two=two, local=local)
        network.cut()


async def soon(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_a_source_follows_its_target(site):
    target = await site.one.reach("m", "two")
    assert list(target.disks) == ["root"]
    assert await target.state() is TargetState.RECEIVING
    waiting = asyncio.ensure_future(target.complete())
    site.local.is_complete = True
    site.local.notify()
    await waiting
    running = asyncio.ensure_future(target.run_guest(paused=True))
    await soon(lambda: site.local.run_requested)
    assert site.local.paused
    assert not running.done()
    site.local.is_running = True
    site.local.notify()
    await running
    assert await target.state() is TargetState.RUNNING
    reported = asyncio.ensure_future(target.reported())
    site.local.is_reported = True
    site.local.notify()
    await reported


async def test_a_target_is_requested_to_expect_the_guest(site):
    expected = asyncio.Event()

    async def take_over():
        expected.set()

    site.local._take_over = take_over
    target = await site.one.reach("m", "two")
    await target.expect_guest()
    async with asyncio.timeout(5):
        await expected.wait()
    assert not site.local.run_requested


async def test_a_target_is_reached_over_one_channel(site):
    target = await site.one.reach("m", "two")
    assert await site.one.reach("m", "two") is target
    site.network.cut()
    await soon(lambda: not target.is_connected)
    site.network.heal()
    again = await site.one.reach("m", "two")
    assert again is not target
    assert await again.state() is TargetState.RECEIVING


async def test_a_cut_leaves_the_target_unknown(site):
    target = await site.one.reach("m", "two")
    waiting = asyncio.ensure_future(target.complete())
    await asyncio.sleep(0)
    site.network.cut()
    with pytest.raises(NoAnswerError, match="the connection to node two is lost"):
        await waiting
    assert await target.state() is TargetState.UNKNOWN
    with pytest.raises(NoAnswerError):
        await target.run_guest(paused=False)
    await target.cancel("it is not reached")
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        await site.one.reach("m", "two")


async def test_a_target_that_ends_says_why(site):
    target = await site.one.reach("m", "two")
    waiting = asyncio.ensure_future(target.complete())
    await asyncio.sleep(0)
    site.local.fail("QEMU has ended")
    with pytest.raises(GuestError, match="the target failed: QEMU has ended"):
        await waiting
    assert await target.state() is TargetState.ABSENT


async def test_a_cancelled_target_ends(site):
    target = await site.one.reach("m", "two")
    await target.cancel("the user said so")
    assert site.local.failure == "the user said so"
    assert site.local.changed.is_set()
    assert await target.state() is TargetState.ABSENT


async def test_a_source_waits_only_so_long_for_a_target_that_it_cancels(site):
    over = asyncio.Event()
    site.local._give_back = over.wait
    target = await site.one.reach("m", "two")
    async with asyncio.timeout(2 * CANCEL_SECONDS):
        await target.cancel("the user said so")
    assert await target.state() is TargetState.RECEIVING
    over.set()


async def test_memory_and_disks_are_streams(site):
    target = await site.one.reach("m", "two")
    loop = asyncio.get_running_loop()
    memory = await target.open_memory()
    await loop.sock_sendall(memory, b"pages")
    assert await loop.sock_recv(site.local.memory, 5) == b"pages"
    with pytest.raises(GuestError, match="its memory is received already"):
        await target.open_memory()
    disk = await target.open_disk("root")
    await loop.sock_sendall(site.local.guest.disks, b"NBD")
    assert await loop.sock_recv(disk, 3) == b"NBD"
    with pytest.raises(GuestError, match="the target has no disk other"):
        await target.open_disk("other")
    for each in (memory, site.local.memory, disk, site.local.guest.disks):
        each.close()


async def test_a_migration_without_a_target_has_no_answer(site):
    with pytest.raises(NoAnswerError, match="node two has no target for this migration"):
        await site.one.reach("another", "two")


async def test_a_cut_stream_ends(site):
    target = await site.one.reach("m", "two")
    memory = await target.open_memory()
    site.network.cut()
    loop = asyncio.get_running_loop()
    assert await loop.sock_recv(memory, 1) == b""
    assert await loop.sock_recv(site.local.memory, 1) == b""
    memory.close()
    site.local.memory.close()


class Hostile:
    """Links to a host whose control stream is ``control``, and whose other streams raise."""

    def __init__(self, control):
        self._control = control

    @asynccontextmanager
    async def open(self, _node, query):
        if query["stream"] != "control":
            raise AttributeError("an exception that nobody expects")
        yield SimpleNamespace(__aiter__=None) if self._control is None else self._control()


class Reports:
    """A control stream that reports this, and then stays open."""

    def __init__(self, *reports):
        self._reports = reports

    async def __aiter__(self):
        for each in self._reports:
            yield each
        await asyncio.Event().wait()


async def test_a_fault_ends_the_migration_alone():
    """The tasks are the process's own: on the first host it has the API server."""
    async with Background() as tasks:
        broken = RemoteTargets(Hostile(None), None, tasks)
        with pytest.raises(NoAnswerError, match="async for"):
            await broken.reach("m", "two")
        opened = RemoteTargets(Hostile(lambda: Reports(b'{"state":"receiving"}')), None, tasks)
        target = await opened.reach("m", "two")
        for stream in (target.open_memory(), target.open_disk("root")):
            with pytest.raises(GuestError, match="an exception that nobody expects"):
                await stream
        assert target.is_connected


@pytest.mark.looptime
async def test_a_target_that_reports_nothing_has_no_answer(looptime):
    async with Background() as tasks:
        silent = RemoteTargets(Hostile(Reports), None, tasks)
        with pytest.raises(NoAnswerError, match="node two has reported nothing for 10 s"):
            await silent.reach("m", "two")
        assert 10 <= looptime < 11
        await soon(lambda: not tasks._tasks)


class Stuck:
    """Links to a host that reports, and closes none of its streams."""

    def __init__(self):
        self.open_streams = 0

    @asynccontextmanager
    async def open(self, _node, _query):
        self.open_streams += 1
        try:
            yield self
        finally:
            self.open_streams -= 1

    async def send(self, _data):
        pass

    async def __aiter__(self):
        yield b'{"state":"receiving"}'
        await asyncio.Event().wait()


async def test_streams_end_with_their_source():
    links = Stuck()
    async with Background() as tasks:
        target = await RemoteTargets(links, None, tasks).reach("m", "two")
        memory, disk = await target.open_memory(), await target.open_disk("root")
        memory.close()
        disk.close()
        await asyncio.sleep(0)
        assert links.open_streams == 3
        target.release()
        await soon(lambda: not links.open_streams)
        assert not target.is_connected


async def test_what_another_host_says_is_cut(site):
    target = await site.one.reach("m", "two")
    site.local.fail("x" * 100_000)
    with pytest.raises(GuestError, match="the target failed: xxx") as failed:
        await target.complete()
    assert len(str(failed.value)) < 1100
