"""When the reconciler of a pod is notified of its machine."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from corral.node.state.facts import Facts, Migration, Progress, State, Trouble
from corral.node.state.machine_record import Outcome, Record
from corral.node.state.machine_state import MachineState

RECORD = Record(namespace="default", instance="vm", uid="u", pod="p", pod_uid="q")
TROUBLE = Trouble(reason="StartFailed", message="no")


@pytest.fixture
def notified():
    return []


@pytest.fixture
def state(tmp_path, notified):
    recorder = SimpleNamespace(changed=lambda: notified.append(1))
    return MachineState(RECORD, tmp_path, recorder=recorder, step=lambda _: None)


def test_steps_of_a_start_without_trouble_notify_nobody_before_the_guest_runs(state, notified):
    state.set_facts(replace(state.facts, addresses=("10.0.0.1",)))
    state.set_facts(replace(state.facts, state=State.STARTING))
    assert not notified
    state.set_facts(replace(state.facts, state=State.RUNNING))
    assert len(notified) == 1
    assert state.facts == Facts(state=State.RUNNING, addresses=("10.0.0.1",))


@pytest.mark.parametrize(
    "change",
    [
        {"trouble": TROUBLE},
        {"state": State.PULLING},
        {"migration": Migration(uid="m", progress=Progress.AWAITED)},
        {"state": State.ENDED, "outcome": Outcome.FAILED},
    ],
)
def test_what_a_status_shows_is_notified_and_so_is_its_end(state, notified, change):
    before = state.facts
    state.set_facts(replace(before, **change))
    state.set_facts(replace(before, **change))
    assert len(notified) == 1
    state.set_facts(before)
    assert len(notified) == 2
