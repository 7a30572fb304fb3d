"""Processes that outlive their manager, tried with ``sleep`` in QEMU's place."""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from corral.node.host import process
from corral.node.host.proc import acquire_lock, runs
from corral.node.host.process import Process, identify, made_no_progress


@pytest.fixture
async def sleeper(tmp_path):
    """A process that holds the lock of a directory."""
    started = spawn(tmp_path, ["sleep", "60"])
    yield started
    started.kill()
    async with asyncio.timeout(60):
        await started.wait()


def spawn(directory, command):
    lock = acquire_lock(directory)
    assert lock is not None
    output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        return Process.spawn(command, directory, descriptors=[lock], output=output)
    finally:
        os.close(lock)
        os.close(output)


def descriptors() -> set[int]:
    """Those that are open now; that of the listing itself is closed by then."""
    listed = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return {one for one in listed if Path(f"/proc/self/fd/{one}").is_symlink()}


async def test_the_lock_shows_that_a_process_runs(tmp_path):
    assert not runs(tmp_path)
    assert list(tmp_path.iterdir()) == [], "who asks leaves nothing behind"
    started = spawn(tmp_path, ["sleep", "60"])
    assert runs(tmp_path)
    assert acquire_lock(tmp_path) is None
    started.kill()
    async with asyncio.timeout(60):
        await started.wait()
    assert not runs(tmp_path)


def test_checking_the_lock_leaks_no_descriptor(tmp_path):
    os.close(acquire_lock(tmp_path))
    before = descriptors()
    assert not runs(tmp_path)
    assert descriptors() == before


def test_the_lock_of_a_directory_is_private(tmp_path):
    lock = acquire_lock(tmp_path)
    assert os.fstat(lock).st_mode & 0o777 == 0o600
    os.close(lock)


def test_children_inherit_only_the_standard_streams():
    program = (
        "import os; from corral.node.host.process import set_close_on_exec; set_close_on_exec();"
        "print([one for one in range(4) if os.get_inheritable(one)])"
    )
    command = ("sh", "-c", 'exec "$0" -c "$1" 3</dev/null', sys.executable, program)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    assert json.loads(done.stdout) == [0, 1, 2]


def test_inherited_descriptors_are_not_passed_on():
    inherited = os.dup(0)
    os.set_inheritable(inherited, True)
    try:
        process.set_close_on_exec()
        assert not os.get_inheritable(inherited)
        assert all(map(os.get_inheritable, (0, 1, 2)))
    finally:
        os.close(inherited)


async def test_the_end_of_a_process_is_notified(tmp_path):
    started = spawn(tmp_path, ["sleep", "0.05"])
    calls = []
    started.on_end(lambda: calls.append("ended"))
    async with asyncio.timeout(60):
        await started.wait()
    assert started.ended
    assert not Path(f"/proc/{started.identity.pid}").exists(), "it is a child, and to be reaped"
    assert calls == ["ended"]
    started.on_end(lambda: calls.append("late"))
    assert calls == ["ended", "late"]
    started.kill()  # of what is gone: nothing happens


async def test_a_child_gets_its_own_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    started = spawn(tmp_path, ["env"])
    async with asyncio.timeout(60):
        await started.wait()
    printed = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert printed == {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "MALLOC_ARENA_MAX": "1",
    }


async def test_the_standard_input_of_a_child_is_empty(tmp_path):
    """What the manager was started with is not its."""
    ours, (reader, writer) = os.dup(0), os.pipe()
    os.dup2(reader, 0)
    try:
        started = spawn(tmp_path, ["readlink", "/proc/self/fd/0"])
    finally:
        os.dup2(ours, 0)
        for descriptor in (ours, reader, writer):
            os.close(descriptor)
    async with asyncio.timeout(60):
        await started.wait()
    assert (tmp_path / "output").read_text() == "/dev/null\n"


