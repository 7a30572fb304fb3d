"""What is known of a machine, and what a change makes of it.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from corral.node.hypervisor import Change, Introduction
from corral.node.state.machine_record import Outcome


class State(Enum):
    """What a machine is doing."""

    PREPARING = "preparing"
    PULLING = "pulling"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a machine does not start: a word, a sentence, and the volume that it is about."""

    reason: str
    message: str
    volume: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugged:
    """How far a disk that comes and goes has come: a phase, a word, and a sentence."""

    phase: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A machine as it is now."""

    state: State = State.PREPARING
    trouble: Trouble | None = None
    addresses: tuple[str, ...] = ()
    """The pod's, as soon as its network is there."""
    paused: str = ""
    """The reason of KubeVirt's Paused condition; empty while the guest runs."""
    ready: bool | None = None
    """The verdict of its readiness probe; None while there is none."""
    silent: bool = False
    """Whether nobody knows how its guest is: what it runs in answers nothing, and does nothing."""
    agent_connected: bool = False
    agent_sessions: int = 0
    """How often the agent has connected: a guest that starts again has another one."""
    credentials: str | None = None
    """Why the guest does not let in who its access credentials name; empty where it does, None
    where nobody knows."""
    introduction: Introduction | None = None
    frozen: bool | None = None
    """Whether the guest's file systems hold writes back; None where an earlier manager may know."""
    saving: bool = False
    """Whether the guest stands still because its memory is saved."""
    plugs: Mapping[str, Plugged] | None = None
    """Its disks that come and go, by their volumes; None until it is known which are there."""
    unhealthy: str = ""
    """Why it does not live, once it is ended for that: then it has failed, however it ends."""
    evicted: str = ""
    """Why it has to go for its node's sake: then it has failed, however it ends."""
    outcome: Outcome | None = None
    message: str = ""
    """Why it ended as it did."""
    out_of_memory: bool = False
    """Whether it ended since it wanted more memory than it may have."""

    @property
    def address(self) -> str:
        """The first of its pod's addresses; empty where it has none."""
        return next(iter(self.addresses), "")

    @property
    def ended(self) -> bool:
        return self.state is State.ENDED


SILENT = "MonitorSilent"
"""The reason of Synchronized while a machine runs that cannot be managed."""
STUCK = "FailedKillPod"
"""A kubelet's word for a pod that it cannot end; the reason of Synchronized meanwhile."""
OOM_KILLED = "OOMKilled"
"""A kubelet's word for what ended since it wanted more memory than it may have."""
PAUSED_BY_USER = "PausedByUser"
PAUSED_BY_IO_ERROR = "PausedIOError"

CRASHED = "The VirtualMachineInstance crashed."
CUT_OFF = "The VirtualMachineInstance was powered off by its watchdog."
SHUT_DOWN = "The VirtualMachineInstance was shut down."
SAVED = "The VirtualMachineInstance was saved."

_VERDICTS = {
    Change.POWERED_OFF: (Outcome.SUCCEEDED, SHUT_DOWN),
    Change.PANICKED: (Outcome.FAILED, CRASHED),
    Change.CUT_OFF: (Outcome.FAILED, CUT_OFF),
}


def fold(facts: Facts, change: Change) -> Facts:  # noqa: PLR0911 - one row a change
    """What is known after a change."""
    match change:
        case Change.AGENT_CONNECTED:
            sessions = facts.agent_sessions + 1
            return replace(facts, agent_connected=True, agent_sessions=sessions)
        case Change.AGENT_DISCONNECTED:
            return replace(facts, agent_connected=False)
        case Change.REBOOTED:
            return replace(facts, agent_connected=False, frozen=False)
        case Change.PAUSED if facts.outcome is None:
            reason = facts.paused or PAUSED_BY_USER
            return _running(facts, paused=reason)
        case Change.PAUSED_BY_IO_ERROR:
            return _running(facts, paused=PAUSED_BY_IO_ERROR)
        case Change.RESUMED:
            return _running(facts, paused="")
        case Change.POWERED_OFF | Change.PANICKED | Change.CUT_OFF:
            return _decided(facts, *_VERDICTS[change])
        case Change.GONE:
            decided = answering(_decided(facts, Outcome.FAILED, CRASHED))
            return replace(decided, state=State.ENDED, agent_connected=False, paused="")
        case _:
            return facts


