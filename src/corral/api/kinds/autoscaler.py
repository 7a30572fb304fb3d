"""HorizontalPodAutoscaler: sets how many of something there are, by how busy they are.

Stored as autoscaling/v2.  What may be written into one is in ``autoscaler_rules``.
"""

from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler

from corral.api.kind import Column, Kind, Version, at
from corral.api.kinds.autoscaler_defaults import default
from corral.api.kinds.columns import age, value
from corral.api.object import Document

GROUP = "autoscaling"


def _reference(document: Document) -> str:
    target = at(document, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


HORIZONTAL_POD_AUTOSCALER = Kind(
    group=GROUP,
    name="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
    singular="horizontalpodautoscaler",
    short=("hpa",),
    categories=("all",),
    versions=(Version(name="v2"),),
    view=HorizontalPodAutoscaler,
    native=True,
    columns=(
        Column(name="Reference", cell=_reference, description="what it scales"),
        Column(
            name="MinPods",
            cell=lambda document: str(at(document, "spec", "minReplicas") or "<unset>"),
            description="how few there may be",
        ),
        Column(
            name="MaxPods",
            type="integer",
            cell=value("spec", "maxReplicas"),
            description="how many there may be",
        ),
        Column(
            name="Replicas",
            type="integer",
            cell=lambda document: at(document, "status", "currentReplicas") or 0,
            description="how many there are",
        ),
        age(),
    ),
    default=default,
)
