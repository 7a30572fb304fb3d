"""Rolling updates of workloads: defaults and validation."""

from corral.api.errors import Cause
from corral.api.kinds.pod_disruption_budget import bound_causes
from corral.api.object import Document

RECREATE, ROLLING, ON_DELETE = "Recreate", "RollingUpdate", "OnDelete"
STEPS = ("maxUnavailable", "maxSurge")
"""The steps of a rolling update: numbers or percentages of pods."""


def default_strategy(strategy: Document, *steps: int | str) -> None:
    """Default the strategy to a rolling update with these steps."""
    if not strategy.get("type"):
        strategy["type"] = ROLLING
    if strategy["type"] == ROLLING:
        rolling = strategy.setdefault("rollingUpdate", {})
        for name, step in zip(STEPS, steps, strict=True):
            rolling.setdefault(name, step)


def step_causes(path: str, rolling: Document) -> list[Cause]:
    """Check each of the steps."""
    return [cause for name in STEPS for cause in bound_causes(f"{path}.{name}", rolling[name])]
