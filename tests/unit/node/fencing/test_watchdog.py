"""The watchdog of a node: real processes, which it ends or leaves alone."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import corral
from corral.node.fencing import watchdog
from corral.node.host.proc import LOCK, RECORD, acquire_lock, boot_id, runs, state_of

PATIENCE = 60.0
"""Seconds until a wait gives up: only a failure takes so long, on however busy a host."""
PACKAGES = str(Path(corral.__file__).parent.parent)
CODE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    "from corral.node.fencing.watchdog import main; main()"
)


@pytest.fixture
def node(tmp_path):
    (tmp_path / watchdog.MACHINES).mkdir()
    renew(tmp_path)
    return tmp_path


def renew(node, ago=0.0):
    if not (node / watchdog.RENEWED).exists():
        (node / watchdog.RENEWED).touch()
    moment = watchdog.now() - ago
    os.utime(node / watchdog.RENEWED, (moment, moment))


def age(node):
    """Return the seconds since the last renewal."""
    return watchdog.now() - (node / watchdog.RENEWED).stat().st_mtime


@pytest.fixture
def started():
    """Processes, which end with the test."""
    found = []
    yield found
    for each in found:
        each.kill()
        each.wait()


def run(started, *command):
    process = subprocess.Popen(command, start_new_session=True)
    started.append(process)
    return process


def machine_of(node, started, name="m", *, exclusive=True, stage="Started", record=True):
    """A machine's directory and its process, started and recorded as QEMU is."""
    directory = node / watchdog.MACHINES / name
    directory.mkdir()
    lines = [{"stage": "Defined", "exclusive": exclusive}, {"stage": stage, "exclusive": exclusive}]
    text = "".join(f"\n{json.dumps(each)}\n" for each in lines)
    (directory / watchdog.MACHINE_RECORD).write_text(text + '{"stage": "Ended"')  # cut off
    lock = acquire_lock(directory)
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, pass_fds=[lock])
    os.close(lock)
    started.append(process)
    if record:
        identify(directory, process.pid, state_of(process.pid)[1])
    return directory, process


def identify(directory, pid, ticks):
    identity = {"pid": pid, "started_ticks": ticks, "boot_id": boot_id()}
    (directory / RECORD).write_text(json.dumps(identity))


def lives(process):
    return process.poll() is None


def ended(process):
    return process.wait(PATIENCE) == -signal.SIGKILL


def start(node, seconds, started):
    return run(started, sys.executable, "-I", "-S", "-c", CODE, PACKAGES, str(node), str(seconds))


def test_exclusive_machines_end_when_no_renewal_is_young_enough(node, started):
    directory, one = machine_of(node, started)
    _, member = machine_of(node, started, "member", exclusive=False)
    start(node, 1.0, started)
    assert ended(one)
    assert age(node) >= 1.0
    assert lives(member)
    begun = time.monotonic()
    while not (directory / watchdog.FENCED).exists():
        assert time.monotonic() - begun < PATIENCE


def test_renewals_defer_the_deadline(node, started):
    _, one = machine_of(node, started)
    start(node, 1.5, started)
    for _ in range(5):
        time.sleep(0.5)
        if not lives(one):
            break
        renew(node)
    assert ended(one)
    assert age(node) >= 1.5


def test_the_watchdog_sleeps_until_the_deadline(node, started):
    process = start(node, 600, started)
    begun = time.monotonic()
    while not is_idle(process.pid, 0.2):  # it starts
        assert time.monotonic() - begun < PATIENCE
    assert is_idle(process.pid, 1.0)
    assert resident_bytes(process.pid) < 16 << 20


def is_idle(pid, seconds):
    """Return whether a process sleeps, and goes on to for some seconds."""
    before = sleeps(pid)
    time.sleep(seconds)
    return sleeps(pid) == before and before[0].split()[1] == "S"


def sleeps(pid):
    """Return the state of a process, and how often it has waited."""
    status = Path(f"/proc/{pid}/status").read_text()
    return [line for line in status.splitlines() if line.startswith(("State", "voluntary"))]


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_watchdog_ends_with_the_directory_of_its_node(node, started):
    process = start(node, 0.1, started)
    (node / watchdog.RENEWED).unlink()
    assert process.wait(PATIENCE) == 0


def test_a_pid_that_was_reused_is_left_alone(node, started):
    directory, one = machine_of(node, started)
    one.kill()
    one.wait()
    other = run(started, "sleep", "600")
    identify(directory, other.pid, state_of(other.pid)[1] - 1)
    watchdog.end_exclusive(node)
    assert lives(other)
    assert not (directory / watchdog.FENCED).exists()


def test_a_pid_of_an_earlier_boot_is_left_alone(node, started):
    directory, one = machine_of(node, started)
    one.kill()
    one.wait()
    other = run(started, "sleep", "600")
    identity = {"pid": other.pid, "started_ticks": state_of(other.pid)[1], "boot_id": "earlier"}
    (directory / RECORD).write_text(json.dumps(identity))
    watchdog.end_exclusive(node)
    assert lives(other)