def _running(facts: Facts, *, paused: str) -> Facts:
    return replace(facts, state=State.RUNNING, paused=paused, trouble=None, silent=False)


def unanswering(facts: Facts, why: str, *, hangs: bool) -> Facts:
    """What is known of a machine that runs and cannot be managed.

    It may be slow.  Only of one that ``hangs`` nobody knows how it is (phase Unknown).
    """
    trouble = Trouble(reason=SILENT, message=f"QEMU runs, but is silent: {why}")
    return replace(facts, state=State.RUNNING, trouble=trouble, silent=hangs)


def answering(facts: Facts) -> Facts:
    """What is known of a machine that can be managed, perhaps again."""
    silent = facts.trouble is not None and facts.trouble.reason == SILENT
    return replace(facts, silent=False, trouble=None if silent else facts.trouble)


def stuck(facts: Facts, why: str) -> Facts:
    """What is known of a machine that was killed, and does not end."""
    return replace(facts, trouble=Trouble(reason=STUCK, message=why))


def _decided(facts: Facts, outcome: Outcome, message: str) -> Facts:
    """The first verdict counts: that QEMU ends after the guest did is no crash."""
    if facts.outcome is not None:
        return facts
    if facts.evicted:
        return replace(facts, outcome=Outcome.FAILED, message=facts.evicted)
    if facts.unhealthy:
        message = f"The VirtualMachineInstance failed its liveness probe: {facts.unhealthy}"
        return replace(facts, outcome=Outcome.FAILED, message=message)
    return replace(facts, outcome=outcome, message=message)


def never_started(facts: Facts) -> Facts:
    """What is known of a machine that was to stop before its guest ran."""
    return _decided(
        facts, Outcome.FAILED, "The VirtualMachineInstance was stopped before it was started."
    )


def stillborn(facts: Facts, why: str) -> Facts:
    """What is known of a machine whose guest was to run, and perhaps did."""
    return _decided(
        facts, Outcome.FAILED, f"The VirtualMachineInstance could not be started: {why}"
    )


def out_of_memory(facts: Facts, limit: int) -> Facts:
    """What is known of a machine that is ended for its memory; ``limit`` is in bytes."""
    if facts.outcome is not None:
        return facts
    message = (
        "The VirtualMachineInstance was ended: it needed more memory than its pod's limit of"
        f" {-(-limit // 2**20)} MiB."
    )
    return replace(facts, outcome=Outcome.FAILED, message=message, out_of_memory=True)


def saved(facts: Facts) -> Facts:
    """What is known of a machine whose guest has been saved, and executes nothing any more."""
    return _decided(facts, Outcome.SUCCEEDED, SAVED)


def not_up(facts: Facts) -> Facts:
    """What is known when a guest is about to be destroyed whose system had not come up."""
    return _decided(
        facts,
        Outcome.FAILED,
        "The VirtualMachineInstance was destroyed: its guest had not come up, and could not be"
        " told to shut down.",
    )


def doomed(facts: Facts, *, in_order: bool) -> Facts:
    """What is known when the machine is about to be destroyed.

    To be destroyed is ``in_order`` where nobody could expect the guest to shut down: it has no
    ACPI, or no time was granted (KubeVirt).
    """
    if in_order:
        return _decided(facts, Outcome.SUCCEEDED, SHUT_DOWN)
    return _decided(
        facts,
        Outcome.FAILED,
        "The VirtualMachineInstance was destroyed: its guest did not shut down in time.",
    )


def end_type(facts: Facts, *, told: bool) -> str:
    """The type of the event that tells of the end: a Warning where nobody wanted it.

    ``told``: it was told to end.
    """
    unasked = facts.outcome is Outcome.FAILED and not (told and not facts.unhealthy)
    return "Warning" if unasked or facts.message == CRASHED else "Normal"
