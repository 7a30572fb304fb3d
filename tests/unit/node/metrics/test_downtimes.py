"""Downtimes of migrations: which machine they are of, and for how long they are shown."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.node.metrics.downtimes import Downtimes
from corral.node.state.facts import Facts, Migration, Progress, migrated

SENT = Facts(migration=Migration(uid="m", progress=Progress.SENT, downtime=0.012))
EARLIER = migrated(
    replace(SENT, migration=Migration(uid="l", progress=Progress.SENT, downtime=3.0))
)


def machine(uid, facts):
    record = SimpleNamespace(uid=uid, namespace="default", instance="vm")
    return SimpleNamespace(record=record, facts=facts)


def vmi(migration):
    state = {"migrationUid": migration} if migration else None
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {"domain": {"devices": {}}},
        "status": {"migrationState": state},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def observed(*machines):
    downtimes = Downtimes("node", lambda: machines)
    downtimes.observe("u")
    return downtimes


def latest(downtimes, found):
    return [each.seconds for _, each in downtimes.latest(lambda _uid: found)]


def counted(downtimes):
    samples = downtimes.family().samples
    return next(each.value for each in samples if each.name.endswith("_count"))


def test_the_downtime_is_that_of_the_machine_that_hands_its_guest_over():
    others = machine("v", SENT), machine("u", EARLIER), machine("u", Facts())
    downtimes = observed(*others, machine("u", SENT))
    assert counted(downtimes) == 1
    assert latest(downtimes, vmi("m")) == [0.012]
    assert latest(downtimes, vmi("m")) == [0.012]


def test_a_vmi_that_has_left_is_shown_while_something_of_its_machine_is_left():
    """A joined host does not find such a VMI any more."""
    here = [machine("u", SENT)]
    downtimes = Downtimes("node", lambda: here)
    downtimes.observe("u")
    here[:] = [machine("v", EARLIER), machine("u", migrated(SENT))]
    for _ in range(2):
        [(found, downtime)] = downtimes.latest(lambda _uid: None)
        assert (found, downtime.vmi) == (None, Key("default", "vm"))
    here.pop()
    assert latest(downtimes, None) == []


def test_a_vmi_that_has_come_back_and_left_again_has_its_latest_downtime_alone():
    here = [machine("u", SENT)]
    downtimes = Downtimes("node", lambda: here)
    downtimes.observe("u")
    here[:] = [machine("u", EARLIER)]
    assert latest(downtimes, None) == []


@pytest.mark.parametrize("found", [vmi("n"), vmi("")])
def test_a_downtime_goes_with_its_vmi_and_with_the_next_migration(found):
    downtimes = observed(machine("u", SENT))
    assert latest(downtimes, found) == []
    assert latest(downtimes, vmi("m")) == []
    assert counted(downtimes) == 1, "the histogram has all"


def test_a_guest_that_an_earlier_manager_has_stopped_has_no_downtime():
    unknown = replace(SENT, migration=Migration(uid="m", progress=Progress.SENT))
    downtimes = observed(machine("u", unknown))
    assert counted(downtimes) == 0
    assert latest(downtimes, vmi("m")) == []
