"""Constraints of a pod's claims on its node: reachable volumes, or provisionable ones. Pure.

The reasons are kube-scheduler's, word for word (its plugins VolumeBinding, VolumeRestrictions).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi.population import is_populated, source_claim
from corral.api.kinds.storage.common import (
    BIND_COMPLETED,
    IN_TREE,
    LOST,
    ONE_POD,
    SELECTED_NODE,
    STORAGE_CAPACITY,
    class_name,
    takes_space,
)
from corral.api.node_fit import reaches
from corral.api.object import Key
from corral.api.quantity import ZERO, amount
from corral.api.volume_binding import (
    best,
    claims_of,
    is_delayed,
    is_finished,
    node_of,
    requested,
)
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, labels_of, uid_of

UNREACHABLE = "node(s) had volume node affinity conflict"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
IN_USE = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, slots=True)
class Listers:
    """Lookups of claims and volumes.

    volumes_of_class: the volumes of a class.
    users: the pods that use a claim.
    """

    claim: Callable[[Key], PersistentVolumeClaim | None]
    volume: Callable[[Key], PersistentVolume | None]
    storage_class: Callable[[Key], StorageClass | None]
    volumes_of_class: Callable[[str], Iterable[PersistentVolume]]
    users: Callable[[Key], Iterable[Pod]]


@dataclass(frozen=True, slots=True)
class Binding:
    """A claim and the volume to bind to it; without one it is provisioned."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume | None


@dataclass(frozen=True, slots=True)
class _DelayedClaim:
    """A claim with delayed binding, and the volumes of its class."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass
    volumes_of_class: Sequence[PersistentVolume]


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Constraints of a pod's claims on its node.

    reason: why no node fits, whichever it is.
    volumes: the volumes to reach; None for one that does not exist.
    delayed: claims with delayed binding, whose volumes are selected with the node.
    sources: the volumes that DataVolumes copy: beside them a copy costs nothing, elsewhere it is
        sent from host to host.
    is_in_use: whether another pod uses a ReadWriteOncePod claim.
    is_filling: whether a claim is not populated yet: the pod is bound afterwards.
    """

    reason: str = ""
    volumes: Sequence[PersistentVolume | None] = ()
    delayed: Sequence[_DelayedClaim] = ()
    sources: Sequence[PersistentVolume] = ()
    is_in_use: bool = False
    is_filling: bool = False

    def unfit_reason(self, node: Node) -> str:
        """Return why this node does not fit; empty where it does."""
        if self.is_in_use:
            return IN_USE
        for volume in self.volumes:
            if volume is None:
                return NO_VOLUME
            if not reaches(volume, node):
                return UNREACHABLE
        if (bindings := self.bindings(node)) is None:
            return NOTHING_TO_BIND
        return "" if self._fits(bindings, node) else NO_SPACE

    def unfit_reason_beside_sources(self, node: Node) -> str:
        """Return the same, but only the nodes fit that reach the volumes to copy."""
        if not all(reaches(volume, node) for volume in self.sources):
            return UNREACHABLE
        return self.unfit_reason(node)

    def _fits(self, bindings: Sequence[Binding], node: Node) -> bool:
        """Report whether a node's storage has the space that its provisioner needs.

        Claims with a selected node do not count: their volumes may exist already.
        """
        left = annotations_of(node).get(STORAGE_CAPACITY)
        if left is None:
            return True
        thick = {key_of(each.claim) for each in self.delayed if takes_space(each.storage_class)}
        sizes = (
            requested(each.claim)
            for each in bindings
            if each.volume is None
            and key_of(each.claim) in thick
            and SELECTED_NODE not in annotations_of(each.claim)
        )
        return sum(sizes, start=ZERO) <= amount(left)

    def bindings(self, node: Node) -> list[Binding] | None:
        """Return the bindings of the claims on a node; None where one cannot be bound there."""
        bindings: list[Binding] = []
        used: set[str] = set()
        for candidate in self.delayed:
            selected = annotations_of(candidate.claim).get(SELECTED_NODE, key_of(node).name)
            volume = best(
                candidate.claim,
                (each for each in candidate.volumes_of_class if uid_of(each) not in used),
                reaches=lambda volume: reaches(volume, node),
            )
            if selected != key_of(node).name or (
                volume is None and not _is_provisionable(candidate.storage_class, node)
            ):
                return None
            if volume is not None:
                used.add(uid_of(volume))
            bindings.append(Binding(candidate.claim, volume))
        return bindings


NOTHING = PodVolumes()


def pod_volumes(pod: Pod, listers: Listers) -> PodVolumes:
    """Return the constraints of a pod's claims."""
    volumes: list[PersistentVolume | None] = []
    delayed: list[_DelayedClaim] = []
    sources: list[PersistentVolume] = []
    is_in_use = is_filling = False
    for key in claims_of(pod):
        claim = listers.claim(key)
        if claim is None or claim.spec is None:
            return PodVolumes(f'persistentvolumeclaim "{key.name}" not found')
        if reason := _claim_reason(claim):
            return PodVolumes(reason)
        is_in_use = is_in_use or _is_in_use(pod, claim, listers)
        if BIND_COMPLETED in annotations_of(claim):
            volumes.append(listers.volume(Key("", claim.spec.volumeName or "")))
            is_filling = is_filling or not is_populated(claim)
        elif (candidate := _delayed_claim(claim, listers)) is not None:
            delayed.append(candidate)
            source = _source_volumes(claim, listers)
            if claim.spec.dataSource or claim.spec.dataSourceRef:
                volumes += source  # the provisioner clones within one storage
            else:
                sources += source
        else:
            return PodVolumes(UNBOUND)
    return PodVolumes("", volumes, delayed, sources, is_in_use, is_filling)


def _claim_reason(claim: PersistentVolumeClaim) -> str:
    name = key_of(claim).name
    if claim.status is not None and claim.status.phase == LOST:
        volume = (claim.spec and claim.spec.volumeName) or ""
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    return f'persistentvolumeclaim "{name}" is being deleted' if is_being_deleted(claim) else ""


def _delayed_claim(claim: PersistentVolumeClaim, listers: Listers) -> _DelayedClaim | None:
    """Return a claim without a volume if its binding is delayed; None if others bind it."""
    name = class_name(claim) or ""
    storage_class = listers.storage_class(Key("", name))
    named = claim.spec is not None and claim.spec.volumeName
    if named or storage_class is None or not is_delayed(storage_class):
        return None
    return _DelayedClaim(claim, storage_class, list(listers.volumes_of_class(name)))


def _source_volumes(claim: PersistentVolumeClaim, listers: Listers) -> Iterable[PersistentVolume]:
    """Yield the volume that a claim is cloned from."""
    key = source_claim(claim)
    source = listers.claim(key) if key is not None else None
    if source is not None and source.spec is not None and source.spec.volumeName:
        volume = listers.volume(Key("", source.spec.volumeName))
        if volume is not None:
            yield volume


def _is_in_use(pod: Pod, claim: PersistentVolumeClaim, listers: Listers) -> bool:
    """Report whether another pod uses a ReadWriteOncePod claim."""
    if ONE_POD not in ((claim.spec and claim.spec.accessModes) or ()):
        return False
    return any(
        uid_of(other) != uid_of(pod) and node_of(other) and not is_finished(other)
        for other in listers.users(key_of(claim))
    )


def _is_provisionable(storage_class: StorageClass, node: Node) -> bool:
    """Report whether the class provisions volumes for this node."""
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