def test_a_process_without_a_record_is_found_by_its_lock(node, started):
    directory, one = machine_of(node, started, record=False)
    assert runs(directory)
    watchdog.end_exclusive(node)
    assert ended(one)


def test_a_machine_whose_record_cannot_be_read_ends(node, started):
    directory, one = machine_of(node, started)
    (directory / watchdog.MACHINE_RECORD).write_text("\n{]\n")
    watchdog.end_exclusive(node)
    assert ended(one)


def test_helpers_in_the_process_group_end_as_well(node, started):
    directory = node / watchdog.MACHINES / "m"
    directory.mkdir()
    (directory / watchdog.MACHINE_RECORD).write_text('{"stage": "Started", "exclusive": true}\n')
    (directory / LOCK).touch()
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE
    )
    started.append(leader)
    with leader.stdout as output:
        helper = os.pidfd_open(int(output.readline()))
    try:
        identify(directory, leader.pid, state_of(leader.pid)[1])
        watchdog.end_exclusive(node)
        assert ended(leader)
        deadline = time.monotonic() + PATIENCE
        while pidfd_lives(helper):
            assert time.monotonic() < deadline
    finally:
        os.close(helper)


def pidfd_lives(descriptor):
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except ProcessLookupError:
        return False
    return True


AGENT = """
import os, sys, time
last = now = time.clock_gettime(time.CLOCK_BOOTTIME)
while now - last < 1.0:
    os.utime(sys.argv[1], (now, now))
    print("renewed", flush=True)
    time.sleep(0.2)
    last, now = now, time.clock_gettime(time.CLOCK_BOOTTIME)
"""
"""Renews, and ends as soon as it is late: a busy host has kept it waiting."""


@pytest.mark.parametrize("state", ["stopped", "dead"])
def test_machines_of_a_dead_or_hanging_agent_end(node, started, state):
    command = [sys.executable, "-c", AGENT, str(node / watchdog.RENEWED)]
    agent = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    started.append(agent)
    with agent.stdout as renewals:
        assert renewals.readline() == b"renewed\n"
        _, one = machine_of(node, started)
        start(node, 1.5, started)
        time.sleep(2.5)
        assert lives(one) or age(node) >= 1.0 or not lives(agent)
        agent.send_signal(signal.SIGKILL if state == "dead" else signal.SIGSTOP)
        assert ended(one)


@pytest.mark.parametrize("ahead", [1.0, 10_000.0])
def test_a_renewal_that_lies_ahead_is_of_an_earlier_boot(node, ahead):
    renew(node, -ahead)
    assert watchdog.last_renewal(node, watchdog.now()) == float("-inf")


def test_nothing_is_ended_where_nothing_runs(node):
    (node / watchdog.MACHINES / "m").mkdir()
    watchdog.end_exclusive(node)
    assert not (node / watchdog.MACHINES / "m" / watchdog.FENCED).exists()


def test_a_machine_that_cannot_be_read_keeps_no_other_alive(node, started, monkeypatch):
    _, first = machine_of(node, started, "a")
    bad, kept = machine_of(node, started, "b")
    _, last = machine_of(node, started, "c")
    real, refused = watchdog.process_of, []

    def process_of(machine):
        """Fails in the second look at one of them, when others may have been killed."""
        if machine == bad and refused.append(machine) is None and len(refused) > 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(machine)

    monkeypatch.setattr(watchdog, "process_of", process_of)
    watchdog.end_exclusive(node)
    assert len(refused) == 2
    assert ended(first)
    assert ended(last)
    assert lives(kept)


def test_helpers_that_cannot_be_found_keep_no_machine_alive(node, started, monkeypatch):
    _, one = machine_of(node, started)
    real = Path.iterdir

    def iterdir(path):
        if path == Path("/proc"):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    watchdog.end_exclusive(node)
    assert ended(one)


def test_the_watchdog_survives_failures(node, monkeypatch):
    """The first look at the renewal and the first end fail, and so do all ends."""
    renew(node, ago=100)
    looks, ends = [], []
    real = watchdog.last_renewal

    def last_renewal(*arguments):
        looks.append(arguments)
        if len(looks) == 1:
            raise OSError(errno.EIO, "Input/output error")
        return real(*arguments)

    def end_exclusive(_node):
        ends.append(_node)
        if len(ends) > 2:
            (node / watchdog.RENEWED).unlink()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(watchdog, "last_renewal", last_renewal)
    monkeypatch.setattr(watchdog, "end_exclusive", end_exclusive)
    monkeypatch.setattr(watchdog, "_REPEAT_SECONDS", 0.0)
    watchdog.watch(node, 41.0)
    assert len(ends) == 3
    assert len(looks) == 4
