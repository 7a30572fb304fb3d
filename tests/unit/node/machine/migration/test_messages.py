"""The messages between the two sides of a migration."""

from types import SimpleNamespace

import msgspec
import pytest

from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.messages import Command, Report, obey, report_of
from corral.node.machine.migration.targets import LocalTarget


@pytest.fixture
def target():
    return LocalTarget(SimpleNamespace(received=False), ["root"])


def test_a_report_says_how_far_the_target_is(target):
    assert report_of(target) == Report(TargetState.RECEIVING, ("root",))
    target.is_complete = True
    assert report_of(target).state is TargetState.COMPLETE
    target.run_requested = target.is_running = True
    assert report_of(target).state is TargetState.RUNNING
    assert not report_of(target).is_last
    target.is_reported = True
    assert report_of(target).is_last
    whole = msgspec.json.decode(msgspec.json.encode(report_of(target)), type=Report)
    assert whole == report_of(target)


async def test_a_target_that_has_ended_gets_no_request(target):
    target.fail("QEMU has ended")
    await obey(target, Command(run=True))
    assert not target.run_requested
    assert report_of(target) == Report(TargetState.ABSENT, ("root",), failure="QEMU has ended")


async def test_a_target_requested_to_run_is_not_cancelled(target):
    await obey(target, Command(run=True, paused=True))
    await obey(target, Command(cancel="too late"))
    assert (target.run_requested, target.paused, target.failure) == (True, True, "")


async def test_a_target_stopped_after_the_request_reports_no_more(target):
    await obey(target, Command(run=True))
    target.leave()
    assert report_of(target) == Report(TargetState.UNKNOWN, ("root",))
    assert report_of(target).is_last


async def test_why_a_target_is_cancelled_is_cut(target):
    await obey(target, Command(cancel="x" * 100_000))
    assert target.failure == "x" * 1000 + "..."


async def test_a_target_takes_the_addresses_over_unless_it_has_ended():
    log = []

    async def take_over():
        log.append("taken over")

    target = LocalTarget(SimpleNamespace(received=False), take_over=take_over)
    await obey(target, Command(expect=True))
    assert (log, target.run_requested) == (["taken over"], False)
    target.fail("QEMU has ended")
    await obey(target, Command(expect=True))
    assert log == ["taken over"]
