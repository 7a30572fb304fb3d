"""What a pod's claims ask of its node: volumes that reach it, or that can be made for it.  Pure.

The reasons are kube-scheduler's, word for word (its plugins VolumeBinding, VolumeRestrictions).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi.population import is_populated
from corral.api.kinds.storage.common import (
    BIND_COMPLETED,
    IN_TREE,
    LOST,
    ONE_POD,
    SELECTED_NODE,
    class_name,
)
from corral.api.object import Key
from corral.api.volume_binding import best, claims_of, is_delayed, is_finished, node_of
from corral.cluster.scheduler.fit import meets_any
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, labels_of, uid_of

UNREACHABLE = "node(s) had volume node affinity conflict"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
IN_USE = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, slots=True)
class Stock:
    """Where claims and volumes are looked up.

    offered: the volumes of a class.
    users: the pods that use a claim.
    """

    claim: Callable[[Key], PersistentVolumeClaim | None]
    volume: Callable[[Key], PersistentVolume | None]
    storage_class: Callable[[Key], StorageClass | None]
    offered: Callable[[str], Iterable[PersistentVolume]]
    users: Callable[[Key], Iterable[Pod]]


@dataclass(frozen=True, slots=True)
class Binding:
    """What a claim gets once its node is known: a volume that is there, or one that is made."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume | None


@dataclass(frozen=True, slots=True)
class _Choice:
    """A claim whose volume is chosen with the node, and the volumes to choose from."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass
    offered: Sequence[PersistentVolume]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod's claims ask of its node.

    fault: why no node will do, whichever it is.
    volumes: what the node has to reach; None for a volume that is not there.
    choices: claims whose volumes are chosen with the node.
    is_taken: whether another pod has a claim that only one may have.
    is_filling: whether a claim has yet to get its content: the pod is placed when that is there.
    """

    fault: str = ""
    volumes: Sequence[PersistentVolume | None] = ()
    choices: Sequence[_Choice] = ()
    is_taken: bool = False
    is_filling: bool = False

    def node_fault(self, node: Node) -> str:
        """Why this node will not do; empty where it does."""
        if self.is_taken:
            return IN_USE
        for volume in self.volumes:
            if volume is None:
                return NO_VOLUME
            if not reaches(volume, node):
                return UNREACHABLE
        return NOTHING_TO_BIND if self.bindings(node) is None else ""

    def bindings(self, node: Node) -> list[Binding] | None:
        """What the claims get on a node; None where one of them gets nothing there."""
        bindings: list[Binding] = []
        taken: set[str] = set()
        for choice in self.choices:
            selected = annotations_of(choice.claim).get(SELECTED_NODE, key_of(node).name)
            volume = best(
                choice.claim,
                (each for each in choice.offered if uid_of(each) not in taken),
                reaches=lambda volume: reaches(volume, node),
            )
            if selected != key_of(node).name or (
                volume is None and not _is_made(choice.storage_class, node)
            ):
                return None
            if volume is not None:
                taken.add(uid_of(volume))
            bindings.append(Binding(choice.claim, volume))
        return bindings


NOTHING = Wanted()


def wanted(pod: Pod, stock: Stock) -> Wanted:
    """What a pod's claims ask of its node."""
    volumes: list[PersistentVolume | None] = []
    choices: list[_Choice] = []
    is_taken = is_filling = False
    for key in claims_of(pod):
        claim = stock.claim(key)
        if claim is None or claim.spec is None:
            return Wanted(f'persistentvolumeclaim "{key.name}" not found')
        if fault := _claim_fault(claim):
            return Wanted(fault)
        is_taken = is_taken or _is_taken(pod, claim, stock)
        if BIND_COMPLETED in annotations_of(claim):
            volumes.append(stock.volume(Key("", claim.spec.volumeName or "")))
            is_filling = is_filling or not is_populated(claim)
        elif (choice := _choice(claim, stock)) is not None:
            choices.append(choice)
        else:
            return Wanted(UNBOUND)
    return Wanted("", volumes, choices, is_taken, is_filling)


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """Whether a volume can be used on a node."""
    affinity = volume.spec and volume.spec.nodeAffinity
    if not affinity or affinity.required is None:
        return True
    return meets_any(node, affinity.required.nodeSelectorTerms)


def _claim_fault(claim: PersistentVolumeClaim) -> str:
    name = key_of(claim).name
    if claim.status is not None and claim.status.phase == LOST:
        volume = (claim.spec and claim.spec.volumeName) or ""
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    return f'persistentvolumeclaim "{name}" is being deleted' if is_being_deleted(claim) else ""


def _choice(claim: PersistentVolumeClaim, stock: Stock) -> _Choice | None:
    """The choice that is left for a claim without a volume; None where others make it."""
    name = class_name(claim) or ""
    storage_class = stock.storage_class(Key("", name))
    named = claim.spec is not None and claim.spec.volumeName
    if named or storage_class is None or not is_delayed(storage_class):
        return None
    return _Choice(claim, storage_class, list(stock.offered(name)))


def _is_taken(pod: Pod, claim: PersistentVolumeClaim, stock: Stock) -> bool:
    """Whether another pod has a claim that is for one pod only."""
    if ONE_POD not in ((claim.spec and claim.spec.accessModes) or ()):
        return False
    return any(
        uid_of(other) != uid_of(pod) and node_of(other) and not is_finished(other)
        for other in stock.users(key_of(claim))
    )


def _is_made(storage_class: StorageClass, node: Node) -> bool:
    """Whether the class has volumes made, and for this node."""
    if storage_class.provisioner.startswith(IN_TREE):
        return False
    terms = storage_class.allowedTopologies
    if not terms:
        return True
    labels = labels_of(node)
    return any(
        all(labels.get(each.key) in each.values for each in term.matchLabelExpressions or ())
        for term in terms
    )
