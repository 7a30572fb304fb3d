"""Files that change, and the events of the kernel."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from structlog.testing import capture_logs

from corral.aio import Background
from corral.node.host.inotify import DEBOUNCE_SECONDS, IN_MODIFY, IN_MOVED_TO, OVERFLOW, Inotify
from corral.node.kubelet.logs import NAME, Logs


@asynccontextmanager
async def listening(inotify):
    begun = asyncio.Event()
    async with Background() as tasks:
        tasks.start(inotify.run(begun.set, failure_message="no change is notified"), name="inotify")
        await begun.wait()
        yield


def overflow(one, other):
    """Write to two files in turn, more than the kernel queues: it merges like neighbours."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with one.open("ab", buffering=0) as first, other.open("ab", buffering=0) as second:
        for _ in range(most // 2 + 1):
            first.write(b"x")
            second.write(b"x")


def bring(directory, *names):
    for name in names:
        (directory.parent / name).touch()
        (directory.parent / name).rename(directory / name)


async def test_an_unknown_watch_loses_no_other_event(tmp_path):
    directory = tmp_path / "watched"
    directory.mkdir()
    heard = asyncio.Queue()

    def changed(watch, name):
        heard.put_nowait((watch, name))
        if name == "bad":
            raise BlockingIOError("no")

    inotify = Inotify(changed)
    with capture_logs() as said:
        async with listening(inotify), asyncio.timeout(60):
            watch = inotify.add(directory, IN_MOVED_TO)
            bring(directory, "first", "bad", "last")
            assert [await heard.get() for _ in range(3)] == [
                (watch, "first"),
                (watch, "bad"),
                (watch, "last"),
            ]
    assert [(each["event"], each["name"]) for each in said] == [
        ("the handler of a file change failed", "bad")
    ]


async def test_frequent_events_are_coalesced_to_ten_a_second(tmp_path):
    heard = []
    inotify = Inotify(lambda watch, _: heard.append(watch))
    flood, other = tmp_path / "flood", tmp_path / "other"
    for path in (flood, other):
        path.touch()
    async with listening(inotify), asyncio.timeout(60):
        watches = [inotify.add(path, IN_MODIFY) for path in (flood, other)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        with flood.open("ab", buffering=0) as one, other.open("ab", buffering=0) as two:
            while len(heard) < 6:
                one.write(b"x")
                two.write(b"x")
                await asyncio.sleep(0.001)  # the kernel keeps both of all these times
        assert loop.time() - began >= 2 * DEBOUNCE_SECONDS
        assert sorted(heard[-2:]) == watches, "each is notified once, however much is written"


async def test_an_overflow_is_reported(tmp_path):
    heard = asyncio.Queue()
    inotify = Inotify(lambda watch, _: heard.put_nowait(watch))
    paths = tmp_path / "one", tmp_path / "other"
    for path in paths:
        path.touch()
    async with listening(inotify), asyncio.timeout(60):
        watches = [inotify.add(path, IN_MODIFY) for path in paths]
        overflow(*paths)
        events = [await heard.get(), await heard.get()]
        while events[-1] != OVERFLOW:
            events.append(await heard.get())
        assert events[:2] == watches


async def test_a_removed_watch_can_be_added_again(tmp_path):
    directory = tmp_path / "watched"
    directory.mkdir()
    heard = asyncio.Queue()
    inotify = Inotify(lambda *event: heard.put_nowait(event))
    async with listening(inotify), asyncio.timeout(60):
        watch = inotify.add(directory, IN_MOVED_TO)
        directory.rmdir()
        assert await heard.get() == (watch, "")
        directory.mkdir()
        anew = inotify.add(directory, IN_MOVED_TO)
        bring(directory, "file")
        assert await heard.get() == (anew, "file")


async def test_a_rejected_watch_is_reported_once(tmp_path):
    inotify = Inotify(lambda *_: None)
    nothing = 0  # no kernel takes that
    with capture_logs() as said:
        assert inotify.add(tmp_path, IN_MOVED_TO) < 0
        async with listening(inotify):
            assert inotify.add(tmp_path / "missing", IN_MOVED_TO) < 0
            assert said == []
            assert inotify.add(tmp_path, nothing) < 0
            assert inotify.add(tmp_path, nothing) < 0
    assert [(each["event"], each["error"]) for each in said] == [
        ("no change is notified", "Invalid argument")
    ]


async def test_all_logs_are_checked_after_an_overflow(tmp_path):
    logs, machines = Logs(), [tmp_path / name for name in ("one", "other", "quiet")]
    for directory in machines:
        directory.mkdir()
        (directory / NAME).touch()
    one, other, quiet = machines
    async with asyncio.timeout(60), Background() as tasks:
        tasks.start(logs.run(), name="logs")
        await asyncio.sleep(0)
        for directory in machines:
            logs.follow(directory)
        with logs.changes(quiet) as changed:
            overflow(one / NAME, other / NAME)
            with (quiet / NAME).open("ab") as guest:
                guest.write(b"login: ")
            await changed.wait()
