"""How far a machine is, judged by its pod, and what follows.  Pure.

Phases until Scheduled, the conditions Ready, PodScheduled and part of Synchronized, and the
finalizer belong to this loop; Running and how a machine ended are told by the node that runs it,
with what Ready is from then on.
The rules are KubeVirt's (virt-controller, lifecycle.go).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from lightkube.models.core_v1 import Pod

from corral.api.conditions import remove_condition, set_condition
from corral.api.kinds.vmi.derived import COMPUTE, pod_name
from corral.api.kinds.vmi.vmi import FINAL_PHASES, FINALIZER, UNKNOWN, VirtualMachineInstance
from corral.api.object import Condition, Document, Key
from corral.api.time import rfc3339
from corral.controllers.vmi.launcher_pod import NODE_NAME
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
"""Why a container waits that the machine's condition Synchronized repeats."""
FAILED_CREATE = "FailedCreate"
CLAIM_MISSING = "FailedPvcNotFound"
EVICTED = "EvictionRequested"
_OUR_SYNCHRONIZED = IMAGE_REASONS | {FAILED_CREATE, CLAIM_MISSING}
_UNPLACED = frozenset({"", "Pending"})
_PLACED = frozenset({"Scheduled", "Running", UNKNOWN})
_POD_ENDED = frozenset({"Succeeded", "Failed"})
UNTOLD_SECONDS = 3.0
"""So old its pod becomes, to the second, before a machine is told to be Scheduling where nothing
else is to be said: most are Scheduled by then, and have one write less."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a machine."""

    create_pod: bool = False
    delete_pods: tuple[Pod, ...] = ()
    force: bool = False
    """The machine is over: its pods need no time to end."""
    patch: Document | None = None
    """A merge patch of the machine, valid for the version that was looked at."""

    again_seconds: float = 0.0
    """When there is something to say though nothing happens until then; 0: never."""


def plan(
    vmi: VirtualMachineInstance,
    pods: Sequence[Pod],
    now: datetime,
    claims: Claims = NONE,
    *,
    create_error: str = "",
    shown: bool = False,
) -> Plan:
    """What follows from a machine, the pods that it owns, and the claims that it needs.

    ``create_error`` says why its pod could not be made a moment ago, ``shown`` that the machine,
    which has ended, is not to be gone yet.
    """
    pod = current(vmi, pods)
    begins = pod is None and vmi.status.phase in _UNPLACED and not is_being_deleted(vmi)
    if begins and claims.are_ready and not create_error:
        return Plan(create_pod=True)
    phase = "Failed" if begins and claims.failed else next_phase(vmi, pod)
    if seconds := _untold_seconds(vmi, pod, phase, now, claims):
        return Plan(again_seconds=seconds)
    final = phase in FINAL_PHASES
    doomed: tuple[Pod, ...] = ()
    if is_being_deleted(vmi) and (final or vmi.status.phase not in _PLACED):
        # A pod that is going already has a node that ends it in its own time.
        doomed = tuple(each for each in pods if not is_being_deleted(each))
    return Plan(
        delete_pods=doomed,
        force=final,
        patch=patch(vmi, pod, phase, now, claims, create_error=create_error, shown=shown),
    )


def current(vmi: VirtualMachineInstance, pods: Iterable[Pod]) -> Pod | None:
    """The machine's own pod: others may name it as their owner, and count for nothing."""
    own = Key(vmi.metadata.namespace, pod_name(vmi))
    return next((pod for pod in pods if key_of(pod) == own), None)


def next_phase(vmi: VirtualMachineInstance, pod: Pod | None) -> str:
    """The phase that the pod's state leads to."""
    phase = vmi.status.phase
    if phase in FINAL_PHASES:
        return phase
    if pod is None:
        return "Pending" if phase in _UNPLACED and not is_being_deleted(vmi) else "Failed"
    ended = _pod_phase(pod)
    if phase in _PLACED:
        return ended if ended in _POD_ENDED else phase
    if ended in _POD_ENDED or (is_being_deleted(pod) and not is_being_deleted(vmi)):
        return "Failed"
    return "Scheduled" if is_placed(pod) and not is_being_deleted(pod) else "Scheduling"


def _untold_seconds(
    vmi: VirtualMachineInstance, pod: Pod | None, phase: str, now: datetime, claims: Claims
) -> float:
    """For how long it is not worth a write yet that a machine's pod waits for its node."""
    if (
        pod is None
        or phase != "Scheduling"
        or vmi.status.phase not in _UNPLACED
        or is_being_deleted(vmi)
    ):
        return 0.0
    placing = pod_condition(pod, "PodScheduled")
    if (placing is not None and placing.status == "False") or _image_problem(pod):
        return 0.0
    age = (now - _created(pod, now)).total_seconds()
    # Older than it can be: the clock that stamped it is another one, or was set back.
    if not 0 <= age < UNTOLD_SECONDS:
        return 0.0
    told = conditions(vmi, pod, phase, claims)
    known = {each.type: told[each.type] for each in vmi.status.conditions if each.type in told}
    outdated = merged(vmi.status.conditions, known, now) is not None
    return 0.0 if outdated else UNTOLD_SECONDS - age


def _created(pod: Pod, otherwise: datetime) -> datetime:
    assert pod.metadata is not None
    return pod.metadata.creationTimestamp or otherwise


def is_placed(pod: Pod) -> bool:
    """Whether a node has taken the pod on: the machine's container runs there."""
    if not node_of(pod) or pod.status is None:
        return False
    return any(
        container.name == COMPUTE and container.state is not None and container.state.running
        for container in pod.status.containerStatuses or ()
    )