async def test_a_child_has_its_own_session_and_only_given_descriptors(tmp_path):
    secret = os.open(tmp_path / "secret", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    started = spawn(tmp_path, ["sh", "-c", "ls -l /proc/self/fd; ps -o sid= -p $$; echo $$"])
    async with asyncio.timeout(60):
        await started.wait()
    os.close(secret)
    printed = (tmp_path / "output").read_text()
    assert "secret" not in printed
    assert "alive" in printed
    session, pid = printed.split()[-2:]
    assert session == pid == str(started.identity.pid)


async def test_a_process_is_adopted_by_its_record(tmp_path, sleeper):
    adopted = await Process.adopt(tmp_path)
    assert adopted is not None
    assert adopted.identity == sleeper.identity
    adopted.release()


@pytest.mark.parametrize("record", [None, b"", b'{"pid":1,"started_ticks":5,"boot_id":"x"}'])
async def test_a_process_whose_record_is_missing_or_wrong_is_found_by_its_lock(
    tmp_path, sleeper, record
):
    (tmp_path / process.RECORD).unlink()
    if record is not None:
        (tmp_path / process.RECORD).write_bytes(record)
    adopted = await Process.adopt(tmp_path)
    assert adopted is not None
    assert adopted.identity == sleeper.identity
    assert process.read_record(tmp_path) == sleeper.identity
    adopted.release()


async def test_an_unrecorded_process_is_watched(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process.files, "replace", full)
    sleeper = spawn(tmp_path, ["sleep", "60"])
    assert not (tmp_path / process.RECORD).exists()
    adopted = await Process.adopt(tmp_path)
    assert adopted is not None
    assert adopted.identity == sleeper.identity
    adopted.release()
    sleeper.kill()
    async with asyncio.timeout(60):
        await sleeper.wait()


async def test_a_process_that_cannot_be_watched_is_killed(tmp_path, monkeypatch):
    def exhausted(_pid):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", exhausted)
    with pytest.raises(OSError, match="Too many"):
        spawn(tmp_path, ["sleep", "60"])
    assert not runs(tmp_path)


async def test_a_checker_of_the_lock_does_not_count_as_its_holder(tmp_path):
    """A machine that is about to be started: the lock is taken already, by the manager."""
    lock = acquire_lock(tmp_path)
    assert runs(tmp_path)
    assert await Process.adopt(tmp_path) is None
    os.close(lock)


async def test_a_reused_pid_is_not_adopted(tmp_path):
    mine = identify(os.getpid())
    process.write_record(tmp_path, process.Identity(mine.pid, mine.started_ticks + 1, mine.boot_id))
    (tmp_path / process.LOCK).touch()
    assert await Process.adopt(tmp_path) is None


async def test_a_pid_reused_during_the_check_is_not_adopted(tmp_path, monkeypatch):
    mine = identify(os.getpid())
    before = process.Identity(mine.pid, mine.started_ticks - 1, mine.boot_id)
    monkeypatch.setattr(process, "find", lambda _directory: before)
    held = descriptors()
    assert await Process.adopt(tmp_path) is None
    assert descriptors() <= held
    assert process.read_record(tmp_path) is None


async def test_a_start_leaves_only_the_pidfd_open(tmp_path):
    held = descriptors()
    started = spawn(tmp_path, ["sleep", "60"])
    assert len(descriptors() - held) == 1
    started.kill()
    async with asyncio.timeout(60):
        await started.wait()
    assert descriptors() <= held
    with pytest.raises(FileNotFoundError):
        spawn(tmp_path, ["no-such-program"])
    assert descriptors() <= held


async def test_a_released_process_runs_on(tmp_path):
    sleeper = spawn(tmp_path, ["sleep", "60"])
    sleeper.release()
    assert identify(sleeper.identity.pid) == sleeper.identity
    adopted = await Process.adopt(tmp_path)
    adopted.kill()
    async with asyncio.timeout(60):
        await adopted.wait()


async def test_waiting_for_the_end_of_a_process_has_a_timeout(tmp_path, sleeper, monkeypatch):
    monkeypatch.setattr(process, "END_SECONDS", 0.01)
    with monkeypatch.context() as kernel:  # it holds the process in a call
        kernel.setattr(process.signal, "pidfd_send_signal", lambda *_: None)
        async with asyncio.timeout(60):
            assert not await sleeper.end()
    monkeypatch.setattr(process, "END_SECONDS", 60)
    assert await sleeper.end()
    assert not runs(tmp_path)


async def test_searching_for_an_unrecorded_process_does_not_block_the_loop(tmp_path, monkeypatch):
    loop, looked = asyncio.get_running_loop(), asyncio.Event()
    went_on = threading.Event()

    def slowly(_directory):
        loop.call_soon_threadsafe(looked.set)
        assert went_on.wait(60)

    monkeypatch.setattr(process, "find", slowly)
    adopting = asyncio.ensure_future(Process.adopt(tmp_path))
    async with asyncio.timeout(60):
        await looked.wait()
        went_on.set()
        assert await adopting is None


async def test_a_missing_program_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError):
        spawn(tmp_path, ["no-such-program"])
    assert not runs(tmp_path)


async def test_the_priority_of_a_process_applies_across_sessions(sleeper):
    sleeper.renice(10)
    pid = sleeper.identity.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == 10
    session = Path(f"/proc/{pid}/autogroup")
    assert not session.exists() or session.read_text().split()[-1] == "10"


async def test_cpu_time_is_read_from_proc(tmp_path, sleeper):
    assert 0 <= sleeper.cpu_nanos() < 1_000_000_000
    assert sleeper.resident_bytes() >= 4096  # it may have been born a moment ago
    with pytest.raises(ProcessLookupError):
        process.cpu_nanos(2**22 + 1)


