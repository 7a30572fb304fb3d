"""autoscaling/v1 Scale: how many are wanted, in one form for every kind that can be scaled.

It is no kind that is served: it is what ``/scale`` below objects takes and answers.
"""

from typing import Final

from lightkube.models.autoscaling_v1 import Scale

from corral.api.kind import Kind, Version
from corral.api.kinds.columns import age, number

SCALE: Final = Kind(
    group="autoscaling",
    name="Scale",
    plural="scales",
    versions=(Version(name="v1"),),
    view=Scale,
    native=True,
    columns=(
        number("Desired", "spec", "replicas", description="how many are wanted"),
        number("Available", "status", "replicas", description="how many there are"),
        age(),
    ),
)
