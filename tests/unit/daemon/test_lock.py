"""A data directory has one manager at a time, and it can be found and ended."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.daemon import lock as manager

HOLD = """
import signal, sys
from pathlib import Path
from corral.daemon import lock as manager
with manager.acquire(Path(sys.argv[1]), url="https://127.0.0.1:1"):
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(tmp_path):
    lock = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield lock, process
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_unused_directory_has_no_manager(tmp_path):
    assert manager.find(tmp_path / "lock") is None


def test_a_second_manager_is_rejected_with_the_first(holder):
    lock, process = holder
    with pytest.raises(manager.AlreadyRunning) as refused, manager.acquire(lock, url=""):
        pass
    assert refused.value.manager == manager.Manager(process.pid, "https://127.0.0.1:1")
    assert manager.find(lock) == refused.value.manager


def test_stop_waits_for_the_end(holder):
    lock, process = holder
    assert manager.find(lock).stop(60)
    assert manager.find(lock) is None
    process.wait()


def test_a_killed_manager_leaves_no_lock(holder):
    lock, process = holder
    process.kill()
    process.wait()
    assert manager.find(lock) is None
    with manager.acquire(lock, url="https://127.0.0.1:2"):
        assert manager.find(lock) == manager.Manager(os.getpid(), "https://127.0.0.1:2")


def test_an_error_of_a_full_disk_names_the_file():
    with (
        Path("/dev/full").open("wb") as full,
        pytest.raises(OSError, match="No space left") as caught,
    ):
        manager._write(Path("/data/lock"), full.fileno(), b"{}")
    assert caught.value.filename == "/data/lock"


def test_a_removed_lock_file_is_created_again(tmp_path, monkeypatch):
    """A failing manager may remove its directory just before another one locks it."""
    lock, flock = tmp_path / "lock", fcntl.flock

    def late(descriptor, operation):
        monkeypatch.undo()
        lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with manager.acquire(lock, url=""):
        assert manager.find(lock) == manager.Manager(os.getpid(), "")
