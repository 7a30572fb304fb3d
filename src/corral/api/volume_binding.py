"""Claims, volumes and pods: which volume suits a claim, and who names whom.  Pure.

The binder of claims and the scheduler both ask this.  Rules and words are those of Kubernetes'
persistent volume controller.
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
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    class_name,
)
from corral.api.object import Document, Key
from corral.api.quantity import Amount, amount
from corral.api.selectors import label_selector

USED_BY = "claim"
"""Index of pods by the claims that they use."""
_FINISHED = frozenset({"Succeeded", "Failed"})


def claims_of(pod: Pod) -> list[Key]:
    """The claims that a pod's volumes name."""
    volumes = (pod.spec and pod.spec.volumes) or ()
    namespace = _key(pod).namespace
    names = dict.fromkeys(
        each.persistentVolumeClaim.claimName
        for each in volumes
        if each.persistentVolumeClaim is not None
    )
    return [Key(namespace, name) for name in names]


def claim_index(pod: Pod) -> list[str]:
    """What the index ``USED_BY`` lists a pod under."""
    return [str(key) for key in claims_of(pod)]


def is_finished(pod: Pod) -> bool:
    """Whether nothing of a pod runs any more."""
    return (pod.status and pod.status.phase) in _FINISHED


def node_of(pod: Pod) -> str:
    """The node that a pod was given; empty while it waits for one."""
    return (pod.spec and pod.spec.nodeName) or ""


def best(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    reserved_only: bool = False,
    reaches: Callable[[PersistentVolume], bool] = lambda _: True,
) -> PersistentVolume | None:
    """The volume that is kept for a claim, else the smallest that is free and suits it.

    Of those, volumes with the fewest access modes go first: a claim of one node does not take what
    many could share.  ``reaches`` says whether a volume can be used where the claim is needed.
    """
    suiting = [
        volume
        for volume in volumes
        if not _meta(volume).deletionTimestamp
        and (is_for(volume, claim) or (not reserved_only and is_free(volume)))
        and not (_other_fault(claim, volume) or size_fault(claim, volume))
        and reaches(volume)
    ]
    reserved = [volume for volume in suiting if is_for(volume, claim)]
    free = [volume for volume in suiting if _is_offered(volume, claim)]
    return min(reserved or free, key=_order, default=None)


def fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Why a claim cannot have the volume that it names; empty where it can."""
    return size_fault(claim, volume) or _class_fault(claim, volume) or _other_fault(claim, volume)


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume says that it is this claim's: by its name, and by its uid if it has one."""
    reference = claim_of(volume)
    if reference is None:
        return False
    key = _key(claim)
    named = (reference.namespace, reference.name) == (key.namespace, key.name)
    return named and (not reference.uid or reference.uid == _meta(claim).uid)


def claim_of(volume: PersistentVolume) -> ObjectReference | None:
    """The claim that a volume names."""
    return volume.spec.claimRef if volume.spec is not None else None


def is_free(volume: PersistentVolume) -> bool:
    """Whether a volume is offered to any claim that it suits."""
    phase = volume.status and volume.status.phase
    return phase == AVAILABLE and claim_of(volume) is None


def is_delayed(storage_class: StorageClass | None) -> bool:
    """Whether claims of a class wait until it is known where they are needed."""
    mode = storage_class.volumeBindingMode if storage_class is not None else ""
    return mode == WAIT_FOR_FIRST_CONSUMER


def requested(claim: PersistentVolumeClaim) -> Amount:
    """The size that a claim asks for."""
    resources = claim.spec and claim.spec.resources
    return amount(((resources and resources.requests) or {}).get(STORAGE))


def capacity(volume: PersistentVolume) -> Amount:
    """The size of a volume."""
    return amount(((volume.spec and volume.spec.capacity) or {}).get(STORAGE))


def reserve(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Document | None:
    """The patch by which a volume names a claim; None where it does."""
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
    """Why a volume's size does not do."""
    return "requested PV is too small" if capacity(volume) < requested(claim) else ""


def _class_fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    same = (class_name(claim) or "") == (class_name(volume) or "")
    return "" if same else "storageClassName does not match"


def _other_fault(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    wanted, offered = claim.spec, volume.spec
    if wanted is None or offered is None:
        return "incompatible accessMode"
    if (wanted.volumeMode or FILESYSTEM) != (offered.volumeMode or FILESYSTEM):
        return "incompatible volumeMode"
    if not set(wanted.accessModes or ()) <= set(offered.accessModes or ()):
        return "incompatible accessMode"
    if (wanted.volumeAttributesClassName or "") != (offered.volumeAttributesClassName or ""):
        return "volumeAttributesClassName does not match"
    return ""


def _is_offered(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
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
