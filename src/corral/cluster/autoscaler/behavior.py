"""Limits the rate of scaling: stabilization windows and scaling policies.

The rules are those of pkg/controller/podautoscaler/horizontal.go, except while metrics are
unavailable (``History.hold``). Times are seconds of a monotonic clock. History is in memory, as in
Kubernetes: after a restart the present number counts as just recommended, so that nothing is scaled
down at once.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lightkube.models.autoscaling_v2 import (
    HorizontalPodAutoscalerBehavior,
    HPAScalingPolicy,
    HPAScalingRules,
)

DOWN_WINDOW_SECONDS = 300
"""Default stabilization window for scaling down."""
_MAX_FACTOR = 2
"""Without a behavior: maximum factor of one scale-up."""
_MIN_LIMIT = 4
"""Without a behavior: replicas that one scale-up may always reach."""


class Change(NamedTuple):
    """A recommendation, or a change, at a time."""

    time: float
    replicas: int


@dataclass(slots=True)
class History:
    """Recent recommendations for one target, and recent changes of it."""

    recommended: list[Change] = field(default_factory=list)
    repeated: list[Change] = field(default_factory=list)
    """The last recommendation, repeated whenever metrics were unavailable."""
    added: list[Change] = field(default_factory=list)
    removed: list[Change] = field(default_factory=list)

    def begin(self, replicas: int, now: float) -> None:
        """Take the present number as the first recommendation."""
        if not self.recommended:
            self.recommended.append(Change(now, replicas))

    def recommend(
        self, replicas: int, behavior: HorizontalPodAutoscalerBehavior | None, now: float
    ) -> None:
        """Add a recommendation; drop those older than both windows."""
        oldest = now - max(_window(behavior, up=True), _window(behavior, up=False))
        self.recommended = [*_since(oldest, self.recommended), Change(now, replicas)]
        self.repeated = _since(oldest, self.repeated)

    def repeat_last(self, behavior: HorizontalPodAutoscalerBehavior | None, now: float) -> None:
        """Repeat the last recommendation while metrics are unavailable.

        So a number that was high when the metrics failed still prevents scaling down once they are
        back. It never causes scaling up.
        """
        oldest = now - _window(behavior, up=False)
        self.repeated = [*_since(oldest, self.repeated), Change(now, self.recommended[-1].replicas)]

    def scaled(
        self,
        before: int,
        after: int,
        behavior: HorizontalPodAutoscalerBehavior | None,
        now: float,
    ) -> None:
        """Add a change of the target, for policies that limit changes per period."""
        if behavior is None:
            return
        policies = (*_policies(behavior, up=True), *_policies(behavior, up=False))
        oldest = now - max(policy.periodSeconds for policy in policies)
        change = Change(now, abs(after - before))
        if after > before:
            self.added = [*_since(oldest, self.added), change]
        else:
            self.removed = [*_since(oldest, self.removed), change]


class Bounds(NamedTuple):
    """Present, minimum and maximum number of replicas."""

    current: int
    minimum: int
    maximum: int


class Outcome(NamedTuple):
    """The desired replicas, and the conditions AbleToScale and ScalingLimited.

    Each condition is a pair of reason and message.
    """

    replicas: int
    able: tuple[str, str]
    limit: tuple[str, str]
    is_limited: bool


_STABILIZED = (
    "recent recommendations were {} than current one, applying the {} recent recommendation"
)
_READY = ("ReadyForNewScale", "recommended size matches current size")
_DOWN_STABILIZED = ("ScaleDownStabilized", _STABILIZED.format("higher", "highest"))
_UP_STABILIZED = ("ScaleUpStabilized", _STABILIZED.format("lower", "lowest"))
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FAST_UP = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
_TOO_FAST_DOWN = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)


def normalize(
    proposed: int,
    bounds: Bounds,
    behavior: HorizontalPodAutoscalerBehavior | None,
    history: History,
    now: float,
) -> Outcome:
    """Return the desired replicas, where ``proposed`` is what the metrics propose."""
    if behavior is None:
        stabilized_count = _highest(proposed, bounds.current, DOWN_WINDOW_SECONDS, history, now)
        stabilized = _DOWN_STABILIZED
    else:
        stabilized_count, stabilized = _stabilize(proposed, bounds.current, behavior, history, now)
    replicas, limit = (
        _limit(stabilized_count, bounds)
        if behavior is None
        else _limit_by_policies(stabilized_count, bounds, behavior, history, now)
    )
    able = _READY if stabilized_count == proposed else stabilized
    return Outcome(replicas, able, limit, is_limited=replicas != stabilized_count)


def _stabilize(
    proposed: int,
    current: int,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    now: float,
) -> tuple[int, tuple[str, str]]:
    """Return the present number, moved into the recommendations of both windows."""
    lowest = min([proposed, *_during(_window(behavior, up=True), history.recommended, now)])
    highest = _highest(proposed, current, _window(behavior, up=False), history, now)
    stabilized = _UP_STABILIZED if proposed >= current else _DOWN_STABILIZED
    return min(max(current, lowest), highest), stabilized


def _limit(proposed: int, bounds: Bounds) -> tuple[int, tuple[str, str]]:
    upper = max(_MAX_FACTOR * bounds.current, _MIN_LIMIT)
    if proposed < bounds.minimum:
        return bounds.minimum, _TOO_FEW
    if proposed > min(bounds.maximum, upper):
        return min(bounds.maximum, upper), _TOO_FAST_UP if upper < bounds.maximum else _TOO_MANY
    return proposed, _WITHIN


def _limit_by_policies(
    proposed: int,
    bounds: Bounds,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    now: float,
) -> tuple[int, tuple[str, str]]:
    current, minimum, maximum = bounds
    if proposed > current:
        upper = max(current, _policy_limit(current, behavior, history, now, up=True))
        if proposed > min(maximum, upper):
            return min(maximum, upper), _TOO_FAST_UP if upper < maximum else _TOO_MANY
    elif proposed < current:
        lower = min(current, _policy_limit(current, behavior, history, now, up=False))
        if proposed < max(minimum, lower):
            return max(minimum, lower), _TOO_FAST_DOWN if lower > minimum else _TOO_FEW
    return proposed, _WITHIN


def _policy_limit(
    current: int,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    now: float,
    *,
    up: bool,
) -> int:
    """Return the limit that the policies of a direction set now."""
    rules = _rules(behavior, up=up)
    select = (rules and rules.selectPolicy) or "Max"
    if select == "Disabled":
        return current
    limits = []
    for policy in _policies(behavior, up=up):
        oldest = now - policy.periodSeconds
        added = sum(change.replicas for change in _since(oldest, history.added))
        removed = sum(change.replicas for change in _since(oldest, history.removed))
        limits.append(_limit_of(current - added + removed, policy, up=up))
    select_limit = max if up == (select == "Max") else min
    return select_limit(limits)


def _limit_of(start: int, policy: HPAScalingPolicy, *, up: bool) -> int:
    """Return the limit of a policy for a number that was ``start`` when its period began."""
    if policy.type == "Pods":
        return start + policy.value if up else start - policy.value
    if up:
        return math.ceil(start * (1 + policy.value / 100))
    return int(start * (1 - policy.value / 100))


def _rules(behavior: HorizontalPodAutoscalerBehavior, *, up: bool) -> HPAScalingRules | None:
    return behavior.scaleUp if up else behavior.scaleDown


_DEFAULT_POLICIES = {
    True: (
        HPAScalingPolicy(type="Pods", value=_MIN_LIMIT, periodSeconds=15),
        HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),
    ),
    False: (HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),),
}


def _policies(behavior: HorizontalPodAutoscalerBehavior, *, up: bool) -> Sequence[HPAScalingPolicy]:
    rules = _rules(behavior, up=up)
    return (rules and rules.policies) or _DEFAULT_POLICIES[up]


def _window(behavior: HorizontalPodAutoscalerBehavior | None, *, up: bool) -> int:
    """Return the stabilization window of a direction in seconds."""
    rules = _rules(behavior, up=up) if behavior is not None else None
    if rules is not None and rules.stabilizationWindowSeconds is not None:
        return rules.stabilizationWindowSeconds
    return 0 if up else DOWN_WINDOW_SECONDS


def _highest(proposed: int, current: int, seconds: float, history: History, now: float) -> int:
    """Return the highest recommendation in a window; repeated ones count up to ``current``."""
    repeated = (min(each, current) for each in _during(seconds, history.repeated, now))
    return max([proposed, *_during(seconds, history.recommended, now), *repeated])


def _during(seconds: float, changes: Iterable[Change], now: float) -> list[int]:
    return [change.replicas for change in _since(now - seconds, changes)]


def _since(time: float, changes: Iterable[Change]) -> list[Change]:
    """Return changes after a time, without those at that time."""
    return [change for change in changes if change.time > time]
