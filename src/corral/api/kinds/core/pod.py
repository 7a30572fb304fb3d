"""Pod: names, columns, defaults and validation.

The column Status of ``kubectl get pods`` follows the rules of Kubernetes' printers.
"""

from collections.abc import Iterable
from typing import Any

from lightkube.models.core_v1 import Pod

from corral.api import grace_period
from corral.api.errors import Cause, limited
from corral.api.images import pull_policy
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import (
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    required,
    unsupported,
)
from corral.api.kinds.columns import NONE, age, condition_status, text
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.resource_names import unknown_resources
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.names import label_faults
from corral.api.object import Document
from corral.api.quantity import amount

GRACE_SECONDS = 30
DEFAULT_ACCOUNT = "default"
"""The ServiceAccount of pods that name none; each namespace has it."""
EPHEMERAL_CONTAINERS, RESIZE = "ephemeralcontainers", "resize"
"""Subresources by which parts of the spec are changed."""
RESTART_POLICIES = ("Always", "OnFailure", "Never")
IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations)"
)
"""The message of an update that is refused."""
NOT_RUN = (
    "corral runs virtual machines, not containers: nothing runs this Pod; "
    "create a VirtualMachineInstance instead"
)
"""The warning about a new pod that is no launcher pod."""
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_VMI = VirtualMachineInstance.kind


def _statuses(document: Document, *kind: str) -> list[dict[str, Any]]:
    return at(document, "status", *kind) or []


def _sidecar_names(document: Document) -> set[str]:
    """Return the names of sidecars: init containers that keep running."""
    containers = at(document, "spec", "initContainers") or ()
    return {one["name"] for one in containers if one.get("restartPolicy") == "Always"}


def _termination_reason(state: dict[str, Any]) -> str:
    """Return why a container terminated, in one word."""
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


def _init_status(document: Document) -> str | None:
    """Return the status of a pod whose init containers have not completed, else None."""
    sidecars = _sidecar_names(document)
    total = len(at(document, "spec", "initContainers") or ())
    for index, container in enumerate(_statuses(document, "initContainerStatuses")):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_termination_reason(ended)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return None


def _containers_status(document: Document, word: str) -> str:
    running = False
    for container in reversed(_statuses(document, "containerStatuses")):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended is not None:
            word = _termination_reason(ended)
        elif container.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        return "Running" if condition_status(document, "Ready") == "True" else "NotReady"
    return word


