"""Committed writes of the store survive kill -9, a torn log, and a full disk."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from corral.api.errors import ApiError
from corral.api.object import Key
from corral.store import Store

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

KIND = "things.example.com"

WRITER = """
import asyncio, pathlib, sys
from corral.api.object import Key
from corral.store import Store
from corral.store.memory import Retention
from corral.store.sqlite import Log

async def write(store, writer):
    for number in range(int(sys.argv[2])):
        name = f"{writer}-{number % 20}"
        document = {"metadata": {"name": name}, "spec": number, "pad": "x" * 500}
        record = await store.write("things.example.com", Key("n", name), document)
        print(name, number, record.revision, flush=True)

async def main():
    store = Store(Log(pathlib.Path(sys.argv[1])), retention=Retention(changes=50))
    async with asyncio.TaskGroup() as group:
        for writer in range(int(sys.argv[3])):
            group.create_task(write(store, writer))
    await asyncio.Event().wait()

asyncio.run(main())
"""


WRITERS = 8


def run_and_kill(path, seconds=0.0, writes=0):
    """Acknowledged writes of a writer that is killed: name → (number, revision).

    It is killed some seconds after its first write, or after so many of each of its tasks.
    """
    command = [sys.executable, "-c", WRITER, path, str(writes or 10**9), str(WRITERS)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        begun = [writer.stdout.readline() for _ in range(WRITERS * writes or 1)]
        assert begun[-1], "the writer never began, or ended"
        time.sleep(seconds)
    finally:
        writer.send_signal(signal.SIGKILL)
    lines = b"".join([*begun, writer.stdout.read()]).decode().splitlines(keepends=True)
    writer.stdout.close()
    writer.wait()
    acknowledged = {}
    for line in lines:
        if line.endswith("\n"):  # the last one may be cut short
            name, number, revision = line.split()
            acknowledged[name] = (int(number), int(revision))
    return acknowledged


async def test_every_acknowledged_write_survives_kill_9(tmp_path):
    path = tmp_path / "store.db"
    chance = random.Random(7)
    for _round in range(6):
        acknowledged = run_and_kill(path, chance.uniform(0.02, 0.3))
        assert acknowledged
        store = Store.open(path)
        for name, (number, revision) in acknowledged.items():
            record = store.get(KIND, Key("n", name))
            assert record is not None
            assert record.revision >= revision
            assert record.document()["spec"] >= number
        await store.close()


async def test_a_torn_write_ahead_log_loses_only_torn_frames(tmp_path):
    """Require that the content is that of some moment before."""
    whole = tmp_path / "whole"
    whole.mkdir()
    run_and_kill(whole / "store.db", writes=15)  # fewer than make SQLite empty its log
    size = (whole / "store.db-wal").stat().st_size
    # The end of the file may hold frames of an earlier round, which nobody misses.
    lengths = [size - 1500, size * 3 // 4, size // 2, size // 4, 0]
    torn = [shutil.copytree(whole, tmp_path / f"torn{length}") for length in lengths]
    all_of_it = Store.open(whole / "store.db")
    revisions = []
    for directory, length in zip(torn, lengths, strict=True):
        os.truncate(directory / "store.db-wal", length)
        left = Store.open(directory / "store.db")
        revisions.append(left.revision)
        assert left.revision <= all_of_it.revision
        if left.revision >= all_of_it.compacted:
            # revision 0 stands for now in a list, and for nothing yet here
            then = (
                all_of_it.record_range(KIND, revision=left.revision).records
                if left.revision
                else []
            )
            assert [(r.key, r.data) for r in left.objects(KIND)] == [(r.key, r.data) for r in then]
        await left.write(KIND, Key("n", "after"), {"metadata": {"name": "after"}})
        await left.close()
    assert revisions == sorted(revisions, reverse=True)
    assert revisions[0] >= all_of_it.compacted
    assert revisions[-1] < all_of_it.revision
    await all_of_it.close()


async def fill(store, stored):
    """Write until the store refuses; ``stored`` gets the names of what it took."""
    for number in range(1000):
        name = f"n{number}"
        document = {"metadata": {"name": name}, "pad": "x" * 5000}
        await store.write(KIND, Key("n", name), document)
        stored.append(name)


async def test_a_full_disk_rejects_writes_until_there_is_room(tmp_path):
    """The file size limit of this process stands for the disk."""
    path = tmp_path / "store.db"
    store = Store.open(path)
    stored = []
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(ApiError, match="nothing was stored"):
            await fill(store, stored)
        assert store.count(KIND) == len(stored) > 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    await store.write(KIND, Key("n", "after"), {"metadata": {"name": "after"}})
    await store.close()
    again = Store.open(path)
    assert {record.key.name for record in again.objects(KIND)} == {*stored, "after"}
    await again.close()


SMALL_DISK = """
import asyncio, pathlib, sys
from corral.api.errors import StorageFull
from corral.api.object import Key
from corral.store import Store

async def main():
    store = Store.open(pathlib.Path(sys.argv[1], "store.db"))
    stored = 0
    try:
        while stored < 1000:
            document = {"metadata": {"name": f"n{stored}"}, "pad": "x" * 5000}
            await store.write("things.example.com", Key("n", f"n{stored}"), document)
            stored += 1
    except StorageFull as error:
        print(error)
    print(stored > 0, store.count("things.example.com") == stored)
    await store.close()

asyncio.run(main())
"""


def test_a_full_file_system_is_reported(tmp_path):
    script = 'mount -t tmpfs -o size=600k none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, tmp_path, sys.executable, SMALL_DISK],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused, counts = done.stdout.splitlines()
    assert "no space left" in refused
    assert counts == "True True"
