"""Binding of claims and volumes: matching, and references between them and pods.  Pure.

The persistent volume binder and the scheduler share it.  Rules and messages are those of
Kubernetes' persistent volume controller.
"""

from collections.abc import Callable, Iterable

import msgspec
from lightkube.models.core_v1 import ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import BadRequest
from corral.api.kinds.storage.common import (
    AVAILABLE,
    BOUND_BY_CONTROLLER,
    FILESYSTEM,
    SHARED_LABEL,
    STORAGE,
    STORAGE_LABEL,
    WAIT_FOR_FIRST_CONSUMER,
    class_name,
)
from corral.api.object import Document, Key
from corral.api.quantity import Amount, amount
from corral.api.selectors import label_selector

_FINISHED = frozenset({"Succeeded", "Failed"})


def claims_of(pod: Pod) -> list[Key]:
    """Return the claims of a pod's volumes."""
    volumes = (pod.spec and pod.spec.volumes) or ()
    namespace = _key(pod).namespace
    names = dict.fromkeys(
        each.persistentVolumeClaim.claimName
        for each in volumes
        if each.persistentVolumeClaim is not None
    )
    return [Key(namespace, name) for name in names]


def claim_index(pod: Pod) -> list[str]:
    """Return the keys of a pod in the index ``USED_BY``."""
    return [str(key) for key in claims_of(pod)]


def is_finished(pod: Pod) -> bool:
    """Report whether a pod has terminated."""
    return (pod.status and pod.status.phase) in _FINISHED


def node_of(pod: Pod) -> str:
    """Return the node of a pod; "" if it is not scheduled."""
    return (pod.spec and pod.spec.nodeName) or ""


def best(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    reserved_only: bool = False,
    reaches: Callable[[PersistentVolume], bool] = lambda _: True,
) -> PersistentVolume | None:
    """Return the volume that is reserved for a claim, else the smallest free one that matches it.

    Volumes with fewer access modes are preferred, to leave those that several nodes can share.
    ``reaches`` reports whether a volume is accessible where the claim is used.
    """
    matching = [
        volume
        for volume in volumes
        if not _meta(volume).deletionTimestamp
        and (is_for(volume, claim) or (not reserved_only and is_free(volume)))
        and not (_other_fault(claim, volume) or size_fault(claim, volume))
        and reaches(volume)
    ]
    reserved = [volume for volume in matching if is_for(volume, claim)]
    free = [volume for volume in matching if _is_available(volume, claim)]
    return min(reserved or free, key=_order, default=None)


def fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Return why a claim cannot bind to the volume that it names; "" if it can."""
    return size_fault(claim, volume) or _class_fault(claim, volume) or _other_fault(claim, volume)


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Report whether a volume's claimRef names a claim, by its uid, too, if that is set."""
    reference = claim_of(volume)
    if reference is None:
        return False
    key = _key(claim)
    named = (reference.namespace, reference.name) == (key.namespace, key.name)
    return named and (not reference.uid or reference.uid == _meta(claim).uid)


def claim_of(volume: PersistentVolume) -> ObjectReference | None:
    """Return the claimRef of a volume."""
    return volume.spec.claimRef if volume.spec is not None else None


def storage_of(volume: PersistentVolume) -> str:
    """Return the id of the storage that a volume lies in; "" for one that is reached anywhere.

    It is that of one host, or of a shared directory.
    """
    affinity = volume.spec and volume.spec.nodeAffinity
    terms = (affinity and affinity.required and affinity.required.nodeSelectorTerms) or ()
    for term in terms:
        for expression in term.matchExpressions or ():
            if expression.key in (STORAGE_LABEL, SHARED_LABEL) and expression.values:
                return str(expression.values[0])
    return ""


def is_free(volume: PersistentVolume) -> bool:
    """Report whether a volume is available to any claim."""
    phase = volume.status and volume.status.phase
    return phase == AVAILABLE and claim_of(volume) is None


def is_delayed(storage_class: StorageClass | None) -> bool:
    """Report whether claims of a class wait for their first consumer."""
    mode = storage_class.volumeBindingMode if storage_class is not None else ""
    return mode == WAIT_FOR_FIRST_CONSUMER


def requested(claim: PersistentVolumeClaim) -> Amount:
    """Return the requested size of a claim."""
    resources = claim.spec and claim.spec.resources
    return amount(((resources and resources.requests) or {}).get(STORAGE))


def capacity(volume: PersistentVolume) -> Amount:
    """Return the size of a volume."""
    return amount(((volume.spec and volume.spec.capacity) or {}).get(STORAGE))


def claim_patch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Document | None:
    """Return the patch that sets a volume's claimRef to a claim; None if it is set."""
    named, meta = claim_of(volume), _meta(claim)
    if named is not None and named.uid == meta.uid:
        return None
    metadata: Document = {"resourceVersion": _meta(volume).resourceVersion}
    if named is None:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resourceVersion,
    }
    return {"metadata": metadata, "spec": {"claimRef": reference}}


def size_fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Return why a volume's size does not suffice; "" if it does."""
    return "requested PV is too small" if capacity(volume) < requested(claim) else ""


def _class_fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    same = (class_name(claim) or "") == (class_name(volume) or "")
    return "" if same else "storageClassName does not match"


def _other_fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    requested_spec, offered = claim.spec, volume.spec
    if requested_spec is None or offered is None:
        return "incompatible accessMode"
    if (requested_spec.volumeMode or FILESYSTEM) != (offered.volumeMode or FILESYSTEM):
        return "incompatible volumeMode"
    if not set(requested_spec.accessModes or ()) <= set(offered.accessModes or ()):
        return "incompatible accessMode"
    if (requested_spec.volumeAttributesClassName or "") != (
        offered.volumeAttributesClassName or ""
    ):
        return "volumeAttributesClassName does not match"
    return ""


def _is_available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if not is_free(volume) or _class_fault(claim, volume):
        return False
    selector = claim.spec and claim.spec.selector
    if not selector:
        return True
    try:
        return label_selector(msgspec.to_builtins(selector)).matches(_meta(volume).labels or {})
    except BadRequest:
        return False


def _order(volume: PersistentVolume) -> tuple[int, Amount, str]:
    modes = (volume.spec and volume.spec.accessModes) or ()
    return len(set(modes)), capacity(volume), _key(volume).name


def _meta(view: PersistentVolume | PersistentVolumeClaim | Pod) -> ObjectMeta:
    return view.metadata or ObjectMeta()


def _key(view: PersistentVolume | PersistentVolumeClaim | Pod) -> Key:
    metadata = _meta(view)
    return Key(metadata.namespace or "", metadata.name or "")
