"""Leases of one host: when those of another one pass to it, and what operations do."""

import asyncio
from types import SimpleNamespace

import pytest
from lightkube.models.core_v1 import Pod, PodStatus

from corral.api.errors import Unavailable
from corral.node.storage import InUse, Storage
from corral.node.storage.host_heartbeats import SILENT_SECONDS, HostHeartbeats
from corral.node.storage.lease_files import Holder, LeaseFiles
from corral.node.storage.shared_leases import CREATED_BY, SharedLeases


class Api:
    """Pods by the uid of their VMI; ``error`` is raised instead."""

    def __init__(self):
        self.pods = {}
        self.error = None

    async def list(self, kind, *, labels):
        assert kind is Pod
        if self.error is not None:
            raise self.error
        return SimpleNamespace(items=self.pods.get(labels.removeprefix(f"{CREATED_BY}="), []))


class Site:
    """Two hosts, a and b, with one shared directory."""

    def __init__(self, directory):
        self.now, self.directory, self.api = 0.0, directory, Api()
        self.hosts = {}
        for host in "ab":
            heartbeats = HostHeartbeats(directory, host, f"node-{host}", lambda: self.now)
            leases = SharedLeases(LeaseFiles(directory), heartbeats, self.api, host)
            self.hosts[host] = SimpleNamespace(heartbeats=heartbeats, leases=leases)
            heartbeats.beat()
        self.storage = Storage(directory, leases=self.hosts["a"].leases)

    def observe(self):
        for each in self.hosts.values():
            each.heartbeats.observe()

    def pass_time(self, *alive):
        """Let a host become silent, but for those alive."""
        self.observe()
        for _ in range(2):
            self.now += SILENT_SECONDS / 2
            for host in alive:
                self.hosts[host].heartbeats.beat()
            self.observe()


def pod(phase="Running"):
    return Pod(status=PodStatus(phase=phase))


@pytest.fixture
def site(tmp_path):
    async def make():
        made = Site(tmp_path)
        await asyncio.to_thread(made.storage.provision, "disk", 1 << 20)
        return made

    return make


async def acquired(site, host, uid):
    try:
        await site.hosts[host].leases.acquire("disk", uid, alone=True)
    except InUse as error:
        return str(error)
    return True


async def test_a_lease_passes_on_when_it_was_released(site):
    made = await site()
    assert await acquired(made, "a", "one") is True
    made.observe()
    assert await acquired(made, "b", "two") == "volume disk is leased by VMI one on node node-a"
    await made.hosts["a"].leases.release("disk", "one")
    assert await acquired(made, "b", "two") is True


@pytest.mark.parametrize(
    ("alive", "pods", "error", "passes"),
    [
        ("", [], None, True),
        ("", [pod("Failed")], None, True),
        ("", [pod()], None, False),  # silent in the directory, but nobody has said that it is dead
        ("a", [], None, False),  # said to be dead by mistake: its host still writes heartbeats
        ("", [], Unavailable("away"), False),
    ],
)
async def test_the_lease_of_a_dead_machine_passes_on(site, alive, pods, error, passes):
    made = await site()
    await acquired(made, "a", "one")
    made.api.pods["one"], made.api.error = pods, error
    made.pass_time("b", *alive)
    assert (await acquired(made, "b", "two") is True) is passes
    assert await made.hosts["a"].leases.has("disk", "one", alone=True) is not passes


async def test_an_operation_of_a_dead_host_ends_with_its_silence(site):
    made = await site()
    LeaseFiles(made.directory).acquire("disk", Holder("a", "operation-1"), alone=True)
    assert "an operation on node node-a" in await acquired(made, "b", "two")
    made.pass_time("b")
    assert await acquired(made, "b", "two") is True


async def test_leases_of_ended_machines_are_released_at_the_start(site):
    made = await site()
    await asyncio.to_thread(made.storage.provision, "other", 1 << 20)
    await acquired(made, "a", "one")
    await made.hosts["a"].leases.acquire("other", "runs", alone=True)
    kept = made.hosts["a"].leases.recover({"runs"})
    assert kept == {"runs": {"other"}}
    assert await acquired(made, "b", "two") is True


