"""VirtualMachineWarmPool: VMIs that are started in advance, for sets and claims."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from corral.api.kinds.kubevirt.replicaset import ReplicaSetTemplate
from corral.api.object import Condition, Object, Struct

GROUP: Final = "corral.dev"

WARM_POOL_KIND: Final = "VirtualMachineWarmPool"
WARM_POOL_LABEL: Final = "corral.dev/warm-pool"
"""Label of a spare and of its pod: the warm pool.  It is removed when the spare is handed out."""
TEMPLATE_HASH_LABEL: Final = "corral.dev/template-hash"
"""Label of a spare and of its pod: the hash of the template that it was made from."""
CHECKPOINT_SOURCE_LABEL: Final = "corral.dev/checkpoint-source"
"""Label of the VMI that a warm pool makes its checkpoint of, in place of the hash: it is not
handed out meanwhile."""
SPARE_LABELS: Final = (WARM_POOL_LABEL, TEMPLATE_HASH_LABEL, CHECKPOINT_SOURCE_LABEL)
FROM_WARM_POOL: Final = "corral.dev/from-warm-pool"
"""Annotation of a VMI that has been handed out: the warm pool that it comes from."""

FROM_BOOT, FROM_CHECKPOINT = "Boot", "Checkpoint"
RUNNING, SAVED = "Running", "Saved"

Replicas = Annotated[int, msgspec.Meta(ge=0, le=2147483647)]


class TargetReference(Struct, kw_only=True):
    """A reference to the set that spares are for, or to a pool, in the same namespace.

    api_version: kubevirt.io/v1, or pool.kubevirt.io/v1beta1 of a VirtualMachinePool.
    kind: VirtualMachineInstanceReplicaSet; or VirtualMachinePool, whose members start from the
    checkpoint of the warm pool.
    name: the name of the set or pool.
    """

    api_version: str
    kind: str
    name: str


class WarmPoolSpec(Struct, kw_only=True):
    """Desired state of the warm pool: exactly one of targetRef and template.

    target_ref: the set that the spares are for, or a VirtualMachinePool; they are made from its
    template.
    template: template of the spares, for claims.
    replicas: spares to keep ready, 1 by default; 0 for a VirtualMachinePool.
    start_from: how a spare starts: Boot (the default), or Checkpoint: as a copy of one that has
    booted.
    state: what a spare is kept as: Running (the default), or Paused once it is ready, so that it
    uses no CPU until it is handed out; Saved is not supported yet.
    max_age: age at which spares and checkpoint are made anew, 60s or more; never by default.
    """

    target_ref: TargetReference | None = None
    template: ReplicaSetTemplate | None = None
    replicas: Replicas = 1
    start_from: Literal["Boot", "Checkpoint"] = "Boot"
    state: Literal["Running", "Paused", "Saved"] = "Running"
    max_age: str | None = None


class WarmPoolStatus(Struct, kw_only=True):
    """Observed state of the warm pool.

    replicas: spares that are neither finished nor being deleted.
    ready_replicas: those of them that are ready to be handed out.
    claimed_replicas: machines that were handed out and still exist.
    checkpoint: the VirtualMachineCheckpoint that new spares start from.
    label_selector: the selector of spares as text, for autoscalers.
    observed_generation: the generation of the spec that this status is about.
    conditions: Ready, and CheckpointReady if spares, or members, start from a checkpoint.
    """

    replicas: int = 0
    ready_replicas: int = 0
    claimed_replicas: int = 0
    checkpoint: str = ""
    label_selector: str = ""
    observed_generation: int = 0
    conditions: list[Condition] = []


class VirtualMachineWarmPool(Object, kw_only=True):
    """Machines that are kept ready: a set or a claim that needs one is given a spare at once.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1alpha1"
    kind: ClassVar[str] = WARM_POOL_KIND

    spec: WarmPoolSpec
    status: WarmPoolStatus = msgspec.field(default_factory=WarmPoolStatus)
