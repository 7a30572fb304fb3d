"""RemovePodsViolatingTopologySpreadConstraint: domains with too many of a constraint's pods.

Pods go from the fullest domain, one at a time, until no two domains differ by more than
``maxSkew``.  All pods that a constraint selects count, also those that must not be evicted.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import suppress
from typing import Final

import msgspec
from lightkube.models.core_v1 import Pod, TopologySpreadConstraint

from corral.api import node_fit
from corral.api.errors import BadRequest
from corral.api.selectors import LabelSelector, Requirement, label_selector
from corral.cluster.descheduler.arguments import TopologySpreadArgs
from corral.cluster.descheduler.default_evictor import priority_of
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.snapshot import PodInfo
from corral.reconcile.objects import labels_of

_IGNORE: Final = "Ignore"
_HONOR: Final = "Honor"
Domains = Mapping[str, Sequence[PodInfo]]
"""Pods by the value of the topology key."""


def evictions(args: TopologySpreadArgs, handle: Handle) -> Evictions:
    """Yield pods of domains that have too many, if they will be in one that has fewer."""
    evictable: set[PodInfo] = set()
    for each in handle.evictable(handle.nodes, args):
        yield None
        if each is not None:
            evictable.add(each)
    constraints = yield from _constraints(args, handle)
    for constraint in constraints:
        untried = set(evictable)
        while (one := (yield from _next(handle, constraint, untried))) is not None:
            untried.remove(one)
            yield one


class _Constraint:
    """A constraint of a pod, with the nodes and pods that it counts."""

    def __init__(self, one: PodInfo, constraint: TopologySpreadConstraint) -> None:
        """Raises BadRequest for a selector that cannot be parsed."""
        self.namespace = one.key.namespace
        self.key = constraint.topologyKey
        self.max_skew = constraint.maxSkew
        self._selector = _selector(one.pod, constraint)
        self._pod = one.next_pod
        self._affinity = (constraint.nodeAffinityPolicy or _HONOR) == _HONOR
        self._taints = (constraint.nodeTaintsPolicy or _IGNORE) == _HONOR

    @property
    def identity(self) -> tuple[object, ...]:
        """The fields that are equal in the constraints of all pods of one owner."""
        spec = self._pod.spec
        terms = (spec and spec.nodeSelector, spec and spec.affinity) if self._affinity else ()
        tolerations = (spec and spec.tolerations) if self._taints else ()
        selector = str(self._selector)
        return self.namespace, self.key, self.max_skew, selector, str(terms), str(tolerations)

    def domains(self, handle: Handle) -> Generator[None, None, Domains]:
        """Return the pods that count, by domain; a domain may have none.  Yields between nodes."""
        found: dict[str, list[PodInfo]] = {}
        for name in handle.nodes:
            yield
            value = labels_of(handle.snapshot.node(name)).get(self.key)
            if value is None or not self._has(handle, name):
                continue
            found.setdefault(value, []).extend(
                one
                for one in handle.snapshot.pods_on(name)
                if one.key.namespace == self.namespace
                and self._selector.matches(labels_of(one.pod))
            )
        return found

    def _has(self, handle: Handle, name: str) -> bool:
        """Return whether a node counts, by the policies of the constraint."""
        node = handle.snapshot.node(name)
        if self._affinity and not node_fit.matches_affinity(self._pod, node):
            return False
        taints = node_fit.taints_of(node) if self._taints else ()
        return node_fit.untolerated(self._pod, taints) is None


def _constraints(
    args: TopologySpreadArgs, handle: Handle
) -> Generator[None, None, Iterable[_Constraint]]:
    """Return the constraints of all pods, each once; yields between pods."""
    found: dict[tuple[object, ...], _Constraint] = {}
    for name in handle.nodes:
        for one in handle.snapshot.pods_on(name):
            yield
            if args.namespaces.has(one.key.namespace):
                for constraint in _constraints_of(args, one):
                    found.setdefault(constraint.identity, constraint)
    return found.values()


def _constraints_of(args: TopologySpreadArgs, one: PodInfo) -> Iterator[_Constraint]:
    spec = one.pod.spec
    for each in (spec and spec.topologySpreadConstraints) or ():
        if each.whenUnsatisfiable in args.constraints:
            with suppress(BadRequest):
                yield _Constraint(one, each)


def _next(
    handle: Handle, constraint: _Constraint, untried: AbstractSet[PodInfo]
) -> Generator[None, None, PodInfo | None]:
    """Return the pod to evict next; None if the constraint is met, or no eviction helps.

    Yields between pods.
    """
    domains = yield from constraint.domains(handle)
    sizes = {value: len(pods) for value, pods in domains.items()}
    least = min(sizes.values(), default=0)
    for value in sorted(sizes, key=lambda value: (-sizes[value], value)):
        if sizes[value] - least <= constraint.max_skew:
            return None
        for one in sorted(domains[value], key=_importance):
            if one not in untried or not one.stays:
                continue
            yield
            domain = _domain(handle, constraint, handle.snapshot.next_node(one))
            if domain in sizes and sizes[domain] < sizes[value] - 1:
                return one
    return None


def _domain(handle: Handle, constraint: _Constraint, node: str) -> str | None:
    return labels_of(handle.snapshot.node(node)).get(constraint.key) if node else None


def _importance(one: PodInfo) -> tuple[bool, int]:
    """Return the order of evictions: pods that fit many nodes first, then by priority."""
    spec = one.next_pod.spec
    is_bound = spec is not None and bool(
        spec.nodeSelector or (spec.affinity and spec.affinity.nodeAffinity)
    )
    return is_bound, priority_of(one)


def _selector(pod: Pod, constraint: TopologySpreadConstraint) -> LabelSelector:
    """Return the selector of a constraint, with the pod's values of ``matchLabelKeys``."""
    labels = labels_of(pod)
    selector = label_selector(msgspec.to_builtins(constraint.labelSelector))
    same = tuple(
        Requirement(key, "=", (labels[key],))
        for key in constraint.matchLabelKeys or ()
        if key in labels
    )
    return LabelSelector((*selector.requirements, *same), nothing=selector.nothing)
