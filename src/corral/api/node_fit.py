"""Filters and scores nodes for a pod.  Pure.

The scheduler and the descheduler share it.  The reasons are kube-scheduler's, word for word: users
search for them in events and conditions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lightkube.models.core_v1 import (
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    Pod,
    Taint,
)

from corral.api.kinds.core import node_taints, pod_resources
from corral.api.kinds.core.node_pressure import pressure_taints
from corral.api.kinds.core.node_taints import PREFER_NO_SCHEDULE
from corral.api.kinds.kubevirt.installation import RATIO_FIELD
from corral.api.quantity import NANO, parse

PODS = "pods"
NO_CPU = "Insufficient cpu"
_PATH, _, _FIELD = RATIO_FIELD.rpartition(".")
RATIO_HINT = (
    f"A VMI without a cpu request requests 1/{_FIELD} of a CPU for each vCPU: VMIs created after "
    f"the ratio is raised, in the KubeVirt object ({_PATH}) or by corral up "
    "--cpu-allocation-ratio, request less."
)
"""Hint for VMIs that do not fit for lack of CPU: they did not choose their request themselves."""
_PERCENT = 100.0


@dataclass(slots=True)
class NodeInfo:
    """A node, and the sum of the requests of its pods in billionths of each resource."""

    node: Node
    used: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return _name(self.node)


@dataclass(frozen=True, slots=True)
class Placement:
    """The selected node; without one, kube-scheduler's message."""

    node: str = ""
    message: str = ""


def choose(
    pod: Pod, infos: Sequence[NodeInfo], volume_reason: Callable[[Node], str] = lambda _: ""
) -> Placement:
    """Select the best node for a pod.

    ``volume_reason`` returns why a node that fits otherwise does not, for the pod's volumes.
    """
    if not infos:
        return Placement(message="no nodes available to schedule pods")
    requested = requests(pod)
    reasons: Counter[str] = Counter()
    fitting = []
    for info in infos:
        unfit = unfit_reasons(pod, info, requested)
        if not unfit and (reason := volume_reason(info.node)):
            unfit = [reason]
        reasons.update(unfit)
        if not unfit:
            fitting.append(info)
    if fitting:
        best = max(fitting, key=lambda info: (score(pod, info, requested), info.name))
        return Placement(node=best.name)
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    hint = f" {RATIO_HINT}" if reasons[NO_CPU] and _is_launcher(pod) else ""
    return Placement(message=f"0/{len(infos)} nodes are available: {summary}.{hint}")


def no_node(reason: str, infos: Sequence[NodeInfo]) -> Placement:
    """Return the result where no node can fit, whichever it is."""
    none = f"0/{len(infos)} nodes are available"
    unhelpful = f"{len(infos)} Preemption is not helpful for scheduling"
    return Placement(message=f"{none}: {reason}. preemption: {none}: {unhelpful}.")


def requests(pod: Pod) -> Counter[str]:
    """Return the requests of a pod, and its slot among the node's pods."""
    requested: Counter[str] = Counter({PODS: NANO})
    if pod.spec is not None:
        requested.update(
            {name: one.nanos for name, one in pod_resources.requests(pod.spec).items()}
        )
    return requested


def unfit_reasons(pod: Pod, info: NodeInfo, requested: Mapping[str, int]) -> list[str]:
    """Return why a node does not fit; the first kind of reason hides the others."""
    node = info.node
    if node.spec is not None and node.spec.unschedulable:
        return ["node(s) were unschedulable"]
    if not is_ready(node):
        return ["node(s) were not ready"]
    if taint := untolerated(pod, (*taints_of(node), *pressure_taints(node))):
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value or ''}}}"]
    if not matches_affinity(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    short = []
    for resource, amount in requested.items():
        if amount and info.used[resource] + amount > allocatable(node, resource):
            short.append("Too many pods" if resource == PODS else f"Insufficient {resource}")
    return short


def score(pod: Pod, info: NodeInfo, requested: Mapping[str, int]) -> float:
    """Return the score of a node: preferences, tolerated taints, free resources."""
    free = []
    for resource in ("cpu", "memory", PODS):
        total = allocatable(info.node, resource)
        if total:
            free.append(1 - (info.used[resource] + requested.get(resource, 0)) / total)
    avoided = sum(
        taint.effect == PREFER_NO_SCHEDULE and not tolerates(pod, taint)
        for taint in taints_of(info.node)
    )
    least_used = _PERCENT * sum(free) / len(free) if free else 0.0
    return least_used + preference(pod, info.node) - _PERCENT * avoided


def allocatable(node: Node, resource: str) -> int:
    """Return what a node has of a resource for its pods, in billionths."""
    amounts = (node.status and node.status.allocatable) or {}
    return _nanos(amounts.get(resource, 0))


def is_ready(node: Node) -> bool:
    conditions = (node.status and node.status.conditions) or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


def taints_of(node: Node) -> Sequence[Taint]:
    return (node.spec and node.spec.taints) or ()


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps a pod off a node; None if there is none."""
    return next(
        (each for each in taints if each.effect != PREFER_NO_SCHEDULE and not tolerates(pod, each)),
        None,
    )


def tolerates(pod: Pod, taint: Taint) -> bool:
    """Report whether one of the pod's tolerations tolerates the taint."""
    return any(
        node_taints.tolerates(each, taint) for each in (pod.spec and pod.spec.tolerations) or ()
    )


def matches_affinity(pod: Pod, node: Node) -> bool:
    """Report whether nodeSelector and required node affinity match."""
    if pod.spec is None:
        return True
    labels = _labels(node)
    selector = pod.spec.nodeSelector or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.nodeAffinity
    required = affinity and affinity.requiredDuringSchedulingIgnoredDuringExecution
    if not required:
        return True
    return any(_matches(node, term) for term in required.nodeSelectorTerms)


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """Report whether a volume can be used on a node."""
    affinity = volume.spec and volume.spec.nodeAffinity
    if not affinity or affinity.required is None:
        return True
    return any(_matches(node, term) for term in affinity.required.nodeSelectorTerms)


def _is_launcher(pod: Pod) -> bool:
    return _labels(pod).get("kubevirt.io") == "virt-launcher"


def preference(pod: Pod, node: Node) -> float:
    """Return the sum of the weights of preferred node affinity that a node matches."""
    affinity = pod.spec and pod.spec.affinity and pod.spec.affinity.nodeAffinity
    terms = (affinity and affinity.preferredDuringSchedulingIgnoredDuringExecution) or ()
    return float(sum(term.weight for term in terms if _matches(node, term.preference)))


def _matches(node: Node, term: NodeSelectorTerm) -> bool:
    expressions, fields = term.matchExpressions or (), term.matchFields or ()
    if not expressions and not fields:
        return False
    labels, own_fields = _labels(node), {"metadata.name": _name(node)}
    return all(_matches_requirement(each, labels) for each in expressions) and all(
        _matches_requirement(each, own_fields) for each in fields
    )


def _matches_requirement(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
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


def add_all(total: Counter[str], amounts: Iterable[tuple[str, int]], sign: int) -> None:
    """Add (1) or subtract (-1) the amounts."""
    for resource, amount in amounts:
        total[resource] += sign * amount


@lru_cache(maxsize=4096)
def _nanos(quantity: str | float) -> int:
    try:
        return parse(quantity).nanos
    except ValueError:
        return 0


def _name(node: Node) -> str:
    return (node.metadata and node.metadata.name) or ""


def _labels(view: Node | Pod) -> Mapping[str, str]:
    return (view.metadata and view.metadata.labels) or {}