def word(document: Document) -> str:
    """Return the pod's status in one word, as ``kubectl get pods`` prints it."""
    phase = at(document, "status", "phase") or ""
    status = at(document, "status", "reason") or phase
    for condition in _statuses(document, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            status = condition["reason"]
    init_status = _init_status(document)
    if init_status is not None and condition_status(document, "Initialized") != "True":
        status = init_status
    else:
        status = _containers_status(document, init_status or status)
    if at(document, "metadata", "deletionTimestamp"):
        if at(document, "status", "reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(status)


def ready(document: Document) -> str:
    """Return ready and all containers: ``1/2``.  Sidecars count, other init containers do not."""
    sidecars = _sidecar_names(document)
    statuses = [
        one
        for one in _statuses(document, "initContainerStatuses")
        if one["name"] in sidecars and one.get("started")
    ] + [
        one
        for one in _statuses(document, "containerStatuses")
        if "running" in (one.get("state") or {})
    ]
    total = len(at(document, "spec", "containers") or ()) + len(sidecars)
    return f"{sum(1 for one in statuses if one.get('ready'))}/{total}"


def restarts(document: Document) -> int:
    """Return the number of restarts of the pod's containers."""
    sidecars = _sidecar_names(document)
    init = _statuses(document, "initContainerStatuses")
    counted = [one for one in init if one["name"] in sidecars]
    counted += _statuses(document, "containerStatuses")
    return sum(one.get("restartCount") or 0 for one in counted)


def _gates(document: Document) -> str:
    gates = at(document, "spec", "readinessGates") or ()
    open_gates = sum(condition_status(document, gate["conditionType"]) == "True" for gate in gates)
    return f"{open_gates}/{len(gates)}" if gates else NONE


def _address(document: Document) -> str:
    addresses = at(document, "status", "podIPs") or ()
    return addresses[0].get("ip") or NONE if addresses else NONE


def container_default(container: dict[str, Any]) -> None:
    """Default the fields of a container."""
    container.setdefault("imagePullPolicy", pull_policy(container.get("image") or ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})


def _regular_container_default(container: dict[str, Any]) -> None:
    container_default(container)
    resources = container["resources"]
    if limits := resources.get("limits"):
        resources["requests"] = limits | (resources.get("requests") or {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def default(document: Document) -> None:
    """Default the fields of a pod."""
    spec = document.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("securityContext", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _regular_container_default(container)


def quality_of_service(document: Document) -> str:
    """Return the QoS class: Guaranteed, Burstable or BestEffort."""
    containers = [
        one.get("resources") or {}
        for part in ("containers", "initContainers")
        for one in at(document, "spec", part) or ()
    ]
    if not any(one.get(part) for one in containers for part in ("requests", "limits")):
        return "BestEffort"
    for resources in containers:
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit = amount(limits.get(name))
            if not limit or amount(requests.get(name, limits[name])) != limit:
                return "Burstable"
    return "Guaranteed"


def default_create(document: Document) -> None:
    """Set status and ServiceAccount of a new pod (as Kubernetes' admission plugin ServiceAccount).

    No token volume is added.
    """
    spec = document.setdefault("spec", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    document["status"] = {"phase": "Pending", "qosClass": quality_of_service(document)}


def container_causes(path: str, container: dict[str, Any], names: set[str]) -> Iterable[Cause]:
    """Check a container; ``names`` are those of earlier ones, to which its own is added."""
    name = container.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    yield from each_invalid(f"{path}.name", name, label_faults(name) if name else ())
    if name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    for part in ("limits", "requests"):
        resources = at(container, "resources", part) or ()
        yield from unknown_resources(f"{path}.resources.{part}", resources)


def _immutable_part(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec without the fields that an update, or a subresource, may change."""
    mutable = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers")
    rest = {name: value for name, value in spec.items() if name not in mutable}
    for part in ("containers", "initContainers"):
        rest[part] = [
            {name: value for name, value in one.items() if name not in ("image", "resources")}
            for one in spec.get(part) or ()
        ]
    return rest


def spec_causes(path: str, spec: dict[str, Any]) -> Iterable[Cause]:
    """Check the spec of a pod or of a pod template."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    for part in ("containers", "initContainers"):
        names: set[str] = set()
        for index, container in enumerate(spec.get(part) or ()):
            yield from container_causes(f"{path}.{part}[{index}]", container, names)
    for name, allowed in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)):
        if spec.get(name, "") not in allowed:
            yield unsupported(f"{path}.{name}", spec.get(name, ""), allowed)


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """Validate a pod beyond its schema."""
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):
        return Verdict()  # rules that became stricter must not block status updates
    causes = limited(spec_causes("spec", spec))
    seconds = spec.get("terminationGracePeriodSeconds")
    if old is None and (fault := grace_period.fault(seconds)):
        causes.append(invalid("spec.terminationGracePeriodSeconds", seconds, fault))
    if old is not None and _immutable_part(spec) != _immutable_part(old.get("spec") or {}):
        causes.append(forbidden("spec", IMMUTABLE))
    return Verdict(causes, [] if old is not None or is_launcher_pod(document) else [NOT_RUN])


def is_launcher_pod(document: Document) -> bool:
    """Return whether a pod is controlled by a VMI: the node runs no others."""
    owners = at(document, "metadata", "ownerReferences") or ()
    return any(one.get("controller") and one.get("kind") == _VMI for one in owners)


def _grace_seconds(document: Document) -> int:
    seconds = at(document, "spec", "terminationGracePeriodSeconds")
    return GRACE_SECONDS if seconds is None else int(seconds)


POD = kubernetes_kind(
    group="",
    plural="pods",
    short=("po",),
    categories=("all",),
    view=Pod,
    columns=(
        Column(name="Ready", cell=ready, description="ready containers, of all"),
        Column(name="Status", cell=word, description="status in one word"),
        Column(
            name="Restarts",
            cell=lambda document: str(restarts(document)),
            description="restarts of its containers",
        ),
        age(),
        Column(name="IP", cell=_address, priority=1, description="its address"),
        Column(
            name="Node",
            cell=lambda document: at(document, "spec", "nodeName") or NONE,
            priority=1,
            description="the node that it runs on",
        ),
        Column(
            name="Nominated Node",
            cell=lambda document: at(document, "status", "nominatedNodeName") or NONE,
            priority=1,
            description="the node where others are preempted for it",
        ),
        Column(
            name="Readiness Gates",
            cell=_gates,
            priority=1,
            description="true readiness gates, of all",
        ),
    ),
    selectable={
        "spec.nodeName": text("spec", "nodeName"),
        "spec.restartPolicy": text("spec", "restartPolicy"),
        "spec.schedulerName": text("spec", "schedulerName"),
        "spec.serviceAccountName": text("spec", "serviceAccountName"),
        "spec.hostNetwork": lambda document: (
            "true" if at(document, "spec", "hostNetwork") else "false"
        ),
        "status.phase": text("status", "phase"),
        "status.podIP": text("status", "podIP"),
        "status.nominatedNodeName": text("status", "nominatedNodeName"),
    },
    parts=(EPHEMERAL_CONTAINERS, RESIZE),
    default=default,
    default_create=default_create,
    validate=validate,
    default_grace_seconds=_grace_seconds,
)

KINDS = (POD,)
