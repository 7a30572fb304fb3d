"""Pod: the place of a machine on its node.

``kubectl get pods`` boils a pod's status down to one word; the rules are those of Kubernetes'
printers, which people know by heart.
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
"""The ServiceAccount of pods that name none; every namespace has it."""
RESTARTS = ("Always", "OnFailure", "Never")
FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations)"
)
"""Why an update is refused."""
NOT_RUN = (
    "corral runs virtual machines, not containers: nothing runs this Pod; "
    "create a VirtualMachineInstance instead"
)
"""The warning that goes with a new pod of containers."""
DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MACHINE = VirtualMachineInstance.kind


def _statuses(document: Document, *kind: str) -> list[dict[str, Any]]:
    return at(document, "status", *kind) or []


def _always(document: Document) -> set[str]:
    """Init containers that keep running beside the others: sidecars."""
    containers = at(document, "spec", "initContainers") or ()
    return {one["name"] for one in containers if one.get("restartPolicy") == "Always"}


def _ended(state: dict[str, Any]) -> str:
    """Why a container ended, in one word."""
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


def _initializing(document: Document) -> str | None:
    """What holds the pod before its containers start, or None when nothing does."""
    sidecars = _always(document)
    total = len(at(document, "spec", "initContainers") or ())
    for index, container in enumerate(_statuses(document, "initContainerStatuses")):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if container["name"] in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_ended(ended)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return None


def _containers_word(document: Document, word: str) -> str:
    running = False
    for container in reversed(_statuses(document, "containerStatuses")):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended is not None:
            word = _ended(ended)
        elif container.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        return "Running" if condition_status(document, "Ready") == "True" else "NotReady"
    return word


def word(document: Document) -> str:
    """The pod's status in one word, as ``kubectl get pods`` prints it."""
    phase = at(document, "status", "phase") or ""
    whole = at(document, "status", "reason") or phase
    for condition in _statuses(document, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            whole = condition["reason"]
    held = _initializing(document)
    if held is not None and condition_status(document, "Initialized") != "True":
        whole = held
    else:
        whole = _containers_word(document, held or whole)
    if at(document, "metadata", "deletionTimestamp"):
        if at(document, "status", "reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    return str(whole)


def ready(document: Document) -> str:
    """Containers that are ready, of all: ``1/2``.  Sidecars count, other init containers do not."""
    sidecars = _always(document)
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
    """How often the pod's containers were started again."""
    sidecars = _always(document)
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
    """What every container has, whether its maker said so or not."""
    container.setdefault("imagePullPolicy", pull_policy(container.get("image") or ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})


def _lasting_container_default(container: dict[str, Any]) -> None:
    container_default(container)
    resources = container["resources"]
    if limits := resources.get("limits"):
        resources["requests"] = limits | (resources.get("requests") or {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def default(document: Document) -> None:
    """What every pod has, whether its maker said so or not."""
    spec = document.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("securityContext", {})
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _lasting_container_default(container)


def quality_of_service(document: Document) -> str:
    """Guaranteed, Burstable or BestEffort, as the containers' requests and limits make it."""
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
    """A new pod waits for its node, and has an account (Kubernetes' admission ServiceAccount).

    Nothing of the account is mounted into it.
    """
    spec = document.setdefault("spec", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT_ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    document["status"] = {"phase": "Pending", "qosClass": quality_of_service(document)}


def container_causes(path: str, container: dict[str, Any], names: set[str]) -> Iterable[Cause]:
    """What is wrong with a container beside those of such names, to which it adds its own."""
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
        asked = at(container, "resources", part) or ()
        yield from unknown_resources(f"{path}.resources.{part}", asked)


def _changeable(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without what an update may change."""
    free = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers")
    fixed = {name: value for name, value in spec.items() if name not in free}
    for part in ("containers", "initContainers"):
        fixed[part] = [
            {name: value for name, value in one.items() if name != "image"}
            for one in spec.get(part) or ()
        ]
    return fixed


def spec_causes(path: str, spec: dict[str, Any]) -> Iterable[Cause]:
    """What is wrong with a pod's spec, be it in a pod or in the template of one."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    for part in ("containers", "initContainers"):
        names: set[str] = set()
        for index, container in enumerate(spec.get(part) or ()):
            yield from container_causes(f"{path}.{part}[{index}]", container, names)
    for name, allowed in (("restartPolicy", RESTARTS), ("dnsPolicy", DNS)):
        if spec.get(name, "") not in allowed:
            yield unsupported(f"{path}.{name}", spec.get(name, ""), allowed)


def validate(document: Document, old: Document | None, _user: str) -> Verdict:
    """What the schema cannot say of pods."""
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):
        return Verdict()  # rules that became stricter must not keep its node from telling of it
    causes = limited(spec_causes("spec", spec))
    seconds = spec.get("terminationGracePeriodSeconds")
    if old is None and (fault := grace_period.fault(seconds)):
        causes.append(invalid("spec.terminationGracePeriodSeconds", seconds, fault))
    if old is not None and _changeable(spec) != _changeable(old.get("spec") or {}):
        causes.append(forbidden("spec", FIXED))
    return Verdict(causes, [] if old is not None or stands_for_machine(document) else [NOT_RUN])


def stands_for_machine(document: Document) -> bool:
    """Whether a pod is a machine's place on its node: no others are run."""
    owners = at(document, "metadata", "ownerReferences") or ()
    return any(one.get("controller") and one.get("kind") == _MACHINE for one in owners)


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
        Column(name="Ready", cell=ready, description="containers that are ready, of all"),
        Column(name="Status", cell=word, description="how the pod is, in one word"),
        Column(
            name="Restarts",
            cell=lambda document: str(restarts(document)),
            description="how often its containers were started again",
        ),
        age(),
        Column(name="IP", cell=_address, priority=1, description="its address"),
        Column(
            name="Node",
            cell=lambda document: at(document, "spec", "nodeName") or NONE,
            priority=1,
            description="where it runs",
        ),
        Column(
            name="Nominated Node",
            cell=lambda document: at(document, "status", "nominatedNodeName") or NONE,
            priority=1,
            description="where others are moved away for it",
        ),
        Column(
            name="Readiness Gates",
            cell=_gates,
            priority=1,
            description="conditions of others that it waits for",
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
    parts=("ephemeralcontainers",),
    default=default,
    default_create=default_create,
    validate=validate,
    default_grace_seconds=_grace_seconds,
)

KINDS = (POD,)
