"""autoscaling/v1 Scale: the object of the subresource ``/scale``.

It is not a kind of its own: it is only read and written through ``/scale``.
"""

from typing import Final

from lightkube.models.autoscaling_v1 import Scale

from corral.api.kinds.columns import age, number
from corral.api.kinds.kubernetes_kind import kubernetes_kind

SCALE: Final = kubernetes_kind(
    group="autoscaling",
    plural="scales",
    view=Scale,
    columns=(
        number("Desired", "spec", "replicas", description="desired replicas"),
        number("Available", "status", "replicas", description="observed replicas"),
        age(),
    ),
)
