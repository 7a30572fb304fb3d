"""What changes make of what is known."""

from dataclasses import replace

import pytest

from corral.node.hypervisor import Change
from corral.node.state.facts import (
    Facts,
    State,
    Trouble,
    destroyed,
    fold,
    never_started,
    not_received,
    out_of_memory,
    responsive,
    start_failed,
    stuck,
    unresponsive,
)
from corral.node.state.machine_record import Outcome

RUNNING = Facts(state=State.RUNNING)


def after(*changes: Change, facts: Facts = RUNNING) -> Facts:
    for change in changes:
        facts = fold(facts, change)
    return facts


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ((Change.POWERED_OFF, Change.PAUSED, Change.GONE), Outcome.SUCCEEDED),
        ((Change.PANICKED, Change.POWERED_OFF, Change.GONE), Outcome.FAILED),
        ((Change.GONE,), Outcome.FAILED),
        ((Change.WATCHDOG_POWERED_OFF, Change.GONE), Outcome.FAILED),
        ((Change.WATCHDOG_EXPIRED, Change.POWERED_OFF, Change.GONE), Outcome.SUCCEEDED),
        ((Change.REBOOTED, Change.AGENT_CONNECTED, Change.GONE), Outcome.FAILED),
    ],
)
def test_reasons_of_the_end_of_a_machine(changes, outcome):
    facts = after(*changes)
    assert facts.ended
    assert facts.outcome is outcome
    assert facts.message
    assert not facts.paused
    assert not facts.agent_connected


def test_an_oom_killed_machine_keeps_that_reason():
    facts = after(Change.GONE, facts=out_of_memory(RUNNING, 100 << 20))
    assert facts.outcome is Outcome.FAILED
    assert facts.out_of_memory
    assert "limit of 100 MiB" in facts.message
    done = after(Change.POWERED_OFF)
    assert out_of_memory(done, 100 << 20) == done


def test_a_guest_that_has_powered_off_is_not_paused():
    assert after(Change.POWERED_OFF, Change.PAUSED).paused == ""


def test_a_pause_by_an_io_error_is_not_a_users_pause():
    assert after(Change.PAUSED_BY_IO_ERROR, Change.PAUSED).paused == "PausedIOError"
    assert after(Change.PAUSED).paused == "PausedByUser"
    assert after(Change.PAUSED, Change.RESUMED).paused == ""


def test_start_errors_are_cleared_when_the_guest_runs():
    troubled = Facts(trouble=Trouble(reason="ErrImagePull", message="no"))
    assert fold(troubled, Change.RESUMED) == RUNNING


@pytest.mark.parametrize("hangs", [False, True])
def test_only_unresponsiveness_is_cleared_when_qemu_responds(hangs):
    silent = unresponsive(Facts(), "no answer", hangs=hangs)
    assert silent.state is State.RUNNING
    assert silent.silent is hangs
    assert silent.trouble.reason == "MonitorSilent"
    assert silent.trouble.message.endswith("no answer")
    assert responsive(silent) == RUNNING
    still = stuck(silent, "its disk does not answer")
    assert still.trouble == Trouble(reason="FailedKillPod", message="its disk does not answer")
    assert responsive(still) == replace(still, silent=False)


@pytest.mark.parametrize("change", [Change.PAUSED, Change.PAUSED_BY_IO_ERROR])
def test_an_adopted_paused_guest_counts_as_running(change):
    troubled = Facts(trouble=Trouble(reason="MonitorSilent", message="no"))
    found = after(change, facts=troubled)
    assert found.state is State.RUNNING
    assert found.trouble is None
    assert after(change, facts=replace(found, trouble=troubled.trouble)) == found


def test_a_reboot_loses_the_agent():
    assert not after(Change.AGENT_CONNECTED, Change.REBOOTED).agent_connected


def test_a_kill_is_a_failure_unless_a_shutdown_was_impossible():
    assert fold(destroyed(RUNNING, in_order=False), Change.GONE).outcome is Outcome.FAILED
    assert fold(destroyed(RUNNING, in_order=True), Change.GONE).outcome is Outcome.SUCCEEDED


def test_the_first_reason_counts():
    off = after(Change.POWERED_OFF)
    assert destroyed(off, in_order=False) == off
    assert fold(never_started(Facts()), Change.GONE) == replace(
        never_started(Facts()), state=State.ENDED
    )
    assert never_started(off) == off


@pytest.mark.parametrize("cause", ["evicted", "fenced", "unhealthy"])
def test_whether_the_guest_has_run_does_not_hang_on_why_it_ended(cause):
    facts = Facts(**{cause: "because"})
    assert never_started(facts).never_ran
    assert not_received(facts, "no room").never_ran
    assert "because" in not_received(facts, "no room").message
    for others in (start_failed(facts, "no room"), destroyed(facts, in_order=True)):
        assert not others.never_ran
        assert never_started(others) == others
