"""The next phase of a migration, and what is to be done for it.  Pure.

The phases, their order and the texts are KubeVirt's (virt-controller, migration.go).  Nodes drive
``status.migrationState`` of the VMI from the hand-off on; this controller follows it, so several
phases may pass at once.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from lightkube.models.core_v1 import Pod

from corral.api.kinds.kubevirt.migration import (
    FAILED,
    PENDING,
    PENDING_TIMEOUT,
    PREPARING,
    READY,
    RUNNING,
    SCHEDULED,
    SCHEDULING,
    SUCCEEDED,
    UNSCHEDULABLE_TIMEOUT,
    VirtualMachineInstanceMigration,
)
from corral.api.kinds.vmi.live_update import is_growing
from corral.api.kinds.vmi.migration_status import MigrationState
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.controllers.vmi.lifecycle import has_ended, is_running, node_of, phase_of
from corral.reconcile.objects import is_being_deleted, key_of
from corral.reconcile.readiness import pod_condition

UNSCHEDULABLE_SECONDS: Final = 300
PENDING_SECONDS: Final = 900
"""Seconds for which a target pod may be unschedulable, or pending for any reason."""
_CREATED: Final = frozenset({SCHEDULING, SCHEDULED, PREPARING, READY, RUNNING})
_HANDED_OFF: Final = frozenset({PREPARING, READY, RUNNING})
TARGET_DOWN: Final = "Target pod is down"
CANCELLED: Final = "Live migration was cancelled before it began"
"""``failureReason`` of a migration that ends before the source has begun, for want of its target
or of its purpose."""
_REASON_CHARACTERS: Final = 500
"""Of what a node says about a target pod, the most that is shown."""


class Report(NamedTuple):
    """An event about the migration."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state from which a migration is planned.

    vmi: its VMI; None if it does not exist.
    source: the pod that the VMI leaves.
    target: the pod that was created for the migration.
    handed_off: whether this process has handed the VMI to the target, which the cache may not show.
    taken: whether the VMI's migrationState is of another migration that is not over.
    blocked: whether the VMI has a pod that is neither of the two, or an older migration.
    """

    migration: VirtualMachineInstanceMigration
    vmi: VirtualMachineInstance | None
    source: Pod | None
    target: Pod | None
    handed_off: bool
    taken: bool
    blocked: bool
    now: datetime

    @property
    def state(self) -> MigrationState | None:
        """The VMI's migrationState, if it is of this migration."""
        return self.migration.state_in(self.vmi) if self.vmi is not None else None

    @property
    def has_moved(self) -> bool:
        """True if the VMI runs in the target pod."""
        state = self.state
        return (
            self.vmi is not None
            and state is not None
            and self.vmi.status.node_name == state.target_node
        )

    @property
    def has_started(self) -> bool:
        """True once the source has begun: from then on only the nodes know where the guest is."""
        state = self.state
        return state is not None and (state.start_timestamp is not None or state.completed)

    @property
    def cancelled(self) -> bool:
        """True if the migration, or its VMI, is being deleted."""
        ends = self.vmi is not None and is_being_deleted(self.vmi)
        return ends or is_being_deleted(self.migration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next steps of a migration.

    phase: its phase from now on.
    passed: the phases that it enters with that, in order.
    create_pod: whether to create the target pod, if the limits allow one.
    delete_pod: why to delete the target pod; "" to keep it.
    hand_off: whether to hand the VMI to the target.
    abort: whether to request the source to cancel.
    fail_vmi: ``failureReason`` to write to the VMI; "" for none.
    complete_vmi: whether to complete the migration on the VMI, since the source cannot.
    reports: events.
    requeue_seconds: when to plan again although nothing changes until then; 0: never.
    """

    phase: str
    passed: tuple[str, ...] = ()
    create_pod: bool = False
    delete_pod: str = ""
    hand_off: bool = False
    abort: bool = False
    fail_vmi: str = ""
    complete_vmi: bool = False
    reports: tuple[Report, ...] = ()
    requeue_seconds: float = 0.0


def plan(observed: Observed) -> Plan:
    """Return the plan for a migration."""
    if observed.migration.is_final:
        return _finished(observed)
    if failure := _failure(observed):
        return _failed(observed, failure)
    passed = tuple(_progress(observed))
    phase = passed[-1] if passed else observed.migration.status.phase
    seconds, expired = _pending(observed) if phase in (PENDING, SCHEDULING) else (0.0, "")
    return Plan(
        phase=phase,
        passed=passed,
        create_pod=phase == PENDING and _may_create(observed),
        delete_pod=expired,
        hand_off=phase == SCHEDULED and _may_hand_off(observed),
        abort=_is_to_abort(observed),
        complete_vmi=_is_orphaned(observed),
        reports=(*_success(phase), *_unschedulable(observed, phase)),
        requeue_seconds=seconds,
    )


# ---------------------------------------------------------------------------- failures


def _failure(observed: Observed) -> str:
    """Return why a migration that is not over has failed; "" if it has not."""
    vmi, phase = observed.vmi, observed.migration.status.phase
    if vmi is None:
        return "Migration failed because vmi does not exist."
    if vmi.is_final:
        return "Migration failed vmi shutdown during migration."
    if observed.cancelled and not observed.has_started and _shows_hand_off(observed):
        return "Migration failed due to being canceled"
    if phase == "" and observed.taken:
        return "VMI is not eligible for migration because another migration job is in progress."
    return _state_failure(observed) or _target_failure(observed)


def _shows_hand_off(observed: Observed) -> bool:
    """Report whether the cache shows the hand-off, if there was one."""
    return observed.state is not None or not observed.handed_off


def _state_failure(observed: Observed) -> str:
    """Return the failure that the VMI's migrationState shows."""
    assert observed.vmi is not None
    state = observed.vmi.status.migration_state
    if observed.migration.status.phase in _HANDED_OFF and observed.state is None:
        if state is None:
            return "VMI's migration state was cleared during the active migration."
        return (
            "VMI's migration state was taken over by another migration job during active migration."
        )
    failed = observed.state is not None and observed.state.failed
    return "source node reported migration failed" if failed else ""


def _target_failure(observed: Observed) -> str:
    """Return the failure of the target pod.

    Once the source has begun, it knows better than the pod whether the guest has moved.
    """
    if observed.has_started:
        return ""
    if observed.target is None:
        if observed.migration.status.phase in _CREATED:
            return "Migration target pod was removed during active migration."
        return ""
    if _is_down(observed.target):
        shutdown = "Migration failed because target pod shutdown during migration"
        return f"{shutdown}{_reason(observed.target)}"
    return ""


def _is_down(pod: Pod) -> bool:
    return is_being_deleted(pod) or has_ended(pod)


def _reason(pod: Pod | None) -> str:
    """Return why a target pod has ended, as its node says; the pod is gone when somebody looks."""
    containers = (pod and pod.status and pod.status.containerStatuses) or ()
    ends = (each.state.terminated for each in containers if each.state and each.state.terminated)
    message = next((each.message for each in ends if each.message), "")
    return f": {message[:_REASON_CHARACTERS]}" if message else ""


def _failed(observed: Observed, failure: str) -> Plan:
    """Return the plan for a migration that fails: what remains of the target is removed."""
    return Plan(
        phase=FAILED,
        passed=(FAILED,),
        delete_pod=_removal(observed),
        fail_vmi=_unreported(observed),
        reports=(Report("Warning", "FailedMigration", failure),),
    )


def _finished(observed: Observed) -> Plan:
    """Return the plan for a migration that is over, whose last steps may have been cut short."""
    if observed.migration.status.phase == SUCCEEDED:
        return Plan(phase=SUCCEEDED)
    return Plan(phase=FAILED, delete_pod=_removal(observed), fail_vmi=_unreported(observed))


def _removal(observed: Observed) -> str:
    """Return why the target pod of a failed migration is deleted; "" if it is not.

    It stays where the guest may run in it: where the source has begun, and not reported a failure.
    """
    target, state, vmi = observed.target, observed.state, observed.vmi
    if target is None or is_being_deleted(target) or observed.has_moved:
        return ""
    runs = vmi is not None and not vmi.is_final
    if runs and observed.has_started and state is not None and not state.failed:
        return ""
    key = key_of(target)
    if observed.cancelled and state is None:
        return f"migration canceled and pod {key} is deleted"
    return f"migration failed and pod {key} is deleted"


def _unreported(observed: Observed) -> str:
    """Return the failure to write to the VMI, if no node will: the source has not begun."""
    state, vmi = observed.state, observed.vmi
    if vmi is None or vmi.is_final or state is None or state.completed or state.failed:
        return ""
    if observed.has_started:
        return ""
    return CANCELLED if observed.cancelled else f"{TARGET_DOWN}{_reason(observed.target)}"


# ---------------------------------------------------------------------------- progress


def _progress(observed: Observed) -> list[str]:
    """Return the phases that a migration enters, in order."""
    phase, passed = observed.migration.status.phase, []
    while (entered := _next(observed, phase)) != phase:
        passed.append(entered)
        phase = entered
    return passed


def _next(observed: Observed, phase: str) -> str:
    """Return the phase after a phase, or the same one."""
    target, state = observed.target, observed.state
    entered = {
        "": (PENDING, True),
        PENDING: (SCHEDULING, target is not None),
        SCHEDULING: (SCHEDULED, target is not None and is_running(target)),
        SCHEDULED: (PREPARING, state is not None),
        PREPARING: (READY, state is not None and bool(state.target_node_address)),
        READY: (RUNNING, state is not None and state.start_timestamp is not None),
        RUNNING: (SUCCEEDED, state is not None and state.completed),
    }
    following, holds = entered.get(phase, (phase, False))
    return following if holds else phase


def _may_create(observed: Observed) -> bool:
    """Report whether the target pod is to be created."""
    vmi = observed.vmi
    assert vmi is not None
    return (
        observed.target is None
        and not (observed.taken or observed.blocked or observed.cancelled)
        and observed.source is not None
        and not _is_down(observed.source)
        and bool(node_of(observed.source))
        and vmi.status.phase == "Running"
    )


def _may_hand_off(observed: Observed) -> bool:
    """Report whether the VMI is to be handed to the target, which starts with as many vCPUs.

    vCPUs that are granted come first; none are granted from then on.
    """
    vmi = observed.vmi
    is_new = observed.state is None and not observed.handed_off
    return is_new and vmi is not None and not is_growing(vmi)


def _pending(observed: Observed) -> tuple[float, str]:
    """Return when to look at a pending target pod again, and why to delete it."""
    pod = observed.target
    if pod is None or phase_of(pod) != "Pending" or is_being_deleted(pod):
        return 0.0, ""
    assert pod.metadata is not None
    created = pod.metadata.creationTimestamp or observed.now
    age = max(0.0, (observed.now - created).total_seconds())
    limits = [("pending", _seconds(observed, PENDING_TIMEOUT, PENDING_SECONDS))]
    if _is_unschedulable(pod):
        seconds = _seconds(observed, UNSCHEDULABLE_TIMEOUT, UNSCHEDULABLE_SECONDS)
        limits.insert(0, ("unschedulable", seconds))
    for word, seconds in limits:
        if age >= seconds:
            return 0.0, f"{word} pod {key_of(pod)} timeout period exceeded"
    return min(seconds - age for _, seconds in limits), ""


def _seconds(observed: Observed, annotation: str, default: int) -> int:
    text = observed.migration.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else default


def _is_unschedulable(pod: Pod) -> bool:
    found = pod_condition(pod, "PodScheduled")
    return found is not None and (found.status, found.reason) == ("False", "Unschedulable")


def _unschedulable(observed: Observed, phase: str) -> list[Report]:
    pod, vmi = observed.target, observed.vmi
    if phase not in (PENDING, SCHEDULING) or pod is None or not _is_unschedulable(pod):
        return []
    assert vmi is not None
    text = f"Migration target pod for VMI [{vmi.key}] is currently unschedulable."
    return [Report("Warning", "migrationTargetPodUnschedulable", text)]


def _success(phase: str) -> list[Report]:
    if phase != SUCCEEDED:
        return []
    return [Report("Normal", "SuccessfulMigration", "Source node reported migration succeeded")]


def _is_to_abort(observed: Observed) -> bool:
    """Report whether to request the source to cancel."""
    state = observed.state
    ends = state is None or state.abort_requested or state.completed or observed.has_moved
    return observed.cancelled and observed.has_started and not ends


def _is_orphaned(observed: Observed) -> bool:
    """Report whether the guest has moved and the source, which reports the end, is gone."""
    state, source = observed.state, observed.source
    if state is None or state.completed or not observed.has_moved:
        return False
    is_ready = state.target_node_domain_ready_timestamp is not None
    return is_ready and (source is None or has_ended(source))
