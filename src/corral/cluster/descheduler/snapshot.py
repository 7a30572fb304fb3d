"""The cluster as one cycle of the descheduler sees it, and where evicted pods will be.  Pure.

Evictions take effect at once here: their pods are counted where the scheduler will place them
next.  So are VMIs that are about to move already.  That keeps a cycle from evicting more pods than
its rules want, and the next one from evicting them again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import msgspec
from lightkube.models.core_v1 import Node, Pod

from corral.api import node_fit
from corral.api.kinds.core.machine_nodes import can_migrate_to
from corral.api.kinds.vmi.derived import MIGRATION_UID
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.node_fit import NodeInfo
from corral.api.object import Key
from corral.api.volume_binding import is_finished, node_of
from corral.cluster.descheduler.eviction_outcome import EvictionOutcome, eviction_outcome
from corral.reconcile.objects import controller_of, is_being_deleted, key_of, labels_of, uid_of
from corral.reconcile.pod_owners import PodOwner

VMI = VirtualMachineInstance
OwnerId = tuple[str, str, str]
"""Namespace, kind and name."""


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod, its VMI, and what becomes of it when it is evicted.

    next_pod: the pod as it will be created next; a migration added conditions to the present one.
    stays: whether it is to stay where it is, as far as is observed.
    demand: what of next_pod its place depends on beside its volumes; pods that are alike share it.
    """

    pod: Pod
    node: str
    next_pod: Pod
    vmi: VMI | None = None
    owner: PodOwner | None = None
    stays: bool = True
    requested: Counter[str] = field(default_factory=Counter)
    demand: bytes = b""
    outcome: EvictionOutcome | None = None

    @property
    def key(self) -> Key:
        return key_of(self.pod)

    @property
    def owner_id(self) -> OwnerId | None:
        """The topmost owner, which keeps the number of its VMIs."""
        if self.owner is None:
            return None
        return self.key.namespace, self.owner.kind, self.owner.metadata.name

    @property
    def owner_kinds(self) -> frozenset[str]:
        """The kinds of the pod's controller and of its topmost owner."""
        reference = controller_of(self.pod)
        kinds = {reference.kind} if reference is not None else set()
        return frozenset(kinds | ({self.owner.kind} if self.owner is not None else set()))


@dataclass(frozen=True, slots=True)
class Lookups:
    """Lookups of objects beside nodes and pods.

    vmi: the VMI that controls a pod.
    owner: the topmost owner of a pod.
    reaches_volumes: whether a node reaches the volumes that a pod's claims are bound to.
    eviction_strategy: that of VMIs which have none.
    """

    vmi: Callable[[Pod], VMI | None]
    owner: Callable[[Pod], PodOwner | None]
    reaches_volumes: Callable[[Pod, Node], bool] = lambda _pod, _node: True
    eviction_strategy: str | None = None


