"""A machine's facts as its pod shows them, in a kubelet's words.  Pure."""

from collections.abc import Sequence

import msgspec
from lightkube.models.core_v1 import Container, Pod

from corral.api.conditions import set_condition
from corral.api.kinds.core.node_pressure import EVICTED
from corral.api.kinds.core.pod import quality_of_service
from corral.api.kinds.vmi.derived import COMPUTE, UNPAUSED
from corral.api.object import Document
from corral.node.state.facts import OOM_KILLED, Facts, State, Trouble
from corral.node.state.machine_record import Outcome

_KILLED = 137
"""The exit code of what SIGKILL has ended."""


def pod_phase(facts: Facts) -> str:
    """Running from the guest's first instruction until nothing of it runs any more."""
    if facts.ended and facts.outcome is not None:
        return facts.outcome.value
    return "Running" if facts.state is State.RUNNING else "Pending"


def pod_status(facts: Facts, pod: Pod, host_ip: str, now: str) -> Document:
    """What the pod's status should be, less what is none of its node's business.

    ``now`` is the time of what changes.
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
    if facts.addresses or phase == "Running":
        # A machine behind QEMU's user network is reached, if at all, where its host is.
        addresses = facts.addresses or (host_ip,)
        status |= {"podIP": addresses[0], "podIPs": [{"ip": one} for one in addresses]}
    return status


def differs(status: Document, pod: Pod) -> bool:
    """Whether any of this is not what the pod says already."""
    old: Document = msgspec.to_builtins(pod.status) if pod.status is not None else {}
    return any(_plain(old.get(name)) != _plain(value) for name, value in status.items())


def _plain(value: object) -> object:
    """Without what is empty: an absent field and an empty one are the same."""
    if isinstance(value, dict):
        kept = {name: _plain(one) for name, one in value.items()}
        return {name: one for name, one in kept.items() if one not in (None, "", {})}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


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
    wanted = [
        ("PodReadyToStartContainers", phase == "Running", "", ""),
        ("Initialized", True, "PodCompleted" if over else "", ""),
        ("Ready", *_ready(facts, reason, message)),
        ("ContainersReady", not reason, reason, message),
    ]
    if phase == "Running" and pod.spec is not None and pod.spec.readinessGates:
        wanted.append(_unpaused(facts))
    conditions = list(old)
    for name, holds, why, words in wanted:
        value = "True" if holds else "False"
        conditions = set_condition(conditions, name, value, reason=why, message=words, now=now)
    return conditions


def _ready(facts: Facts, reason: str, message: str) -> tuple[bool, str, str]:
    if not reason and facts.paused:
        gate = f'the status of pod readiness gate "{UNPAUSED}" is not "True", but False'
        return False, "ReadinessGatesNotReady", gate
    return not reason, reason, message


def _unpaused(facts: Facts) -> tuple[str, bool, str, str]:
    """The readiness gate of machines' pods, in KubeVirt's words."""
    if facts.paused:
        return UNPAUSED, False, "Paused", "the virtual machine is paused"
    return UNPAUSED, True, "NotPaused", "the virtual machine is not paused"


def _evicted(facts: Facts, conditions: Sequence[Document], now: str) -> Document:
    """What a kubelet says of a pod that it has evicted (eviction_manager.go)."""
    told = set_condition(
        conditions,
        "DisruptionTarget",
        "True",
        reason="TerminationByKubelet",
        message=facts.evicted,
        now=now,
    )
    return {"reason": EVICTED, "message": facts.evicted, "conditions": told}


def _container(facts: Facts, container: Container, part: str, old: Document, now: str) -> Document:
    phase = pod_phase(facts)
    named = (one for one in old.get(part) or () if one["name"] == container.name)
    known: Document = next(named, {})
    before: Document = known.get("state") or {}
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
        "ready": phase == "Running" and not facts.silent and _passes(facts, container, known),
        "started": phase == "Running",
        "restartCount": 0,
        "state": state,
    }


def _passes(facts: Facts, container: Container, known: Document) -> bool:
    """What its probe says; what it said to an earlier manager, until it has said something."""
    if container.readinessProbe is None:
        return True
    return bool(known.get("ready")) if facts.ready is None else facts.ready


def _waiting(trouble: Trouble | None, container: Container) -> Document:
    """Trouble with a volume is shown at the container that stands for it, and at ``compute``."""
    if trouble is not None and (
        not trouble.volume or container.name in {COMPUTE, f"volume{trouble.volume}"}
    ):
        return {"reason": trouble.reason, "message": trouble.message}
    return {"reason": "ContainerCreating"}


def _terminated(facts: Facts, name: str, before: Document, now: str) -> Document:
    code, reason = (0, "Completed") if facts.outcome is Outcome.SUCCEEDED else (1, "Error")
    if facts.out_of_memory and name == COMPUTE:
        code, reason = _KILLED, OOM_KILLED
    return {
        "exitCode": code,
        "reason": reason,
        "message": facts.message if name == COMPUTE else "",
        "startedAt": (before.get("running") or {}).get("startedAt") or now,
        "finishedAt": now,
    }