@pytest.fixture
async def this():
    """The process that runs the test."""
    made = Process(identify(os.getpid()), os.pidfd_open(os.getpid()))
    yield made
    made.release()


async def test_memory_is_in_bytes(this):
    (resident,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert this.resident_bytes() == pytest.approx(int(resident) * 1024, rel=0.1)


async def test_the_run_time_of_the_main_thread_has_the_precision_of_clock_ticks(this):
    before = time.thread_time_ns()
    assert before - 10**8 < this.ran_nanos() <= time.thread_time_ns()


async def test_the_time_that_threads_wait_for_cpu_is_read(tmp_path):
    one_processor = {min(os.sched_getaffinity(0))}
    rivals = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        rivals.append(spawn(tmp_path / name, ["sh", "-c", "while :; do :; done"]))
        os.sched_setaffinity(rivals[-1].identity.pid, one_processor)
    try:
        async with asyncio.timeout(60):
            for rival in rivals:
                while sum(rival.waited_nanos().values()) < 10**7:
                    await asyncio.sleep(0.01)
                assert list(rival.waited_nanos()) == [str(rival.identity.pid)]
    finally:
        for rival in rivals:
            assert await rival.end()


async def test_a_finished_process_has_no_usage(tmp_path):
    ended = spawn(tmp_path, ["true"])
    async with asyncio.timeout(60):
        await ended.wait()
    for ask in (ended.resident_bytes, ended.cpu_nanos):
        with pytest.raises(ProcessLookupError):
            ask()
    assert (ended.ran_nanos(), ended.pulse()) == (0, None)
    assert ended.waited_nanos() == {}


def test_a_zombie_has_no_identity():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert Path(f"/proc/{pid}/stat").exists()
        assert identify(pid) is None
    finally:
        os.waitpid(pid, 0)


@pytest.mark.parametrize("name", ["a) Z (b", "Z", ") R 1 2 3"])
def test_a_process_is_recognized_whatever_its_name(tmp_path, name):
    program = tmp_path / name
    program.symlink_to(shutil.which("sleep"))
    pid = os.posix_spawn(program, ["sleep", "60"], {})
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().removeprefix(f"{pid} ({name}) ").split()
        assert identify(pid) == process.Identity(pid, int(fields[19]), process.boot_id())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def test_a_process_without_progress_is_distinguished_from_a_busy_one(tmp_path, sleeper):
    async with asyncio.timeout(60):
        while (before := sleeper.pulse()).runnable:
            await asyncio.sleep(0)
    assert before.ran_nanos == sleeper.ran_nanos() > 0
    assert made_no_progress(before, sleeper.pulse())
    assert not made_no_progress(before, before._replace(ran_nanos=before.ran_nanos + 1))
    assert not made_no_progress(*[before._replace(runnable=True)] * 2)
    (tmp_path / "worker").mkdir()
    worker = spawn(tmp_path / "worker", ["sh", "-c", "while :; do :; done"])
    assert worker.pulse().runnable
    assert await worker.end()
    assert worker.pulse() is None
    assert not made_no_progress(None, before)
    assert not made_no_progress(before, None)
    assert not made_no_progress(None, None)


WITHOUT_MAIN_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


async def test_a_process_lives_until_its_last_thread_has_ended(tmp_path):
    started = spawn(tmp_path, [sys.executable, "-c", WITHOUT_MAIN_THREAD])
    stat = Path(f"/proc/{started.identity.pid}/stat")
    async with asyncio.timeout(60):
        while stat.read_text().rpartition(") ")[2][0] != "Z":
            await asyncio.sleep(0.01)
    assert identify(started.identity.pid) == started.identity
    adopted = await Process.adopt(tmp_path)
    assert adopted.identity == started.identity
    assert await adopted.end()
    assert await Process.adopt(tmp_path) is None


async def test_a_process_with_unknown_run_time_does_not_count_as_stalled(sleeper, monkeypatch):
    monkeypatch.setattr(Process, "ran_nanos", lambda _: 0)
    assert sleeper.pulse() is None
    assert not made_no_progress(sleeper.pulse(), sleeper.pulse())


def test_a_missing_process_has_no_identity():
    assert identify(2**22 + 1) is None


@pytest.mark.parametrize("released", [True, False], ids=["while it runs", "as it ends"])
async def test_a_child_that_was_released_is_reaped(tmp_path, released):
    started = spawn(tmp_path, ["sleep", "60"])
    pid = started.identity.pid
    if released:
        started.release()
    os.kill(pid, signal.SIGKILL)
    started.release()
    async with asyncio.timeout(60):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