class Snapshot:
    """Nodes, the pods on them and their requests; ``observe`` adds pods, evictions move them."""

    def __init__(self, nodes: Iterable[Node], lookups: Lookups) -> None:
        self._infos = {key_of(node).name: NodeInfo(node) for node in nodes}
        self._pods: dict[str, dict[str, PodInfo]] = defaultdict(dict)
        self._scores: dict[str, dict[bytes, float | None]] = defaultdict(dict)
        """Scores by node and demand, None: it does not fit.  Those of a node hold until its pods
        change.  Most pods are like others, and a cycle asks for the next node of each."""
        self._lookups = lookups

    # -- reading ------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        return self._infos[name].node

    def names(self) -> Iterator[str]:
        """Yield the names of all nodes, sorted."""
        yield from sorted(self._infos)

    def pods_on(self, node: str) -> Sequence[PodInfo]:
        """Return the pods on a node, and those that will be there, in the order of their names."""
        return sorted(self._pods[node].values(), key=lambda one: one.key)

    def pods(self) -> Iterator[PodInfo]:
        for name in self.names():
            yield from self.pods_on(name)

    def used(self, node: str) -> Mapping[str, int]:
        """Return the sum of the requests of a node's pods, in billionths."""
        return self._infos[node].used

    def allocatable(self, node: str, resource: str) -> int:
        """Return what a node has of a resource for its pods, in billionths."""
        return node_fit.allocatable(self.node(node), resource)

    def next_node(self, one: PodInfo) -> str:
        """Return the node that the scheduler will choose for a pod once it is evicted; "" if none.

        The target pod of a migration is never placed on the node that its VMI leaves.
        """
        moves = one.outcome is EvictionOutcome.MIGRATION
        names = (name for name in self._infos if not moves or name != one.node)
        scored = ((self._score(one, name), name) for name in names)
        places = [(score, name) for score, name in scored if score is not None]
        reached = (name for _, name in sorted(places, reverse=True) if self._reaches(one, name))
        return next(reached, "")

    def fits_elsewhere(self, one: PodInfo, nodes: Iterable[str]) -> bool:
        """Return whether a pod fits on one of the nodes beside its own."""
        return any(
            self._score(one, name) is not None and self._has_volumes(one, name)
            for name in nodes
            if name != one.node
        )

    def _score(self, one: PodInfo, name: str) -> float | None:
        """Return the scheduler's score of a node for a pod; None if it does not fit there."""
        info = self._infos[name]
        if name == one.node and uid_of(one.pod) in self._pods[name]:  # without what it uses now
            used = Counter(info.used)
            used.subtract(one.requested)
            return _score(one, NodeInfo(info.node, used))
        scores = self._scores[name]
        if one.demand not in scores:
            scores[one.demand] = _score(one, info)
        return scores[one.demand]

    def _reaches(self, one: PodInfo, name: str) -> bool:
        """Return whether a pod that fits on a node can come to it."""
        if one.outcome is EvictionOutcome.MIGRATION:
            source = self._infos[one.node].node if one.node in self._infos else None
            if not can_migrate_to(source, self.node(name)):
                return False
        return self._has_volumes(one, name)

    def _has_volumes(self, one: PodInfo, name: str) -> bool:
        return self._lookups.reaches_volumes(one.next_pod, self.node(name))

    # -- changing -----------------------------------------------------------------------------

    def evict(self, one: PodInfo) -> None:
        """Count an evicted pod where it will be next."""
        info = self._infos.get(one.node)
        if info is not None and self._pods[one.node].pop(uid_of(one.pod), None) is not None:
            self._count(info, one, -1)
        self._place(one)

    def _place(self, one: PodInfo) -> None:
        next_node = self.next_node(one)
        one.stays = False
        one.node = next_node
        if next_node:
            self._add(one, next_node)

    def _add(self, one: PodInfo, node: str) -> None:
        self._pods[node][uid_of(one.pod)] = one
        if (info := self._infos.get(node)) is not None:
            self._count(info, one, 1)

    def _count(self, info: NodeInfo, one: PodInfo, sign: int) -> None:
        node_fit.add_all(info.used, one.requested.items(), sign)
        self._scores.pop(info.name, None)

    # -- observing ----------------------------------------------------------------------------

    def observe(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Take in each VMI once, and each other pod; yields between them."""
        vmis: dict[str, VMI] = {}
        of_vmis: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            yield
            if is_finished(pod):
                continue
            vmi = self._lookups.vmi(pod)
            if vmi is not None:
                vmis[vmi.metadata.uid] = vmi
                of_vmis[vmi.metadata.uid].append(pod)
            elif node_of(pod) and not is_being_deleted(pod):
                self._add(self._info(pod, None), node_of(pod))
        unplaced = []
        for uid, group in of_vmis.items():
            yield
            one = self._of_vmi(vmis[uid], group)
            if one.node and not _is_leaving(one):
                self._add(one, one.node)
            elif not is_being_deleted(one.pod) or _comes_back(one):
                one.node = one.node or vmis[uid].status.node_name  # the source of a pending target
                unplaced.append(one)
        for one in unplaced:  # once all others count
            yield
            self._place(one)

    def _of_vmi(self, vmi: VMI, pods: Sequence[Pod]) -> PodInfo:
        """Return the pod of a VMI; one that migrates has two, and counts where it will be."""
        one = self._info(max(pods, key=_order), vmi)
        one.stays = len(pods) == 1 and not _is_leaving(one)
        if len(pods) > 1 and not is_being_deleted(one.pod):  # whatever an eviction would do
            one.outcome = EvictionOutcome.MIGRATION
        return one

    def _info(self, pod: Pod, vmi: VMI | None) -> PodInfo:
        requested = node_fit.requests(pod)
        if vmi is None:
            demand = _demand(pod, requested)
            return PodInfo(pod, node_of(pod), pod, requested=requested, demand=demand)
        owner, next_pod = self._lookups.owner(pod), _next_pod(pod, vmi)
        return PodInfo(
            pod,
            node_of(pod),
            next_pod,
            vmi,
            owner,
            requested=requested,
            demand=_demand(next_pod, requested),
            outcome=eviction_outcome(vmi, owner, self._lookups.eviction_strategy),
        )


def _next_pod(pod: Pod, vmi: VMI) -> Pod:
    if pod.spec is None:
        return pod
    new, spec = copy(pod), copy(pod.spec)
    spec.affinity = vmi.spec.affinity
    spec.nodeSelector = vmi.spec.node_selector or None
    new.spec = spec
    return new


def _demand(pod: Pod, requested: Mapping[str, int]) -> bytes:
    """Return what ``node_fit`` reads of a pod."""
    spec = pod.spec
    terms = spec and (spec.tolerations, spec.nodeSelector, spec.affinity)
    return msgspec.json.encode((sorted(requested.items()), terms))


def _score(one: PodInfo, info: NodeInfo) -> float | None:
    if node_fit.unfit_reasons(one.next_pod, info, one.requested):
        return None
    return node_fit.score(one.next_pod, info, one.requested)


def _order(pod: Pod) -> tuple[bool, str, bool]:
    """Return a key that sorts the target of a migration last, unless it is being deleted."""
    created = pod.metadata.creationTimestamp if pod.metadata is not None else None
    return not is_being_deleted(pod), str(created or ""), MIGRATION_UID in labels_of(pod)


def _is_leaving(one: PodInfo) -> bool:
    """Return whether a VMI is to leave the node that its pod is on."""
    marked = one.vmi is not None and one.vmi.status.evacuation_node_name == one.node != ""
    return marked or is_being_deleted(one.pod)


def _comes_back(one: PodInfo) -> bool:
    """Return whether a VMI whose pod is being deleted will have another pod."""
    return (
        one.vmi is not None
        and not is_being_deleted(one.vmi)
        and one.outcome is EvictionOutcome.REPLACEMENT
    )
