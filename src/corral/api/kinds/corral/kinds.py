"""The kinds of corral.dev: names, versions, columns and validation."""

from corral.api.kind import Kind, Scale, Version
from corral.api.kinds.columns import age, field, number
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.corral.warm_pool import GROUP, VirtualMachineWarmPool
from corral.api.kinds.corral.warm_pool_validation import default_warm_pool, validate_warm_pool

WARM_POOL = Kind(
    group=GROUP,
    plural="virtualmachinewarmpools",
    short=("vmwp", "warmpool"),
    categories=("all",),
    versions=(Version(name="v1alpha1"),),
    view=VirtualMachineWarmPool,
    scale=Scale(),
    columns=(
        field("Target", "spec", "targetRef", "name", description="the set that spares are for"),
        number("Desired", "spec", "replicas", description="desired spares"),
        number("Ready", "status", "readyReplicas", description="spares that are ready"),
        number("Claimed", "status", "claimed", description="machines that were handed out"),
        age(),
    ),
    default=default_warm_pool,
    validate=validate_warm_pool,
)

KINDS = (WARM_POOL, CHECKPOINT)
