"""What an autoscaler says of itself: conditions, what its metrics are at, how many there are."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from lightkube.models.autoscaling_v2 import HorizontalPodAutoscaler

from corral.api.conditions import get_condition, set_condition
from corral.api.object import Document
from corral.api.time import rfc3339

ABLE = "AbleToScale"
ACTIVE = "ScalingActive"
LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"


class Status:
    """The status that an autoscaler has, while it is brought up to date."""

    def __init__(self, autoscaler: HorizontalPodAutoscaler, now: datetime) -> None:
        self._stored: Document = msgspec.to_builtins(autoscaler.status) if autoscaler.status else {}
        self._now = rfc3339(now)
        self._document: Document = dict(self._stored)
        self._document.setdefault("desiredReplicas", 0)

    def say(self, condition: str, reason: str, message: str, *, holds: bool = True) -> None:
        """Set a condition to True, or False where it does not hold."""
        self._document["conditions"] = set_condition(
            self._document.get("conditions"),
            condition,
            "True" if holds else "False",
            reason=reason,
            message=message,
            now=self._now,
        )

    def says(self, condition: str) -> bool:
        """Whether a condition holds."""
        found = get_condition(self._document.get("conditions"), condition)
        return found is not None and found["status"] == "True"

    def counted(self, current: int, metrics: Sequence[Document]) -> None:
        """There are so many, and the metrics are at this; what was wanted last stays said."""
        self._document["currentReplicas"] = current
        self._document["currentMetrics"] = list(metrics) or None

    def decided(self, desired: int, *, is_change: bool) -> None:
        """There shall be so many."""
        self._document["desiredReplicas"] = desired
        if is_change:
            self._document["lastScaleTime"] = self._now

    def change(self) -> Document | None:
        """The status as a merge patch writes it; None where the stored one says the same."""
        said = {name: value for name, value in self._document.items() if value is not None}
        return None if said == self._stored else self._document
