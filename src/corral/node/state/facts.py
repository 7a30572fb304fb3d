"""Facts: the observed state of a machine, and the functions that update it.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from corral.api.kinds.corral.spare_state import PAUSED_AS_SPARE
from corral.node.hypervisor import Change, GuestInfo, GuestSize
from corral.node.state.machine_record import Outcome


class State(Enum):
    """The state of a machine on its way from preparation to its end."""

    PREPARING = "preparing"
    PULLING = "pulling"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


_QUIET = frozenset({State.PREPARING, State.STARTING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The cause that a machine does not start: reason, message, and the volume concerned."""

    reason: str
    message: str
    volume: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugged:
    """The state of a hotplugged disk: phase, reason, and message."""

    phase: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class UserDataState:
    """Whether a guest has applied its user data: empty if so, else the reason and a message."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ForkState:
    """Reason and message of the condition Forked (``corral.api.kinds.vmi.fork_state``)."""

    reason: str
    message: str = ""


class Progress(Enum):
    """The progress of a live migration, as one of its sides observes it."""

    AWAITED = "awaited"  # the target cannot receive yet
    PREPARED = "prepared"  # the target can receive
    ARRIVED = "arrived"  # the guest runs on the target
    SENDING = "sending"  # the source sends, and runs the guest
    SENT = "sent"  # the source has handed the guest over
    FAILED = "failed"  # the source goes on running the guest


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The latest live migration of a machine, by its uid.

    failure: why it has failed.  abort: the result of its cancellation, in KubeVirt's words.
    downtime: seconds for which its guest ran nowhere, once the source knows them.
    """

    uid: str
    progress: Progress
    failure: str = ""
    abort: str = ""
    downtime: float | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Report whether the other side runs the guest, and reports its status."""
        return self.progress in {Progress.AWAITED, Progress.PREPARED, Progress.SENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The observed state of a machine."""

    state: State = State.PREPARING
    trouble: Trouble | None = None
    addresses: tuple[str, ...] = ()
    """The pod's addresses, once its network is set up."""
    paused: str = ""
    """The reason of KubeVirt's Paused condition; empty while the guest runs."""
    paused_as_spare: bool = False
    """True from the pause of a spare until it is handed out, goes on, and has the right time."""
    ready: bool | None = None
    """The result of the readiness probe; None before the first one."""
    silent: bool = False
    """True if QEMU neither answers nor runs, so that the guest's state is unknown."""
    agent_connected: bool = False
    agent_sessions: int = 0
    """Number of connections of the agent: a guest that reboots connects again."""
    credentials: str | None = None
    """Reason why access credentials are not in force; empty if they are, None if unknown."""
    user_data: UserDataState | None = None
    """Whether the user data of a machine that was handed out is applied; None if it has none."""
    fork: ForkState | None = None
    """How the start from a checkpoint went; None of other machines, and before it is known."""
    guest_info: GuestInfo | None = None
    frozen: bool | None = None
    """True if the guest's file systems are frozen; None after a restart of the manager: unknown."""
    saving: bool = False
    """True if the guest is stopped while its memory is saved."""
    plugs: Mapping[str, Plugged] | None = None
    """Hotplugged disks, by volume; None until the hypervisor was queried."""
    size: GuestSize | None = None
    """vCPUs and memory, of a machine with room for more; None until the hypervisor was queried."""
    resize_failure: str = ""
    """Message of the failure to plug in vCPUs or memory; empty if there is none."""
    unhealthy: str = ""
    """Message of its failed liveness probe; a machine that is ended for that has failed."""
    evicted: str = ""
    """Message of its eviction by the node; a machine that is evicted has failed."""
    fenced: str = ""
    """Message of its end lest the cluster run a second one; such a machine has failed."""
    outcome: Outcome | None = None
    message: str = ""
    """The message of the outcome."""
    out_of_memory: bool = False
    """True if it was ended for exceeding its memory limit."""
    never_ran: bool = False
    """True if it has ended, and its guest has executed nothing here."""
    migration: Migration | None = None

    @property
    def elsewhere(self) -> bool:
        """Report whether its guest runs on the other side of a migration."""
        return self.migration is not None and self.migration.is_elsewhere

    @property
    def address(self) -> str:
        """The first of the pod's addresses; empty if there are none."""
        return next(iter(self.addresses), "")

    @property
    def ended(self) -> bool:
        return self.state is State.ENDED

    @property
    def is_passing(self) -> bool:
        """Report whether this lasts for a moment without trouble, so that no status shows it."""
        passing = self.state in _QUIET or (self.outcome is not None and not self.ended)
        return passing and self.trouble is None and self.migration is None


