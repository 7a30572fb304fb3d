"""Phase, conditions and pod of a VMI, derived from its pod and claims. Pure.

This controller owns the phases up to Scheduled, the conditions Ready (until Running), PodScheduled
and part of Synchronized, and the finalizer; the node writes Running, the final phase, and Ready
from then on. The rules are KubeVirt's (virt-controller, lifecycle.go).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.conditions import remove_condition, set_condition
from corral.api.kinds.vmi.derived import COMPUTE, NODE_LABEL, current_pod_name
from corral.api.kinds.vmi.vmi import FINAL_PHASES, FINALIZER, UNKNOWN, VirtualMachineInstance
from corral.api.object import Condition, Document, Key
from corral.api.time import rfc3339
from corral.controllers.vmi.required_claims import (
    NONE,
    Claims,
    conditions as of_claims,
    volume_status,
)
from corral.reconcile.objects import is_being_deleted, key_of, uid_of
from corral.reconcile.readiness import (
    condition_of,
    false_condition,
    pod_condition,
    ready_condition,
)

IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}
)
"""Waiting reasons of a container that the condition Synchronized repeats."""
FAILED_CREATE = "FailedCreate"
CLAIM_MISSING = "FailedPvcNotFound"
EVICTED = "EvictionRequested"
_OUR_SYNCHRONIZED = IMAGE_REASONS | {FAILED_CREATE, CLAIM_MISSING}
_UNSCHEDULED = frozenset({"", "Pending"})
_SCHEDULED = frozenset({"Scheduled", "Running", UNKNOWN})
_POD_ENDED = frozenset({"Succeeded", "Failed"})
QUIET_SECONDS = 10.0
"""Age of a pod, to the second, until which the phase Scheduling is not written if nothing else
changes: most VMIs are Scheduled by then, also when a thousand are created at once, which saves a
write each.  Faults are written at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions on a VMI."""

    create_pod: bool = False
    delete_pods: tuple[Pod, ...] = ()
    force: bool = False
    """The VMI is finished: its pods are deleted without a grace period."""
    patch: Document | None = None
    """A merge patch of the VMI, guarded by the resource version."""

    requeue_seconds: float = 0.0
    """Seconds until another sync although nothing changes until then; 0: none."""


def plan(
    vmi: VirtualMachineInstance,
    pods: Sequence[Pod],
    now: datetime,
    claims: Claims = NONE,
    *,
    create_error: str = "",
    keep_visible: bool = False,
    label_early: bool = False,
) -> Plan:
    """Return the plan for a VMI, its pods, and the claims that it needs.

    ``create_error`` is the error of the last creation of its pod; ``keep_visible`` keeps the
    finalizer of a finished VMI for now; ``label_early`` labels the VMI with its node as soon as the
    pod is bound: nodes of other hosts find their VMIs by that label.
    """
    pod = current(vmi, pods)
    begins = pod is None and vmi.status.phase in _UNSCHEDULED and not is_being_deleted(vmi)
    if begins and claims.are_ready and not create_error:
        return Plan(create_pod=True)
    phase = "Failed" if begins and claims.failed else next_phase(vmi, pod)
    unlabelled = pod is not None and node_of(pod) != vmi.metadata.labels.get(NODE_LABEL)
    quiet = 0.0 if label_early and unlabelled else _quiet_seconds(vmi, pod, phase, now, claims)
    if quiet:
        return Plan(requeue_seconds=quiet)
    final = phase in FINAL_PHASES
    to_delete: tuple[Pod, ...] = ()
    if is_being_deleted(vmi) and (final or vmi.status.phase not in _SCHEDULED):
        # The node ends pods that are being deleted already, with their grace period.
        to_delete = tuple(each for each in pods if not is_being_deleted(each))
    return Plan(
        delete_pods=to_delete,
        force=final,
        patch=patch(
            vmi,
            pod,
            phase,
            now,
            claims,
            target=target(vmi, pods),
            create_error=create_error,
            keep_visible=keep_visible,
            label_early=label_early,
        ),
    )


def current(vmi: VirtualMachineInstance, pods: Iterable[Pod]) -> Pod | None:
    """Return the pod that runs the VMI: others may name it as their owner, and do not count."""
    own = Key(vmi.metadata.namespace, current_pod_name(vmi))
    return next((pod for pod in pods if key_of(pod) == own), None)


def target(vmi: VirtualMachineInstance, pods: Iterable[Pod]) -> Pod | None:
    """Return the pod to which the VMI migrates, once it is bound; None if it does not migrate."""
    state = vmi.status.migration_state
    if state is None or state.completed or vmi.status.node_name != state.source_node:
        return None
    return next(
        (
            pod
            for pod in pods
            if key_of(pod) == Key(vmi.metadata.namespace, state.target_pod)
            and node_of(pod)
            and not has_ended(pod)
        ),
        None,
    )


def next_phase(vmi: VirtualMachineInstance, pod: Pod | None) -> str:
    """Return the phase that follows from the pod's state."""
    phase = vmi.status.phase
    if phase in FINAL_PHASES:
        return phase
    if pod is None:
        return "Pending" if phase in _UNSCHEDULED and not is_being_deleted(vmi) else "Failed"
    ended = phase_of(pod)
    if phase in _SCHEDULED:
        return ended if ended in _POD_ENDED else phase
    if ended in _POD_ENDED or (is_being_deleted(pod) and not is_being_deleted(vmi)):
        return "Failed"
    return "Scheduled" if is_running(pod) and not is_being_deleted(pod) else "Scheduling"


