"""The kinds of corral.dev: names, versions, columns and validation."""

from corral.api.kind import Column, Kind, Scale, Version, at
from corral.api.kinds.columns import age, condition, field, number, value
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.corral.claim import BOUND, READY, VirtualMachineClaim
from corral.api.kinds.corral.claim_validation import default_claim, validate_claim
from corral.api.kinds.corral.warm_pool import GROUP, VirtualMachineWarmPool
from corral.api.kinds.corral.warm_pool_validation import default_warm_pool, validate_warm_pool
from corral.api.object import Document

WARM_POOL = Kind(
    group=GROUP,
    plural="virtualmachinewarmpools",
    short=("vmwp", "warmpool"),
    categories=("all",),
    versions=(Version(name="v1alpha1"),),
    view=VirtualMachineWarmPool,
    scale=Scale(),
    columns=(
        field("Target", "spec", "targetRef", "name", description="the set or pool that it is for"),
        number("Desired", "spec", "replicas", description="desired spares"),
        number("Ready", "status", "readyReplicas", description="spares that are ready"),
        number("Claimed", "status", "claimedReplicas", description="machines that were handed out"),
        age(),
    ),
    default=default_warm_pool,
    validate=validate_warm_pool,
)


def _first_address(document: Document) -> str | None:
    addresses = at(document, "status", "addresses")
    return addresses[0] if addresses else None


CLAIM = Kind(
    group=GROUP,
    plural="virtualmachineclaims",
    short=("vmclaim", "vmc"),
    categories=("all",),
    versions=(Version(name="v1alpha1"),),
    view=VirtualMachineClaim,
    columns=(
        field("Pool", "spec", "warmPoolRef", "name", description="the warm pool"),
        condition("Bound", BOUND, description="whether it has a machine"),
        condition("Ready", READY, description="whether its machine can be used"),
        field("Machine", "status", "vmi", "name", description="its machine"),
        Column(
            name="IP",
            cell=_first_address,
            description="the first address of its machine",
            json_path=".status.addresses[0]",
        ),
        age(),
        Column(
            name="Position",
            type="integer",
            cell=value("status", "position"),
            description="place among the claims that wait",
            priority=1,
            json_path=".status.position",
        ),
        field("Expires", "status", "expiresAt", description="when it expires", priority=1),
    ),
    default=default_claim,
    validate=validate_claim,
)

KINDS = (WARM_POOL, CLAIM, CHECKPOINT)
