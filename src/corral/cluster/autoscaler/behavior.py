"""How fast a number of replicas may be followed: what was recommended and done lately bounds it.

The rules are those of pkg/controller/podautoscaler/horizontal.go, but for what holds while metrics
are silent (``History.hold``).  Moments are seconds of a clock that never runs backwards.  What is
remembered lives in memory, as in Kubernetes: after a restart the present number counts as just
recommended, so that nothing is scaled down in haste.
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

DOWN_SECONDS = 300
"""For how long the highest recommendation holds, where nothing else is said."""
_FASTEST = 2
_ALWAYS_ALLOWED = 4
"""Without a behavior, so many times as many are made at once, or so many altogether."""


class Change(NamedTuple):
    """Something that was recommended, or done, at a moment."""

    moment: float
    replicas: int


@dataclass(slots=True)
class History:
    """What was recommended for one target lately, and by how many it was changed."""

    recommended: list[Change] = field(default_factory=list)
    held: list[Change] = field(default_factory=list)
    """What was recommended last, at each moment at which nothing was known."""
    added: list[Change] = field(default_factory=list)
    removed: list[Change] = field(default_factory=list)

    def begin(self, replicas: int, now: float) -> None:
        """What there is counts as recommended where nothing was."""
        if not self.recommended:
            self.recommended.append(Change(now, replicas))

    def recommend(
        self, replicas: int, behavior: HorizontalPodAutoscalerBehavior | None, now: float
    ) -> None:
        """Remember a recommendation, and none that matters no more."""
        oldest = now - max(_window(behavior, up=True), _window(behavior, up=False))
        self.recommended = [*_since(oldest, self.recommended), Change(now, replicas)]
        self.held = _since(oldest, self.held)

    def hold(self, behavior: HorizontalPodAutoscalerBehavior | None, now: float) -> None:
        """While nothing is known, what was recommended last still is.

        So a number that was high when the metrics fell silent is not low once they speak again.
        Such a number only keeps what there is: nothing is made for it, or not made.
        """
        oldest = now - _window(behavior, up=False)
        self.held = [*_since(oldest, self.held), Change(now, self.recommended[-1].replicas)]

    def scaled(
        self,
        before: int,
        after: int,
        behavior: HorizontalPodAutoscalerBehavior | None,
        now: float,
    ) -> None:
        """Remember a change of the target, for policies that say how much may change in a time."""
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
    """How many there are, and how few and how many there may be."""

    current: int
    least: int
    most: int


class Outcome(NamedTuple):
    """How many there shall be now, and what to tell of it: each a reason and a text."""

    replicas: int
    able: tuple[str, str]
    limit: tuple[str, str]
    is_limited: bool


_HELD = "recent recommendations were {} than current one, applying the {} recent recommendation"
_READY = ("ReadyForNewScale", "recommended size matches current size")
_DOWN_HELD = ("ScaleDownStabilized", _HELD.format("higher", "highest"))
_UP_HELD = ("ScaleUpStabilized", _HELD.format("lower", "lowest"))
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


def settle(
    wanted: int,
    bounds: Bounds,
    behavior: HorizontalPodAutoscalerBehavior | None,
    history: History,
    now: float,
) -> Outcome:
    """How many there shall be, where ``wanted`` is what the metrics ask for."""
    if behavior is None:
        steady, held = _highest(wanted, bounds.current, DOWN_SECONDS, history, now), _DOWN_HELD
    else:
        steady, held = _steady(wanted, bounds.current, behavior, history, now)
    replicas, limit = (
        _within(steady, bounds)
        if behavior is None
        else _within_rate(steady, bounds, behavior, history, now)
    )
    able = _READY if steady == wanted else held
    return Outcome(replicas, able, limit, is_limited=replicas != steady)


def _steady(
    wanted: int,
    current: int,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    now: float,
) -> tuple[int, tuple[str, str]]:
    """The present number, moved into what was recommended during each direction's window."""
    lowest = min([wanted, *_during(_window(behavior, up=True), history.recommended, now)])
    highest = _highest(wanted, current, _window(behavior, up=False), history, now)
    held = _UP_HELD if wanted >= current else _DOWN_HELD
    return min(max(current, lowest), highest), held


