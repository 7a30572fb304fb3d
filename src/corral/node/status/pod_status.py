"""The status of a pod, from its machine's facts, in a kubelet's words.  Pure."""

from collections.abc import Sequence

import msgspec
from lightkube.models.core_v1 import Container, Pod

from corral.api.conditions import set_condition
from corral.api.kinds.core.node_pressure import EVICTED
from corral.api.kinds.core.pod import quality_of_service
from corral.api.kinds.corral.spare_state import PAUSED_AS_SPARE
from corral.api.kinds.vmi.derived import COMPUTE, UNPAUSED
from corral.api.kinds.vmi.fork_state import PENDING
from corral.api.object import Document
from corral.node.state.facts import NEVER_STARTED, OOM_KILLED, Facts, Progress, State, Trouble
from corral.node.state.machine_record import Outcome

_KILLED = 137
"""The exit code of a process that was ended by SIGKILL."""


def pod_phase(facts: Facts) -> str:
    """Return Running from the guest's first instruction until the machine has ended."""
    if facts.ended and facts.outcome is not None:
        return facts.outcome.value
    # A pod that a VMI migrates to runs before the guest is there, as a launcher does in KubeVirt.
    runs = facts.state is State.RUNNING or facts.elsewhere
    return "Running" if runs else "Pending"


def pod_status(facts: Facts, pod: Pod, host_ip: str, now: str) -> Document:
    """Return the status of the pod, without the fields that its node does not own.

    ``now``: the time of changes.
    """
    assert pod.spec is not None
    old: Document = msgspec.to_builtins(pod.status) if pod.status is not None else {}
    phase = pod_phase(facts)
    sidecars = [
        _container(facts, one, "initContainerStatuses", old, now)
        for one in pod.spec.initContainers or ()
    ]
    containers = [
        _container(facts, one, "containerStatuses", old, now) for one in pod.spec.containers
    ]
    status: Document = {
        "phase": phase,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": old.get("startTime") or now,
        "qosClass": old.get("qosClass")
        or quality_of_service({"spec": msgspec.to_builtins(pod.spec)}),
        "conditions": _conditions(
            facts, pod, [*sidecars, *containers], old.get("conditions") or [], now
        ),
        "containerStatuses": containers,
    }
    if facts.evicted and phase == "Failed":
        status |= _evicted(facts, status["conditions"], now)
    if sidecars:
        status["initContainerStatuses"] = sidecars
    if (facts.addresses or phase == "Running") and not _is_awaited(facts):
        # A machine behind QEMU's user network is reached, if at all, where its host is.
        addresses = facts.addresses or (host_ip,)
        status |= {"podIP": addresses[0], "podIPs": [{"ip": one} for one in addresses]}
    return status


def differs(status: Document, pod: Pod) -> bool:
    """Report whether a field of this status differs from the pod's."""
    old: Document = msgspec.to_builtins(pod.status) if pod.status is not None else {}
    return any(
        # Most are equal as they are, which takes a tenth of the time.
        old.get(name) != value and _plain(old.get(name)) != _plain(value)
        for name, value in status.items()
    )


def _plain(value: object) -> object:
    """Drop empty values: an absent field and an empty one are the same."""
    if isinstance(value, dict):
        kept = {name: _plain(one) for name, one in value.items()}
        return {name: one for name, one in kept.items() if one not in (None, "", {})}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _is_awaited(facts: Facts) -> bool:
    """Report whether the pod's addresses are still those of the pod that the guest comes from."""
    migration = facts.migration
    return migration is not None and migration.progress in {Progress.AWAITED, Progress.PREPARED}


def _conditions(
    facts: Facts,
    pod: Pod,
    containers: Sequence[Document],
    old: Sequence[Document],
    now: str,
) -> list[Document]:
    phase = pod_phase(facts)
    over = phase in {"Succeeded", "Failed"}
    unready = " ".join(one["name"] for one in containers if not one["ready"])
    not_ready = "ContainersNotReady", f"containers with unready status: [{unready}]"
    reason, message = ("PodCompleted", "") if over else not_ready if unready else ("", "")
    observed = [
        ("PodReadyToStartContainers", phase == "Running", "", ""),
        ("Initialized", True, "PodCompleted" if over else "", ""),
        ("Ready", *_ready(facts, reason, message)),
        ("ContainersReady", not reason, reason, message),
    ]
    if phase == "Running" and pod.spec is not None and pod.spec.readinessGates:
        observed.append(_unpaused(facts))
    conditions = list(old)
    for name, is_true, why, words in observed:
        value = "True" if is_true else "False"
        conditions = set_condition(conditions, name, value, reason=why, message=words, now=now)
    return conditions


