"""User data in a guest: the script runs once, whoever hands it in again."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.controllers.make import make_vmi

from corral.node.guest.user_data import SCRIPT, is_given_user_data

ONCE = b"#!/bin/sh\necho ran >> %s/runs\n"


@pytest.fixture
def hand_in(tmp_path):
    """Hands in a script as the node does, to a guest whose files are below ``tmp_path``."""
    script = SCRIPT.replace("/var/lib/corral", str(tmp_path / "state"))

    def run(data, *, uid="uid", boot_id=""):
        text = script
        if boot_id:
            (tmp_path / "boot_id").write_text(boot_id)
            text = text.replace("/proc/sys/kernel/random/boot_id", str(tmp_path / "boot_id"))
        command = ["/bin/sh", "-c", text, "sh", uid]
        return subprocess.run(command, input=data, capture_output=True, check=False, timeout=30)

    return run


def runs(tmp_path):
    return (tmp_path / "runs").read_text().count("ran")


def test_user_data_runs_once_and_later_callers_have_its_result(hand_in, tmp_path):
    script = ONCE % bytes(tmp_path) + b"echo broken >&2\nexit 3\n"
    first, second = hand_in(script), hand_in(script)
    assert (first.returncode, first.stderr) == (3, b"broken\n")
    assert (second.returncode, second.stderr) == (3, b"broken\n")
    assert runs(tmp_path) == 1


def test_callers_at_the_same_time_run_it_once(hand_in, tmp_path):
    script = b"#!/bin/sh\nsleep 0.3\necho ran >> %s/runs\n" % bytes(tmp_path)
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(hand_in, [script] * 6))
    assert [one.returncode for one in results] == [0] * 6
    assert runs(tmp_path) == 1


def test_a_restart_of_the_guest_while_it_ran_is_reported(hand_in, tmp_path):
    hand_in(ONCE % bytes(tmp_path), boot_id="one")
    (tmp_path / "state/user-data/uid.code").unlink()  # as if the guest had ended before that
    began = time.monotonic()
    result = hand_in(ONCE % bytes(tmp_path), boot_id="two")
    assert result.returncode == 1
    assert b"restarted while it ran" in result.stderr
    assert time.monotonic() - began < 1
    assert runs(tmp_path) == 1


def test_a_run_that_was_killed_is_reported(hand_in, tmp_path):
    hand_in(ONCE % bytes(tmp_path))
    (tmp_path / "state/user-data/uid.code").unlink()  # as if it had been killed before that
    result = hand_in(ONCE % bytes(tmp_path))
    assert (result.returncode, result.stderr) == (1, b"it was killed while it ran\n")
    assert runs(tmp_path) == 1


def test_only_root_can_read_it(hand_in, tmp_path):
    hand_in(b"#!/bin/sh\n")
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "state/user-data").iterdir()}
    assert modes == {0}


def test_spares_and_claimed_machines_have_the_task():
    assert not is_given_user_data(make_vmi())
    assert is_given_user_data(make_vmi(labels={"corral.dev/warm-pool": "spares"}))
    claimed = make_vmi()
    claimed.metadata.annotations["corral.dev/user-data-secret"] = "seed"
    assert is_given_user_data(claimed)
