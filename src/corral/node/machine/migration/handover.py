"""The hand-over of a guest between the two sides of a migration.  Pure.

Each side acts on its own record and on what it knows of the other, so that at every instant at most
one side runs the guest, whichever of managers, QEMUs and links ends in between.

The decision is the source's: it records Sent once both QEMUs have reported that the target is
complete.  Until then the guest is the source's, and from then on the target's.  Only a target that
has certainly ended without running the guest gives it back.  With one that has ended, and may have
run it, the guest is lost: the memory that is left here is older than the disks.
"""

from enum import Enum

from corral.node.state.machine_record import Stage


class TargetState(Enum):
    """The state of a target, as its source observes it."""

    UNKNOWN = "unknown"  # it does not answer
    GONE = "gone"  # it has ended, and may have run the guest
    ABSENT = "absent"  # it has ended, and has not run the guest
    RECEIVING = "receiving"
    COMPLETE = "complete"  # it has all of the guest, and waits
    RUNNING = "running"  # the source has requested it to run the guest


class SourceStep(Enum):
    """The next step of the source."""

    SEND = "send"  # wait for both QEMUs
    STAY = "stay"  # run the guest on, and end the target
    HAND_OVER = "hand over"  # record Sent, then request the target to run the guest
    WAIT = "wait"  # run nothing, until the state of the target is known
    END = "end"  # the guest runs on the target: remove what is left here
    LOSE = "lose"  # the guest has ended with the target


class TargetStep(Enum):
    """The next step of the target."""

    RECEIVE = "receive"
    WAIT = "wait"  # run nothing, until the source has decided
    RUN = "run"
    END = "end"


def source_step(
    stage: Stage, target: TargetState, *, sent: bool, fails: bool, run_requested: bool = True
) -> SourceStep:
    """Return the next step of the source from the stage that it has recorded.

    sent: whether its QEMU has sent everything, so that its guest is stopped.
    fails: whether the migration has failed or is cancelled.
    run_requested: whether the target may have got the request to run the guest.  One that is gone
    since may have written to the guest's disks, which its memory here knows nothing of.
    """
    if stage is Stage.SENT:
        return {
            TargetState.RUNNING: SourceStep.END,
            TargetState.COMPLETE: SourceStep.HAND_OVER,
            TargetState.ABSENT: SourceStep.STAY,
            TargetState.GONE: SourceStep.LOSE if run_requested else SourceStep.STAY,
        }.get(target, SourceStep.WAIT)
    if stage is not Stage.SENDING or fails or target is TargetState.ABSENT:
        return SourceStep.STAY
    # A target that runs the guest before Sent is recorded has no request to do so from this source.
    return SourceStep.HAND_OVER if sent and target is TargetState.COMPLETE else SourceStep.SEND


def target_step(
    stage: Stage, *, complete: bool, run_requested: bool, cancelled: bool
) -> TargetStep:
    """Return the next step of the target from the stage that it has recorded.

    complete: whether its QEMU has all of the guest.
    run_requested: whether the source has requested it to run the guest; cancelled: or to end.
    """
    if stage in {Stage.ARRIVING, Stage.STARTED}:
        return TargetStep.RUN
    if cancelled and not run_requested:
        return TargetStep.END
    if complete:
        return TargetStep.RUN if run_requested else TargetStep.WAIT
    return TargetStep.RECEIVE if stage in {Stage.DEFINED, Stage.RECEIVING} else TargetStep.END
