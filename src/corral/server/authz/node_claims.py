"""The PersistentVolumeClaims of a node: those with their volume there, or to be provisioned there.

The node imports their content: until they are populated, it may read the Secrets and ConfigMaps
that their DataVolumes name.
"""

from collections.abc import Iterator

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.encoding import decode_as
from corral.api.kind import at
from corral.api.kinds.cdi.population import is_populated, populate_request
from corral.api.kinds.core.pod import POD
from corral.api.kinds.storage.common import SELECTED_NODE, SHARED_LABEL
from corral.api.kinds.storage.persistentvolume import PERSISTENT_VOLUME
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.kinds.vmi.referenced_objects import CONFIG_MAP, SECRET, Reference
from corral.api.object import Document, Key
from corral.server.request.call import storage
from corral.store import Store


def is_volume_at(volume: Document, node: str, store: Store) -> bool:
    """Report whether a PersistentVolume lies on a node alone, by the label in its nodeAffinity.

    The label must be one that only this node has, and none that others come to have: a shared
    directory belongs to no joined node.
    """
    terms = at(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or []
    expressions = [each for term in terms for each in term.get("matchExpressions") or ()]
    if len(terms) != 1 or len(expressions) != 1 or expressions[0].get("operator") != "In":
        return False
    label, values = expressions[0].get("key"), expressions[0].get("values") or []
    if label == SHARED_LABEL:
        return False
    owners = [
        record.key.name
        for record in store.objects("nodes")
        if (at(record.document(), "metadata", "labels") or {}).get(label) in values
    ]
    return owners == [node]


def is_claim_at(claim: Document, node: str, store: Store) -> bool:
    """Report whether a claim's volume lies on a node, or is to be provisioned there."""
    if name := at(claim, "spec", "volumeName"):
        volume = store.latest(storage(PERSISTENT_VOLUME), Key("", name))
        return volume is not None and is_volume_at(volume.document(), node, store)
    return bool(at(claim, "metadata", "annotations", SELECTED_NODE) == node)


def is_shared_claim_at(claim: Document, node: str, store: Store) -> bool:
    """Report whether a claim lies in a shared directory, and a pod on a node uses it.

    The node reports the memory that it has saved there.
    """
    metadata = claim["metadata"]
    volume = store.latest(
        storage(PERSISTENT_VOLUME), Key("", at(claim, "spec", "volumeName") or "")
    )
    if volume is None or not _is_shared(volume.document()):
        return False
    for record in store.objects(storage(POD), metadata.get("namespace") or ""):
        pod = record.document()
        if at(pod, "spec", "nodeName") == node and any(
            at(each, "persistentVolumeClaim", "claimName") == metadata["name"]
            for each in at(pod, "spec", "volumes") or ()
        ):
            return True
    return False


def _is_shared(volume: Document) -> bool:
    terms = at(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") or ()
    return any(
        expression.get("key") == SHARED_LABEL
        for term in terms
        for expression in term.get("matchExpressions") or ()
    )


def names(store: Store, node: str, namespace: str, reference: Reference) -> bool:
    """Report whether the source of a claim on a node names an object of its namespace."""
    return any(
        reference in _references(record.data) and is_claim_at(record.document(), node, store)
        for record in store.objects(storage(CLAIM), namespace)
    )


def _references(data: bytes) -> set[Reference]:
    claim = decode_as(data, PersistentVolumeClaim)
    if is_populated(claim):
        return set()
    return set(_of_source(claim))


def _of_source(claim: PersistentVolumeClaim) -> Iterator[Reference]:
    try:
        request = populate_request(claim)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return
    for source in (request.source.http, request.source.registry) if request is not None else ():
        if source is not None:
            yield Reference(SECRET, source.secret_ref or "")
            yield Reference(CONFIG_MAP, source.cert_config_map or "")
    if request is not None and request.source.http is not None:
        for name in request.source.http.secret_extra_headers:
            yield Reference(SECRET, name)
