"""The kinds that the agent of a node reads and writes."""

from typing import Final

from corral.api.kind import Kind
from corral.api.kinds.auth import authentication, authorization, certificate_signing_request
from corral.api.kinds.core import event, kinds as core, pod
from corral.api.kinds.corral import checkpoint_kind
from corral.api.kinds.kubevirt import kinds as kubevirt
from corral.api.kinds.networking import endpointslice, networkpolicy, service
from corral.api.kinds.storage import persistentvolume, persistentvolumeclaim, storageclass

NODE_KINDS: Final[tuple[Kind, ...]] = (
    *core.KINDS,
    event.EVENT,
    *pod.KINDS,
    service.SERVICE,
    endpointslice.ENDPOINT_SLICE,
    networkpolicy.NETWORK_POLICY,
    persistentvolumeclaim.CLAIM,
    persistentvolume.PERSISTENT_VOLUME,
    storageclass.STORAGE_CLASS,
    kubevirt.VIRTUAL_MACHINE_INSTANCE,
    checkpoint_kind.CHECKPOINT,
    *authentication.KINDS,
    *authorization.KINDS,
    certificate_signing_request.SIGNING_REQUEST,
)
