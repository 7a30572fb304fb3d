"""autoscaling/v1 Scale: how many are wanted, in one form for every kind that can be scaled.

It is no kind that is served: it is what ``/scale`` below objects takes and answers.
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
        number("Desired", "spec", "replicas", description="how many are wanted"),
        number("Available", "status", "replicas", description="how many there are"),
        age(),
    ),
)