SILENT = "MonitorSilent"
"""Reason of the condition Synchronized while a running machine cannot be managed."""
STUCK = "FailedKillPod"
"""A kubelet's event reason for a pod that it cannot kill; reason of Synchronized meanwhile."""
OOM_KILLED = "OOMKilled"
"""A kubelet's reason for a container that exceeded its memory limit."""
NEVER_STARTED = "NeverStarted"
"""Reason of a container's end whose guest has executed nothing: a migration's source keeps it."""
PAUSED_BY_USER = "PausedByUser"
PAUSED_BY_IO_ERROR = "PausedIOError"

CRASHED = "The VirtualMachineInstance crashed."
CUT_OFF = "The VirtualMachineInstance was powered off by its watchdog."
SHUT_DOWN = "The VirtualMachineInstance was shut down."
FENCED = (
    "The node ended the VirtualMachineInstance: it could not renew its Lease in time, so that the"
    " cluster may run another one."
)
SAVED = "The VirtualMachineInstance was saved."
INTERRUPTED = "the agent of the source node was restarted"
"""Reason of a failed migration whose source has no record of the failure."""
MIGRATED = "The VirtualMachineInstance was migrated to another node."
LOST = (
    "The VirtualMachineInstance was handed over to another node, and ended there before that could"
    " report it."
)
_NOT_STARTED = "The VirtualMachineInstance was stopped before it was started."

_OUTCOMES = {
    Change.POWERED_OFF: (Outcome.SUCCEEDED, SHUT_DOWN),
    Change.PANICKED: (Outcome.FAILED, CRASHED),
    Change.WATCHDOG_POWERED_OFF: (Outcome.FAILED, CUT_OFF),
}


def fold(facts: Facts, change: Change) -> Facts:  # noqa: PLR0911 - one row a change
    """Return the facts after a change of the guest."""
    match change:
        case Change.AGENT_CONNECTED:
            sessions = facts.agent_sessions + 1
            return replace(facts, agent_connected=True, agent_sessions=sessions)
        case Change.AGENT_DISCONNECTED:
            return replace(facts, agent_connected=False)
        case Change.REBOOTED:
            return replace(facts, agent_connected=False, frozen=False)
        case Change.PAUSED if facts.outcome is None:
            own = PAUSED_AS_SPARE if facts.paused_as_spare else PAUSED_BY_USER
            reason = facts.paused or own
            return _running(facts, paused=reason)
        case Change.PAUSED_BY_IO_ERROR:
            return _running(facts, paused=PAUSED_BY_IO_ERROR)
        case Change.RESUMED:
            return _running(facts, paused="")
        case Change.POWERED_OFF | Change.PANICKED | Change.WATCHDOG_POWERED_OFF:
            return _with_outcome(facts, *_OUTCOMES[change])
        case Change.GONE:
            ended = responsive(_with_outcome(facts, Outcome.FAILED, CRASHED))
            return replace(ended, state=State.ENDED, agent_connected=False, paused="")
        case _:
            return facts


def _running(facts: Facts, *, paused: str) -> Facts:
    return replace(facts, state=State.RUNNING, paused=paused, trouble=None, silent=False)


def unresponsive(facts: Facts, why: str, *, hangs: bool) -> Facts:
    """Return the facts of a running machine that cannot be managed at present.

    It may only be slow.  The phase is Unknown only for one that ``hangs``.
    """
    trouble = Trouble(reason=SILENT, message=f"QEMU runs, but is silent: {why}")
    return replace(facts, state=State.RUNNING, trouble=trouble, silent=hangs)


def responsive(facts: Facts) -> Facts:
    """Return the facts of a machine that can be managed (again)."""
    silent = facts.trouble is not None and facts.trouble.reason == SILENT
    return replace(facts, silent=False, trouble=None if silent else facts.trouble)