def node_of(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""


def patch(
    vmi: VirtualMachineInstance,
    pod: Pod | None,
    phase: str,
    now: datetime,
    claims: Claims = NONE,
    *,
    create_error: str = "",
    shown: bool = False,
) -> Document | None:
    """The merge patch that says all this on the machine, or None when all is said already."""
    status: Document = {}
    metadata: Document = {}
    old = vmi.status
    if phase != old.phase:
        status["phase"] = phase
        entered = {phase: now}
        if pod is not None and phase == "Scheduled" and old.phase in _UNPLACED:
            entered = {"Scheduling": _created(pod, now), phase: now}
        status["phaseTransitionTimestamps"] = [
            *msgspec.to_builtins(old.phase_transition_timestamps),
            *(
                {"phase": each, "phaseTransitionTimestamp": rfc3339(moment)}
                for each, moment in entered.items()
            ),
        ]
    told = conditions(vmi, pod, phase, claims, create_error=create_error)
    if (changed := merged(old.conditions, told, now)) is not None:
        status["conditions"] = changed
    if pod is not None and phase in _PLACED:
        status |= _placement(vmi, pod)
        if (claims is not NONE or phase != old.phase) and (told_of := volume_status(vmi, claims)):
            status["volumeStatus"] = told_of
        if vmi.metadata.labels.get(NODE_NAME) != node_of(pod):
            metadata["labels"] = {NODE_NAME: node_of(pod)}
    over = pod is None and phase in FINAL_PHASES and not shown
    if over and FINALIZER in vmi.metadata.finalizers:
        kept = [each for each in vmi.metadata.finalizers if each != FINALIZER]
        metadata["finalizers"] = kept or None
    if not status and not metadata:
        return None
    # The list of conditions is shared with the node: never write over what was not seen.
    metadata["resourceVersion"] = vmi.metadata.resource_version
    return {"metadata": metadata, **({"status": status} if status else {})}


def _placement(vmi: VirtualMachineInstance, pod: Pod) -> Document:
    """Where the machine is; only what is not said already."""
    assert pod.status is not None
    said: Document = {}
    active = {uid_of(pod): node_of(pod)}
    if vmi.status.node_name != node_of(pod):
        said["nodeName"] = node_of(pod)
    if vmi.status.active_pods != active:
        said["activePods"] = {**dict.fromkeys(vmi.status.active_pods), **active}
    if pod.status.qosClass and vmi.status.qos_class != pod.status.qosClass:
        said["qosClass"] = pod.status.qosClass
    return said


def conditions(
    vmi: VirtualMachineInstance,
    pod: Pod | None,
    phase: str,
    claims: Claims = NONE,
    *,
    create_error: str = "",
) -> Mapping[str, Condition | None]:
    """The conditions that this loop tells; None for one that is to be absent."""
    told: dict[str, Condition | None] = {
        "Ready": ready_condition(pod, phase),
        EVICTED: _evicted(vmi),
    }
    if claims is not NONE:
        told |= of_claims(claims)
    missing = missing_claim(vmi, claims) if pod is None and phase in _UNPLACED else ""
    unscheduled = pod_condition(pod, "PodScheduled")
    if unscheduled is not None and unscheduled.status == "False":
        told["PodScheduled"] = condition_of(unscheduled)
    elif missing:
        told["PodScheduled"] = false_condition("PodScheduled", "Unschedulable", missing)
    else:
        told["PodScheduled"] = None
    if create_error:
        told["Synchronized"] = false_condition("Synchronized", FAILED_CREATE, create_error)
    elif missing:
        told["Synchronized"] = false_condition("Synchronized", CLAIM_MISSING, missing)
    elif (image := _image_problem(pod)) is not None:
        told["Synchronized"] = image
    elif any(
        each.type == "Synchronized" and each.reason in _OUR_SYNCHRONIZED
        for each in vmi.status.conditions
    ):
        told["Synchronized"] = None
    return told


def _evicted(vmi: VirtualMachineInstance) -> Condition | None:
    """Whether the machine was asked to leave its node, by an eviction that was refused."""
    if not vmi.status.evacuation_node_name:
        return None
    text = "VMI is marked for eviction"
    return Condition(type=EVICTED, status="True", reason=EVICTED, message=text)


def missing_claim(vmi: VirtualMachineInstance, claims: Claims) -> str:
    """What people are told of a claim that is not there; empty where all are."""
    if not claims.missing:
        return ""
    namespace = vmi.metadata.namespace
    return f"PVC {namespace}/{claims.missing} does not exist, waiting for it to appear"


def merged(
    old: Iterable[Condition], told: Mapping[str, Condition | None], now: datetime
) -> list[Document] | None:
    """The conditions with what is told in its place, or None when nothing changes.

    A condition keeps its transition time for as long as it keeps its status.
    """
    before = msgspec.to_builtins(list(old))
    after = before
    for name, condition in told.items():
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


def _pod_phase(pod: Pod) -> str:
    return (pod.status and pod.status.phase) or ""


def _image_problem(pod: Pod | None) -> Condition | None:
    if pod is None or pod.status is None:
        return None
    statuses = (*(pod.status.initContainerStatuses or ()), *(pod.status.containerStatuses or ()))
    for container in statuses:
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and waiting.reason in IMAGE_REASONS:
            return false_condition("Synchronized", waiting.reason or "", waiting.message or "")
    return None
