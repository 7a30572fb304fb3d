"""Builds the status of a HorizontalPodAutoscaler: conditions, current metrics, replicas."""

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
    """The status of an autoscaler during its sync."""

    def __init__(self, autoscaler: HorizontalPodAutoscaler, now: datetime) -> None:
        self._stored: Document = msgspec.to_builtins(autoscaler.status) if autoscaler.status else {}
        self._now = rfc3339(now)
        self._document: Document = dict(self._stored)
        self._document.setdefault("desiredReplicas", 0)

    def set_condition(
        self, condition: str, reason: str, message: str, *, is_true: bool = True
    ) -> None:
        """Set a condition to True or False."""
        self._document["conditions"] = set_condition(
            self._document.get("conditions"),
            condition,
            "True" if is_true else "False",
            reason=reason,
            message=message,
            now=self._now,
        )

    def is_true(self, condition: str) -> bool:
        """Report whether a condition is True."""
        found = get_condition(self._document.get("conditions"), condition)
        return found is not None and found["status"] == "True"

    def set_observed(self, current: int, metrics: Sequence[Document]) -> None:
        """Set current replicas and metrics; desired replicas stay."""
        self._document["currentReplicas"] = current
        self._document["currentMetrics"] = list(metrics) or None

    def set_desired(self, desired: int, *, is_scaled: bool) -> None:
        """Set the desired replicas."""
        self._document["desiredReplicas"] = desired
        if is_scaled:
            self._document["lastScaleTime"] = self._now

    def change(self) -> Document | None:
        """Return the merge patch of the status; None if the stored one is equal."""
        stored = {name: value for name, value in self._document.items() if value is not None}
        return None if stored == self._stored else self._document
