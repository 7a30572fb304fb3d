"""StorageVersionMigration (storagemigration.k8s.io)."""

from lightkube.models.storagemigration_v1 import StorageVersionMigration

from corral.api.kinds.columns import age
from corral.api.kinds.unimplemented.row import unimplemented

KINDS = (
    unimplemented(
        StorageVersionMigration,
        "storageversionmigrations",
        "storagemigration.k8s.io/v1",
        age(),
        why="corral stores each kind in one version",
        status=True,
    ),
)
