"""Parts of the network are killed while the manager is dead: as root, and as another user."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.cluster import free_port
from tests.cluster import outside, ranges, until

from corral.node.host.process import read_record, runs

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

RANGES = ranges(__file__)
NETWORK = f"network     machines {RANGES[1]}"  # and of IPv6 where the host has it
PARTS = ("holder", "outward")


@pytest.fixture(params=["root", "ordinary"] if os.geteuid() == 0 else ["self"])
def through(request):
    """Runs programs as a user: several times as the same one."""
    if request.param != "ordinary":
        yield ()
        return
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "sleep", "infinity"]
    with subprocess.Popen(command) as sleeper:
        mine = Path("/proc/self/ns/user").readlink()
        namespace = Path(f"/proc/{sleeper.pid}/ns/user")
        until("the user is there", lambda: namespace.readlink() != mine)
        numbers = Path(f"/proc/{sleeper.pid}/uid_map")
        until("it has a number", numbers.read_text)
        yield ("nsenter", f"--user={namespace}", "--preserve-credentials")
        sleeper.kill()


def pid_of(directory, part):
    record = read_record(directory / "network" / part)
    return record.pid if record is not None and runs(directory / "network" / part) else 0


def pids(directory):
    return {part: pid_of(directory, part) for part in PARTS}


def kill(directory, *parts):
    for part in parts:
        os.kill(pid_of(directory, part), signal.SIGKILL)


def links(directory):
    shown = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    return shown.count(f"alias corral {directory / 'network'}\n")


def is_well(user):
    said = user.corral("status")
    return NETWORK in said and "pasta" not in said and all(pids(user.one.directory).values())


def test_the_network_is_adopted_or_recreated_whatever_was_killed(tmp_path, through):
    with outside(*RANGES, directory=tmp_path, through=through) as user:
        until("the network is there", lambda: is_well(user))
        before = pids(tmp_path)
        user.kill_manager()
        with outside(*RANGES, directory=tmp_path, through=through) as again:
            until("the network is found again", lambda: is_well(again))
            assert pids(tmp_path) == before
            again.kill_manager()
            kill(tmp_path, "holder")
            with outside(*RANGES, directory=tmp_path, through=through) as anew:
                until("the network is made anew", lambda: is_well(anew))
                assert pid_of(tmp_path, "outward") != before["outward"]
                assert "user" not in anew.corral("status")
    assert not any(pids(tmp_path).values())
    assert links(tmp_path) == 0


def test_nothing_is_left_after_a_kill_of_everything(tmp_path, through):
    with outside(*RANGES, directory=tmp_path, through=through) as user:
        until("the network is there", lambda: is_well(user))
        assert links(tmp_path) == (not through)
        user.kill_manager()
        kill(tmp_path, "holder")
    assert not any(pids(tmp_path).values())
    assert links(tmp_path) == 0


def test_the_network_outlives_corral_stop(tmp_path, through):
    with outside(*RANGES, directory=tmp_path, through=through) as user:
        until("the network is there", lambda: is_well(user))
        before = pids(tmp_path)
        user.corral("stop")
        assert pids(tmp_path) == before
        user.corral("down")
        assert not any(pids(tmp_path).values())


def test_a_manager_killed_at_any_time_of_its_start_leaves_nothing(tmp_path, through):
    command = [*through, sys.executable, "-m", "corral"]
    for moment in (0.8, 1.1, 1.4):
        place = ("--data-dir", str(tmp_path))
        process = subprocess.Popen(
            [*command, "up", *place, "--bind", f"127.0.0.1:{free_port()}", *RANGES],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        subprocess.run([*command, "down", *place], check=True, stdout=subprocess.DEVNULL)
        assert not any(pids(tmp_path).values())
        assert links(tmp_path) == 0