async def test_an_operation_excludes_machines_of_all_hosts(site):
    made = await site()
    volume = made.storage.get("disk")

    def hold(begun, end, loop):
        with made.storage.exclusive(volume):
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(end.wait(), loop).result()

    begun, end = asyncio.Event(), asyncio.Event()
    work = asyncio.create_task(asyncio.to_thread(hold, begun, end, asyncio.get_running_loop()))
    await begun.wait()
    assert "an operation" in await acquired(made, "b", "two")
    end.set()
    await work
    assert await acquired(made, "b", "two") is True
    with pytest.raises(InUse, match="VMI two"):
        await asyncio.to_thread(made.storage.remove, "disk")
    await made.hosts["b"].leases.release("disk", "two")
    await asyncio.to_thread(made.storage.remove, "disk")
    assert list((made.directory / "leases").iterdir()) == []


async def test_a_release_that_fails_is_repeated(site, monkeypatch):
    made = await site()
    await acquired(made, "a", "one")
    with monkeypatch.context() as broken:

        def fails(*_):
            raise OSError(5, "no answer")

        broken.setattr(LeaseFiles, "release", fails)
        await made.hosts["a"].leases.release("disk", "one")
    assert await acquired(made, "b", "two") is not True
    made.hosts["a"].leases.retry()
    assert await acquired(made, "b", "two") is True


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "shared"])
async def test_a_machine_that_migrates_takes_its_lease_along(site, alone):
    made = await site()
    source, target = made.hosts["a"].leases, made.hosts["b"].leases
    await source.acquire("disk", "one", alone=alone)
    made.observe()
    await target.acquire("disk", "one", alone=alone, moves=True)
    assert await target.has("disk", "one", alone=alone)
    assert await source.has("disk", "one", alone=alone) is not alone
    await source.release("disk", "one")  # which releases nothing of the other host's
    assert await target.has("disk", "one", alone=alone)
    if alone:
        with pytest.raises(InUse):
            await source.acquire("disk", "two", alone=True, moves=True)


async def failed_arrival(site, *, restarted):
    """Let a guest leave host a for b, where it does not run; b's agent may be restarted then."""
    made = await site()
    source, target = made.hosts["a"].leases, made.hosts["b"].leases
    await source.acquire("disk", "one", alone=True)
    made.api.pods["one"] = [pod()]
    made.observe()
    await target.acquire("disk", "one", alone=True, moves=True)
    if restarted:
        assert target.recover(set(), {"one"}) == {}
    else:
        target.leave("disk", "one")
    return made, source, target


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
async def test_a_target_without_the_guest_keeps_the_disk_for_the_source(site, restarted):
    """Another machine that wrote to it would end a guest that has run nowhere else."""
    made, source, target = await failed_arrival(site, restarted=restarted)
    await asyncio.to_thread(target.retry)
    assert await acquired(made, "a", "two") == "volume disk is leased by VMI one on node node-b"
    assert await acquired(made, "b", "two") == "volume disk is leased by VMI one on node node-b"
    await source.acquire("disk", "one", alone=True, moves=True)
    made.api.pods["one"] = []
    await asyncio.to_thread(target.retry)
    assert await source.has("disk", "one", alone=True), "it is not the target's to release"


async def test_what_no_source_takes_back_is_released_with_its_vmi(site):
    made, _, target = await failed_arrival(site, restarted=False)
    made.api.pods["one"] = [pod("Failed")]
    await asyncio.to_thread(target.retry)
    assert await acquired(made, "a", "two") is True


async def test_a_guest_that_comes_after_all_keeps_its_lease(site):
    made, source, target = await failed_arrival(site, restarted=False)
    await source.acquire("disk", "one", alone=True, moves=True)
    await target.acquire("disk", "one", alone=True, moves=True)
    made.api.pods["one"] = []  # as a server without its cache may say
    await asyncio.to_thread(target.retry)
    assert await target.has("disk", "one", alone=True)
