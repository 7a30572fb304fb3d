"""User data in a guest: the script runs once, whoever hands it in again."""

import asyncio
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace

import pytest
from tests.unit.controllers.make import make_vmi

from corral.node.guest.user_data import LONGEST_SECONDS, SCRIPT, UserData, is_given_user_data
from corral.node.hypervisor import Finished, GuestError
from corral.node.state.facts import Facts, State

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


class Guest:
    """A machine whose guest runs a command for some time, or answers with an error."""

    def __init__(self, *, seconds=0.0, error=None):
        self.record = SimpleNamespace(uid="uid")
        self.facts = Facts(state=State.RUNNING, agent_connected=True, agent_sessions=1)
        self.guest = SimpleNamespace(agent=self)
        self.reports = []
        self.runs = []
        self._seconds, self._error = seconds, error

    def set_facts(self, facts):
        self.facts = facts
        self.reports.append((facts.user_data, asyncio.get_running_loop().time()))

    async def run(self, command, script):
        self.runs.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._seconds)
        if self._error is not None:
            raise self._error
        return Finished(exit_code=0, output=b"", errors=b"")


async def follow(guest, seconds):
    """Let the task beside a guest run for so long; return its reasons, and when they came."""
    vmi = make_vmi()
    vmi.metadata.annotations["corral.dev/user-data"] = "#!/bin/sh\n"
    events = SimpleNamespace(vmi_event=lambda *_: None)
    begun = asyncio.get_running_loop().time()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await UserData(lambda _: vmi, None).run(guest, events)
    return [(state.reason, moment - begun) for state, moment in guest.reports]


@pytest.mark.looptime
async def test_a_script_that_runs_too_long_is_reported_and_not_handed_in_again():
    guest = Guest(seconds=2 * LONGEST_SECONDS)
    assert await follow(guest, 5 * LONGEST_SECONDS) == [("UserDataFailed", LONGEST_SECONDS)]
    assert "still runs after 3600 s" in guest.facts.user_data.message
    assert len(guest.runs) == 1


@pytest.mark.looptime
async def test_a_script_that_ends_in_time_is_applied():
    assert await follow(Guest(seconds=LONGEST_SECONDS - 1), 9999) == [("", LONGEST_SECONDS - 1)]


@pytest.mark.looptime
async def test_an_agent_that_fails_is_asked_again_at_growing_pauses():
    guest = Guest(error=GuestError("no answer"))
    assert await follow(guest, 200) == [("UserDataPending", 0)]
    pauses = [after - before for before, after in pairwise(guest.runs)]
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
