"""The hand-over between the sides of a migration: every state, and every order of crashes."""

from itertools import product

import pytest

from corral.node.machine.migration.handover import (
    SourceStep,
    TargetState,
    TargetStep,
    source_step,
    target_step,
)
from corral.node.state.machine_record import Stage

FLAGS = (False, True)


@pytest.mark.parametrize("target", TargetState)
@pytest.mark.parametrize("stage", Stage)
def test_a_source_gives_its_guest_up_only_when_both_sides_are_complete(stage, target):
    for sent, fails in product(FLAGS, FLAGS):
        step = source_step(stage, target, sent=sent, fails=fails)
        if stage is Stage.SENDING and step is SourceStep.HAND_OVER:
            assert sent
            assert not fails
            assert target is TargetState.COMPLETE


@pytest.mark.parametrize(
    ("target", "step"),
    [
        (TargetState.UNKNOWN, SourceStep.WAIT),
        (TargetState.RECEIVING, SourceStep.WAIT),
        (TargetState.COMPLETE, SourceStep.HAND_OVER),
        (TargetState.RUNNING, SourceStep.END),
        (TargetState.ABSENT, SourceStep.STAY),
        (TargetState.GONE, SourceStep.LOSE),
    ],
)
def test_a_source_that_has_sent_resumes_only_if_its_target_is_gone(target, step):
    for sent, fails in product(FLAGS, FLAGS):
        assert source_step(Stage.SENT, target, sent=sent, fails=fails) is step


def test_a_source_resumes_without_its_target_only_if_that_cannot_have_run_the_guest():
    step = source_step(Stage.SENT, TargetState.GONE, sent=True, fails=False, run_requested=False)
    assert step is SourceStep.STAY


@pytest.mark.parametrize("stage", Stage)
def test_a_target_runs_the_guest_only_on_request(stage):
    for complete, run_requested, cancelled in product(FLAGS, FLAGS, FLAGS):
        step = target_step(
            stage, complete=complete, run_requested=run_requested, cancelled=cancelled
        )
        if step is TargetStep.RUN and stage not in {Stage.ARRIVING, Stage.STARTED}:
            assert complete
            assert run_requested


def test_a_target_requested_to_run_the_guest_is_not_cancelled():
    for stage in (Stage.RECEIVING, Stage.ARRIVING):
        assert (
            target_step(stage, complete=True, run_requested=True, cancelled=True) is TargetStep.RUN
        )


def test_a_cancelled_target_ends():
    for complete in FLAGS:
        step = target_step(Stage.RECEIVING, complete=complete, run_requested=False, cancelled=True)
        assert step is TargetStep.END


def test_no_state_has_two_sides_that_run_the_guest():
    """The source runs it in Sending; the target gets its request after Sent is recorded."""
    for target, sent, fails in product(TargetState, FLAGS, FLAGS):
        step = source_step(Stage.SENDING, target, sent=sent, fails=fails)
        if step is SourceStep.STAY:
            # The source has requested nothing yet, and cancels the target.
            decided = target_step(
                Stage.RECEIVING, complete=True, run_requested=False, cancelled=True
            )
            assert decided is TargetStep.END