def stuck(facts: Facts, why: str) -> Facts:
    """Return the facts of a machine that was killed and does not end."""
    return replace(facts, trouble=Trouble(reason=STUCK, message=why))


def _with_outcome(facts: Facts, outcome: Outcome, message: str) -> Facts:
    """Set the outcome, unless there is one: that QEMU ends after its guest did is no crash."""
    if facts.outcome is not None:
        return facts
    if because := facts.evicted or facts.fenced:
        return replace(facts, outcome=Outcome.FAILED, message=because)
    if facts.unhealthy:
        message = f"The VirtualMachineInstance failed its liveness probe: {facts.unhealthy}"
        return replace(facts, outcome=Outcome.FAILED, message=message)
    return replace(facts, outcome=outcome, message=message)


def never_started(facts: Facts) -> Facts:
    """Return the facts of a machine that was stopped before its guest ran."""
    return _without_guest(facts, _NOT_STARTED)


def start_failed(facts: Facts, why: str) -> Facts:
    """Return the facts of a machine whose guest could not be started, or may have run briefly."""
    return _with_outcome(
        facts, Outcome.FAILED, f"The VirtualMachineInstance could not be started: {why}"
    )


def out_of_memory(facts: Facts, limit: int) -> Facts:
    """Return the facts of a machine that is ended for its memory; ``limit`` is in bytes."""
    if facts.outcome is not None:
        return facts
    message = (
        "The VirtualMachineInstance was ended: it needed more memory than its pod's limit of"
        f" {-(-limit // 2**20)} MiB."
    )
    return replace(facts, outcome=Outcome.FAILED, message=message, out_of_memory=True)


def saved(facts: Facts) -> Facts:
    """Return the facts of a machine that was saved: its guest executes nothing any more."""
    return _with_outcome(facts, Outcome.SUCCEEDED, SAVED)


def migrated(facts: Facts) -> Facts:
    """Return the facts of a machine that runs on the target of a migration."""
    return _with_outcome(facts, Outcome.SUCCEEDED, MIGRATED)


def not_received(facts: Facts, why: str) -> Facts:
    """Return the facts of a migration's target whose guest has not run there."""
    return _without_guest(facts, f"The migration target failed: {why}")


def _without_guest(facts: Facts, message: str) -> Facts:
    if facts.outcome is not None:
        return facts
    return replace(_with_outcome(facts, Outcome.FAILED, message), never_ran=True)


def keeps_disks(facts: Facts) -> bool:
    """Report whether the disks of an ended machine stay until its pod is deleted.

    They do not where the node was short of resources, or where nothing can be found in them: the
    guest has gone on elsewhere with copies of them, or it has never run here.
    """
    return not (facts.evicted or facts.message == MIGRATED or facts.never_ran)


def lost(facts: Facts) -> Facts:
    """Return the facts of a machine whose guest has ended with the target of its migration."""
    return _with_outcome(facts, Outcome.FAILED, LOST)


def not_booted(facts: Facts) -> Facts:
    """Return the facts of a machine that is destroyed before its OS has booted."""
    return _with_outcome(
        facts,
        Outcome.FAILED,
        "The VirtualMachineInstance was destroyed: its guest had not come up, and could not be"
        " asked to shut down.",
    )


def destroyed(facts: Facts, *, in_order: bool) -> Facts:
    """Return the facts of a machine that is about to be destroyed.

    ``in_order``: that is no failure, since the guest could not shut down: it has no ACPI, or a
    grace period of zero (KubeVirt).
    """
    if in_order:
        return _with_outcome(facts, Outcome.SUCCEEDED, SHUT_DOWN)
    return _with_outcome(
        facts,
        Outcome.FAILED,
        "The VirtualMachineInstance was destroyed: its guest did not shut down in time.",
    )


def end_type(facts: Facts, *, stopping: bool) -> str:
    """Return the type of the event Stopped: a Warning if the end was not requested.

    ``stopping``: the machine was requested to stop.
    """
    unexpected = facts.outcome is Outcome.FAILED and not (stopping and not facts.unhealthy)
    return "Warning" if unexpected or facts.message == CRASHED else "Normal"
