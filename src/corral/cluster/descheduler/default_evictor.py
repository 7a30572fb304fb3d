"""DefaultEvictor: which pods may be evicted, as the arguments of the plugin say.  Pure.

The rules and their words are the descheduler's, applied to machines: ``minReplicas`` counts the
VMIs of the topmost owner, since each VMI has one pod, and the local storage of a pod is that of its
VMI.  A migration takes disks along, so it needs no such protection.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from lightkube.models.core_v1 import Pod

from corral.api.selectors import LabelSelector, parse_labels
from corral.cluster.descheduler.arguments import (
    CLAIMS,
    LOCAL_STORAGE,
    MANDATORY_POLICY,
    RESOURCE_CLAIMS,
    SYSTEM_CRITICAL,
    WITHOUT_BUDGET,
    DefaultEvictorArgs,
)
from corral.cluster.descheduler.eviction_outcome import EvictionOutcome
from corral.cluster.descheduler.snapshot import PodInfo, Snapshot
from corral.reconcile.objects import annotations_of, labels_of

EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictorInputs:
    """Inputs of the evictor beside the snapshot and its arguments.

    nodes: names of the nodes that the policy handles.
    threshold: pods of this priority and above stay, None: no limit.
    namespaces: labels by namespace; read only where they are selected by.
    has_budget: whether a PodDisruptionBudget selects a pod.
    storage_classes: StorageClasses of a pod's claims.
    """

    now: datetime
    nodes: tuple[str, ...]
    threshold: int | None = None
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    has_budget: Callable[[Pod], bool] = lambda _: False
    storage_classes: Callable[[Pod], frozenset[str]] = lambda _: frozenset()


class DefaultEvictor:
    """The filters of one profile."""

    def __init__(self, args: DefaultEvictorArgs, snapshot: Snapshot, inputs: EvictorInputs) -> None:
        self._args = args
        self._protections = args.protections
        self._min_age_seconds = args.min_pod_age_seconds
        self._snapshot = snapshot
        self._inputs = inputs
        self._labels = args.label_selector.parsed()
        self._namespaces = args.namespace_label_selector.parsed()
        self._fitting = _selected(snapshot, inputs.nodes, parse_labels(args.node_selector))
        self._replicas: dict[object, int] = {}

    def refusals(self, one: PodInfo) -> Iterator[str]:
        """Yield why a pod must not be evicted (the descheduler's Filter)."""
        if not one.stays:
            yield "pod is on its way to another node"
        if one.vmi is None:
            yield "pod does not run a VMI"
        elif one.outcome is EvictionOutcome.REFUSED:
            yield one.outcome.value
        if EVICT in _annotations(one):  # its author answers for what becomes of it
            return
        if one.outcome is EvictionOutcome.LOSS:
            yield one.outcome.value
        yield from self._refusals_by_args(one)

    def allows(self, one: PodInfo) -> bool:
        """Return whether a pod may be evicted."""
        return next(self.refusals(one), None) is None

    def allows_now(self, one: PodInfo) -> bool:
        """Return whether nodes and namespaces allow it, too (PreEvictionFilter)."""
        if self._args.node_fit and not self._snapshot.fits_elsewhere(one, self._fitting):
            return False
        if not self._namespaces:
            return True
        return self._namespaces.matches(self._inputs.namespaces.get(one.key.namespace))

    def _refusals_by_args(self, one: PodInfo) -> Iterator[str]:
        args, protections = self._args, self._protections
        if args.no_eviction_policy == MANDATORY_POLICY and PREFER_NO_EVICTION in _annotations(one):
            yield f"pod has the annotation {PREFER_NO_EVICTION}"
        if not self._labels.matches(labels_of(one.pod)):
            yield "pod labels do not match the labelSelector filter in the policy parameter"
        if SYSTEM_CRITICAL in protections:
            yield from self._by_priority(one)
        if LOCAL_STORAGE in protections and _loses_local_storage(one):
            yield "pod has local storage and is protected against eviction"
        if CLAIMS in protections and self._has_protected_claim(one.pod):
            yield "pod with PVC is protected against eviction"
        if WITHOUT_BUDGET in protections and not self._inputs.has_budget(one.pod):
            yield "pod does not have a PodDisruptionBudget and is protected against eviction"
        if RESOURCE_CLAIMS in protections and one.pod.spec and one.pod.spec.resourceClaims:
            yield "pod has ResourceClaims and is protected against eviction"
        yield from self._by_count_and_age(one)

    def _by_priority(self, one: PodInfo) -> Iterator[str]:
        priority = priority_of(one)
        if priority >= SYSTEM_CRITICAL_PRIORITY:
            yield "pod has system critical priority and is protected against eviction"
        elif self._inputs.threshold is not None and priority >= self._inputs.threshold:
            yield "pod has higher priority than specified priority class threshold"

    def _by_count_and_age(self, one: PodInfo) -> Iterator[str]:
        least = self._args.min_replicas
        if least > 1 and one.owner_id is not None and (count := self._count(one)) < least:
            yield f"owner has {count} replicas which is less than minReplicas of {least}"
        if self._args.min_pod_age:
            started = one.pod.status.startTime if one.pod.status is not None else None
            least_age = self._min_age_seconds
            if started is None or (self._inputs.now - started).total_seconds() < least_age:
                yield f"pod age is not older than MinPodAge: {self._args.min_pod_age}"

    def _count(self, one: PodInfo) -> int:
        """Return the number of VMIs of a pod's topmost owner."""
        if not self._replicas:
            for each in self._snapshot.pods():
                self._replicas[each.owner_id] = self._replicas.get(each.owner_id, 0) + 1
        return self._replicas.get(one.owner_id, 0)

    def _has_protected_claim(self, pod: Pod) -> bool:
        classes = self._inputs.storage_classes(pod)
        settings = self._args.pod_protections.config.pods_with_pvc
        protected = {each.name for each in settings.protected_storage_classes}
        return bool(classes & protected) if protected else bool(classes)


def priority_of(one: PodInfo) -> int:
    """Return the priority of a pod; 0 without one."""
    return (one.pod.spec and one.pod.spec.priority) or 0


def _selected(
    snapshot: Snapshot, nodes: tuple[str, ...], selector: LabelSelector
) -> tuple[str, ...]:
    return tuple(name for name in nodes if selector.matches(labels_of(snapshot.node(name))))


def _annotations(one: PodInfo) -> Mapping[str, str]:
    """Return the annotations of a pod and of its VMI, which may be newer."""
    of_vmi = annotations_of(one.vmi) if one.vmi is not None else {}
    return {**annotations_of(one.pod), **of_vmi}


def _loses_local_storage(one: PodInfo) -> bool:
    """Return whether an eviction loses disks that outlive a restart of the guest.

    An emptyDisk is a VMI's emptyDir, and a hostDisk its hostPath.
    """
    if one.outcome is EvictionOutcome.MIGRATION or one.vmi is None:
        return False
    volumes = one.vmi.spec.volumes
    return any(each.empty_disk is not None or each.host_disk is not None for each in volumes)