def _within(wanted: int, bounds: Bounds) -> tuple[int, tuple[str, str]]:
    fastest = max(_FASTEST * bounds.current, _ALWAYS_ALLOWED)
    if wanted < bounds.least:
        return bounds.least, _TOO_FEW
    if wanted > min(bounds.most, fastest):
        return min(bounds.most, fastest), _TOO_FAST_UP if fastest < bounds.most else _TOO_MANY
    return wanted, _WITHIN


def _within_rate(
    wanted: int,
    bounds: Bounds,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    now: float,
) -> tuple[int, tuple[str, str]]:
    current, least, most = bounds
    if wanted > current:
        fastest = max(current, _fastest(current, behavior, history, now, up=True))
        if wanted > min(most, fastest):
            return min(most, fastest), _TOO_FAST_UP if fastest < most else _TOO_MANY
    elif wanted < current:
        slowest = min(current, _fastest(current, behavior, history, now, up=False))
        if wanted < max(least, slowest):
            return max(least, slowest), _TOO_FAST_DOWN if slowest > least else _TOO_FEW
    return wanted, _WITHIN


def _fastest(
    current: int,
    behavior: HorizontalPodAutoscalerBehavior,
    history: History,
    now: float,
    *,
    up: bool,
) -> int:
    """How far the policies of a direction let the number go at this moment."""
    rules = _rules(behavior, up=up)
    select = (rules and rules.selectPolicy) or "Max"
    if select == "Disabled":
        return current
    reached = []
    for policy in _policies(behavior, up=up):
        oldest = now - policy.periodSeconds
        added = sum(change.replicas for change in _since(oldest, history.added))
        removed = sum(change.replicas for change in _since(oldest, history.removed))
        reached.append(_moved(current - added + removed, policy, up=up))
    farthest = max if up == (select == "Max") else min
    return farthest(reached)


def _moved(start: int, policy: HPAScalingPolicy, *, up: bool) -> int:
    """Where a policy lets a number go that was ``start`` when its period began."""
    if policy.type == "Pods":
        return start + policy.value if up else start - policy.value
    if up:
        return math.ceil(start * (1 + policy.value / 100))
    return int(start * (1 - policy.value / 100))


def _rules(behavior: HorizontalPodAutoscalerBehavior, *, up: bool) -> HPAScalingRules | None:
    return behavior.scaleUp if up else behavior.scaleDown


_DEFAULT_POLICIES = {
    True: (
        HPAScalingPolicy(type="Pods", value=_ALWAYS_ALLOWED, periodSeconds=15),
        HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),
    ),
    False: (HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),),
}


def _policies(behavior: HorizontalPodAutoscalerBehavior, *, up: bool) -> Sequence[HPAScalingPolicy]:
    rules = _rules(behavior, up=up)
    return (rules and rules.policies) or _DEFAULT_POLICIES[up]


def _window(behavior: HorizontalPodAutoscalerBehavior | None, *, up: bool) -> int:
    """Seconds for which recommendations hold a direction back."""
    rules = _rules(behavior, up=up) if behavior is not None else None
    if rules is not None and rules.stabilizationWindowSeconds is not None:
        return rules.stabilizationWindowSeconds
    return 0 if up else DOWN_SECONDS


def _highest(wanted: int, current: int, seconds: float, history: History, now: float) -> int:
    """The most that was asked for in a time; what was held keeps no more than there is."""
    held = (min(each, current) for each in _during(seconds, history.held, now))
    return max([wanted, *_during(seconds, history.recommended, now), *held])


def _during(seconds: float, changes: Iterable[Change], now: float) -> list[int]:
    return [change.replicas for change in _since(now - seconds, changes)]


def _since(moment: float, changes: Iterable[Change]) -> list[Change]:
    """Changes after a moment; what happened just then is over."""
    return [change for change in changes if change.moment > moment]