def _quiet_seconds(
    vmi: VirtualMachineInstance, pod: Pod | None, phase: str, now: datetime, claims: Claims
) -> float:
    """Return how long to delay the status Scheduling; 0 for no delay."""
    if (
        pod is None
        or phase != "Scheduling"
        or vmi.status.phase not in _UNSCHEDULED
        or is_being_deleted(vmi)
    ):
        return 0.0
    scheduled = pod_condition(pod, "PodScheduled")
    if (scheduled is not None and scheduled.status == "False") or _image_problem(pod):
        return 0.0
    age = (now - _created(pod, now)).total_seconds()
    # A negative or great age: another clock stamped it, or the clock was set back.
    if not 0 <= age < QUIET_SECONDS:
        return 0.0
    desired = conditions(vmi, pod, phase, claims)
    present = {
        each.type: desired[each.type] for each in vmi.status.conditions if each.type in desired
    }
    outdated = merged(vmi.status.conditions, present, now) is not None
    return 0.0 if outdated else QUIET_SECONDS - age


def _created(pod: Pod, otherwise: datetime) -> datetime:
    assert pod.metadata is not None
    return pod.metadata.creationTimestamp or otherwise


def is_running(pod: Pod) -> bool:
    """Report whether a node runs the compute container of the pod."""
    if not node_of(pod) or pod.status is None:
        return False
    return any(
        container.name == COMPUTE and container.state is not None and container.state.running
        for container in pod.status.containerStatuses or ()
    )


def has_ended(pod: Pod) -> bool:
    """Report whether the pod is in a final phase."""
    return phase_of(pod) in _POD_ENDED


def phase_of(pod: Pod) -> str:
    return (pod.status and pod.status.phase) or ""