def _ready(facts: Facts, reason: str, message: str) -> tuple[bool, str, str]:
    if not reason and facts.paused:
        gate = f'the status of pod readiness gate "{UNPAUSED}" is not "True", but False'
        return False, "ReadinessGatesNotReady", gate
    if not reason and facts.paused_as_spare:
        return False, PAUSED_AS_SPARE, "the guest is about to have the right time again"
    if not reason and facts.fork is not None and facts.fork.reason == PENDING:
        return False, PENDING, "the guest has the identity of the VMI that it is a copy of"
    return not reason, reason, message


def _unpaused(facts: Facts) -> tuple[str, bool, str, str]:
    """The readiness gate of VMI pods, in KubeVirt's words."""
    if facts.paused:
        return UNPAUSED, False, "Paused", "the virtual machine is paused"
    return UNPAUSED, True, "NotPaused", "the virtual machine is not paused"


def _evicted(facts: Facts, conditions: Sequence[Document], now: str) -> Document:
    """The status of an evicted pod, as a kubelet writes it (eviction_manager.go)."""
    with_target = set_condition(
        conditions,
        "DisruptionTarget",
        "True",
        reason="TerminationByKubelet",
        message=facts.evicted,
        now=now,
    )
    return {"reason": EVICTED, "message": facts.evicted, "conditions": with_target}


def _container(facts: Facts, container: Container, part: str, old: Document, now: str) -> Document:
    phase = pod_phase(facts)
    named = (one for one in old.get(part) or () if one["name"] == container.name)
    previous: Document = next(named, {})
    before: Document = previous.get("state") or {}
    state: Document
    if phase == "Running":
        state = {"running": before.get("running") or {"startedAt": now}}
    elif phase == "Pending":
        state = {"waiting": _waiting(facts.trouble, container)}
    else:
        ended = before.get("terminated") or _terminated(facts, container.name, before, now)
        state = {"terminated": ended}
    return {
        "name": container.name,
        "image": container.image or "",
        "imageID": "",
        "ready": phase == "Running"
        and not (facts.silent or facts.elsewhere)
        and _passes(facts, container, previous),
        "started": phase == "Running",
        "restartCount": 0,
        "state": state,
        **_resources(container),
    }


def _resources(container: Container) -> Document:
    """Return what the container has: what its spec says, as a machine follows that while it runs.

    Kubernetes takes a running container without ``resources`` for one whose node cannot resize
    pods, and refuses ``pods/resize`` (validation.go, isPodResizeRequestSupported).
    """
    has = container.resources
    requests, limits = (has.requests or {}, has.limits or {}) if has is not None else ({}, {})
    resources = {"requests": requests} if requests else {}
    if limits:
        resources["limits"] = limits
    allocated = {"allocatedResources": requests} if requests else {}
    return {**allocated, "resources": resources}


def _passes(facts: Facts, container: Container, previous: Document) -> bool:
    """Return the readiness probe's result; before the first one, that of an earlier manager."""
    if container.readinessProbe is None:
        return True
    return bool(previous.get("ready")) if facts.ready is None else facts.ready


def _waiting(trouble: Trouble | None, container: Container) -> Document:
    """Show trouble with a volume at the volume's container and at ``compute``."""
    if trouble is not None and (
        not trouble.volume or container.name in {COMPUTE, f"volume{trouble.volume}"}
    ):
        return {"reason": trouble.reason, "message": trouble.message}
    return {"reason": "ContainerCreating"}


def _terminated(facts: Facts, name: str, before: Document, now: str) -> Document:
    code, reason = (0, "Completed") if facts.outcome is Outcome.SUCCEEDED else (1, "Error")
    if facts.out_of_memory and name == COMPUTE:
        code, reason = _KILLED, OOM_KILLED
    elif facts.never_ran and name == COMPUTE:
        reason = NEVER_STARTED
    return {
        "exitCode": code,
        "reason": reason,
        "message": facts.message if name == COMPUTE else "",
        "startedAt": (before.get("running") or {}).get("startedAt") or now,
        "finishedAt": now,
    }
