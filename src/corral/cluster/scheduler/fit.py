"""Which nodes can take a pod, and which of them takes it best.  Pure.

The reasons are kube-scheduler's, word for word: they end up in events and conditions that people
search for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lightkube.models.core_v1 import (
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)

from corral.api.kinds.core import pod_resources
from corral.api.kinds.core.node_pressure import pressure_taints
from corral.api.kinds.kubevirt.installation import RATIO_FIELD
from corral.api.quantity import NANO, parse
from corral.reconcile.objects import key_of, labels_of

PODS = "pods"
NO_CPU = "Insufficient cpu"
_WHERE, _, _WHAT = RATIO_FIELD.rpartition(".")
DENSER = (
    f"A machine without a cpu request asks for 1/{_WHAT} of a processor for each virtual one: "
    f"machines made after it is raised, in the KubeVirt object ({_WHERE}) or by "
    "corral up --cpu-allocation-ratio, ask for less."
)
"""The way out for machines that find no processor: their request was written by nobody."""
_PERCENT = 100.0


@dataclass(slots=True)
class Room:
    """A node, and what the pods on it have asked for: billionths of each resource."""

    node: Node
    used: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return key_of(self.node).name


@dataclass(frozen=True, slots=True)
class Verdict:
    """The node that a pod goes to; without one, why not, in kube-scheduler's words."""

    node: str = ""
    message: str = ""


def choose(
    pod: Pod, rooms: Sequence[Room], fault_of: Callable[[Node], str] = lambda _: ""
) -> Verdict:
    """The node that suits the pod best.

    ``fault_of`` says why a node that suits otherwise does not do: what its volumes ask.
    """
    if not rooms:
        return Verdict(message="no nodes available to schedule pods")
    asked = requests(pod)
    reasons: Counter[str] = Counter()
    fitting = []
    for room in rooms:
        against = faults(pod, room, asked)
        if not against and (fault := fault_of(room.node)):
            against = [fault]
        reasons.update(against)
        if not against:
            fitting.append(room)
    if fitting:
        best = max(fitting, key=lambda room: (score(pod, room, asked), room.name))
        return Verdict(node=best.name)
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    way_out = f" {DENSER}" if reasons[NO_CPU] and _is_machine(pod) else ""
    return Verdict(message=f"0/{len(rooms)} nodes are available: {told}.{way_out}")


def nowhere(fault: str, rooms: Sequence[Room]) -> Verdict:
    """No node will do, whichever it is."""
    none = f"0/{len(rooms)} nodes are available"
    helpless = f"{len(rooms)} Preemption is not helpful for scheduling"
    return Verdict(message=f"{none}: {fault}. preemption: {none}: {helpless}.")


def requests(pod: Pod) -> Counter[str]:
    """What a pod asks of its node, its place among the pods included."""
    asked: Counter[str] = Counter({PODS: NANO})
    if pod.spec is not None:
        asked.update({name: one.nanos for name, one in pod_resources.requests(pod.spec).items()})
    return asked


def faults(pod: Pod, room: Room, asked: Mapping[str, int]) -> list[str]:
    """Why a node cannot take a pod; the first kind of reason hides the others."""
    node = room.node
    if node.spec is not None and node.spec.unschedulable:
        return ["node(s) were unschedulable"]
    if not is_ready(node):
        return ["node(s) were not ready"]
    for taint in (*((node.spec and node.spec.taints) or ()), *pressure_taints(node)):
        if taint.effect != "PreferNoSchedule" and not tolerates(pod, taint):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}"]
    if not suits(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = (node.status and node.status.allocatable) or {}
    short = []
    for resource, amount in asked.items():
        if amount and room.used[resource] + amount > _nanos(allocatable.get(resource, 0)):
            short.append("Too many pods" if resource == PODS else f"Insufficient {resource}")
    return short


def score(pod: Pod, room: Room, asked: Mapping[str, int]) -> float:
    """How well a node suits: what it likes, what it bears, and how much of it stays free."""
    allocatable = (room.node.status and room.node.status.allocatable) or {}
    free = []
    for resource in ("cpu", "memory", PODS):
        whole = _nanos(allocatable.get(resource, 0))
        if whole:
            free.append(1 - (room.used[resource] + asked.get(resource, 0)) / whole)
    unwanted = sum(
        taint.effect == "PreferNoSchedule" and not tolerates(pod, taint)
        for taint in (room.node.spec and room.node.spec.taints) or ()
    )
    least_used = _PERCENT * sum(free) / len(free) if free else 0.0
    return least_used + _preference(pod, room.node) - _PERCENT * unwanted


def is_ready(node: Node) -> bool:
    conditions = (node.status and node.status.conditions) or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def tolerates(pod: Pod, taint: Taint) -> bool:
    """Whether one of the pod's tolerations bears the taint (core/v1 Toleration)."""
    return any(_bears(each, taint) for each in (pod.spec and pod.spec.tolerations) or ())


def suits(pod: Pod, node: Node) -> bool:
    """Whether nodeSelector and the required node affinity are met."""
    if pod.spec is None:
        return True
    labels = labels_of(node)
    selector = pod.spec.nodeSelector or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.nodeAffinity
    required = affinity and affinity.requiredDuringSchedulingIgnoredDuringExecution
    if not required:
        return True
    return meets_any(node, required.nodeSelectorTerms)


def meets_any(node: Node, terms: Iterable[NodeSelectorTerm]) -> bool:
    """Whether a node has what one of the terms asks."""
    return any(_meets(node, term) for term in terms)


def _is_machine(pod: Pod) -> bool:
    return labels_of(pod).get("kubevirt.io") == "virt-launcher"


def _preference(pod: Pod, node: Node) -> float:
    affinity = pod.spec and pod.spec.affinity and pod.spec.affinity.nodeAffinity
    terms = (affinity and affinity.preferredDuringSchedulingIgnoredDuringExecution) or ()
    return float(sum(term.weight for term in terms if _meets(node, term.preference)))


def _meets(node: Node, term: NodeSelectorTerm) -> bool:
    expressions, fields = term.matchExpressions or (), term.matchFields or ()
    if not expressions and not fields:
        return False
    labels, own_fields = labels_of(node), {"metadata.name": key_of(node).name}
    return all(_holds(each, labels) for each in expressions) and all(
        _holds(each, own_fields) for each in fields
    )


def _holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or []
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, values)
        case _:
            return False


def _compares(operator: str, value: str | None, bounds: Sequence[str]) -> bool:
    try:
        number, bound = int(value or ""), int(bounds[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound


def _bears(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")


def add_all(total: Counter[str], amounts: Iterable[tuple[str, int]], sign: int) -> None:
    """Add (1) or take away (-1) the amounts."""
    for resource, amount in amounts:
        total[resource] += sign * amount


@lru_cache(maxsize=4096)
def _nanos(quantity: str | float) -> int:
    try:
        return parse(quantity).nanos
    except ValueError:
        return 0