def node_of(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""


def patch(
    vmi: VirtualMachineInstance,
    pod: Pod | None,
    phase: str,
    now: datetime,
    claims: Claims = NONE,
    *,
    target: Pod | None = None,
    create_error: str = "",
    keep_visible: bool = False,
    label_early: bool = False,
) -> Document | None:
    """Return the merge patch of metadata and status; None if nothing changes.

    ``target``: the pod to which the VMI migrates; ``label_early``: label the VMI with its node as
    soon as the pod is bound.
    """
    status: Document = {}
    metadata: Document = {}
    old = vmi.status
    if phase != old.phase:
        status["phase"] = phase
        entered = {phase: now}
        if pod is not None and phase == "Scheduled" and old.phase in _UNSCHEDULED:
            entered = {"Scheduling": _created(pod, now), phase: now}
        status["phaseTransitionTimestamps"] = [
            *msgspec.to_builtins(old.phase_transition_timestamps),
            *(
                {"phase": each, "phaseTransitionTimestamp": rfc3339(moment)}
                for each, moment in entered.items()
            ),
        ]
    desired = conditions(vmi, pod, phase, claims, create_error=create_error)
    if (changed := merged(old.conditions, desired, now)) is not None:
        status["conditions"] = changed
    if pod is not None and phase in _SCHEDULED:
        status |= _placement(vmi, pod, target)
        if (claims is not NONE or phase != old.phase) and (volumes := volume_status(vmi, claims)):
            status["volumeStatus"] = volumes
    labelled = pod is not None and (phase in _SCHEDULED or label_early) and node_of(pod)
    if labelled and vmi.metadata.labels.get(NODE_LABEL) != labelled:
        metadata["labels"] = {NODE_LABEL: labelled}
    finished = pod is None and phase in FINAL_PHASES and not keep_visible
    if finished and FINALIZER in vmi.metadata.finalizers:
        kept = [each for each in vmi.metadata.finalizers if each != FINALIZER]
        metadata["finalizers"] = kept or None
    if not status and not metadata:
        return None
    # The node writes conditions, too: the resource version keeps us from overwriting them.
    metadata["resourceVersion"] = vmi.metadata.resource_version
    return {"metadata": metadata, **({"status": status} if status else {})}


def _placement(vmi: VirtualMachineInstance, pod: Pod, target: Pod | None) -> Document:
    """Return the changed status fields about node and pods."""
    assert pod.status is not None
    changed: Document = {}
    active = {uid_of(each): node_of(each) for each in (pod, target) if each is not None}
    leaves = vmi.status.evacuation_node_name
    if leaves and vmi.status.node_name and leaves != vmi.status.node_name:
        changed["evacuationNodeName"] = None  # it has left
    if vmi.status.node_name != node_of(pod):
        changed["nodeName"] = node_of(pod)
    if vmi.status.active_pods != active:
        changed["activePods"] = {**dict.fromkeys(vmi.status.active_pods), **active}
    if pod.status.qosClass and vmi.status.qos_class != pod.status.qosClass:
        changed["qosClass"] = pod.status.qosClass
    return changed


def conditions(
    vmi: VirtualMachineInstance,
    pod: Pod | None,
    phase: str,
    claims: Claims = NONE,
    *,
    create_error: str = "",
) -> Mapping[str, Condition | None]:
    """Return the conditions that this controller owns; None for one to remove."""
    desired: dict[str, Condition | None] = {
        "Ready": ready_condition(pod, phase),
        EVICTED: _evicted(vmi),
    }
    if claims is not NONE:
        desired |= of_claims(claims)
    missing = missing_claim(vmi, claims) if pod is None and phase in _UNSCHEDULED else ""
    unscheduled = pod_condition(pod, "PodScheduled")
    if unscheduled is not None and unscheduled.status == "False":
        desired["PodScheduled"] = condition_of(unscheduled)
    elif missing:
        desired["PodScheduled"] = false_condition("PodScheduled", "Unschedulable", missing)
    else:
        desired["PodScheduled"] = None
    if create_error:
        desired["Synchronized"] = false_condition("Synchronized", FAILED_CREATE, create_error)
    elif missing:
        desired["Synchronized"] = false_condition("Synchronized", CLAIM_MISSING, missing)
    elif (image := _image_problem(pod)) is not None:
        desired["Synchronized"] = image
    elif any(
        each.type == "Synchronized" and each.reason in _OUR_SYNCHRONIZED
        for each in vmi.status.conditions
    ):
        desired["Synchronized"] = None
    return desired


def _evicted(vmi: VirtualMachineInstance) -> Condition | None:
    """Return the condition of a VMI that a refused eviction marked for evacuation."""
    if not vmi.status.evacuation_node_name:
        return None
    text = "VMI is marked for eviction"
    return Condition(type=EVICTED, status="True", reason=EVICTED, message=text)


def missing_claim(vmi: VirtualMachineInstance, claims: Claims) -> str:
    """Return the message about a missing claim; empty if there is none."""
    if not claims.missing:
        return ""
    namespace = vmi.metadata.namespace
    return f"PVC {namespace}/{claims.missing} does not exist, waiting for it to appear"


def merged(
    old: Iterable[Condition], desired: Mapping[str, Condition | None], now: datetime
) -> list[Document] | None:
    """Return the merged conditions, or None when nothing changes.

    A condition keeps its transition time for as long as it keeps its status.
    """
    before = msgspec.to_builtins(list(old))
    after = before
    for name, condition in desired.items():
        if condition is None:
            after = remove_condition(after, name)
        else:
            after = set_condition(
                after,
                name,
                condition.status,
                reason=condition.reason,
                message=condition.message,
                now=rfc3339(now),
            )
    return None if after == before else after


def _image_problem(pod: Pod | None) -> Condition | None:
    if pod is None or pod.status is None:
        return None
    statuses = (*(pod.status.initContainerStatuses or ()), *(pod.status.containerStatuses or ()))
    for container in statuses:
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and waiting.reason in IMAGE_REASONS:
            return false_condition("Synchronized", waiting.reason or "", waiting.message or "")
    return None
