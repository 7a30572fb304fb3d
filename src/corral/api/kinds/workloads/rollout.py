"""How the pods of a workload are replaced when its template changes."""

from corral.api.errors import Cause
from corral.api.kinds.pod_disruption_budget import bound_causes
from corral.api.object import Document

RECREATE, ROLLING, ON_DELETE = "Recreate", "RollingUpdate", "OnDelete"
STEPS = ("maxUnavailable", "maxSurge")
"""How many pods a step of a rolling update may take away and add: counts, or shares of all."""


def default_strategy(strategy: Document, *steps: int | str) -> None:
    """Pods are replaced step by step, in such steps, where nothing else is said."""
    if not strategy.get("type"):
        strategy["type"] = ROLLING
    if strategy["type"] == ROLLING:
        rolling = strategy.setdefault("rollingUpdate", {})
        for name, step in zip(STEPS, steps, strict=True):
            rolling.setdefault(name, step)


def step_causes(path: str, rolling: Document) -> list[Cause]:
    """What is wrong with each of the steps by itself."""
    return [cause for name in STEPS for cause in bound_causes(f"{path}.{name}", rolling[name])]
