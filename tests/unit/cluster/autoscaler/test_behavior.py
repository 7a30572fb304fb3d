"""How fast a number of replicas may be followed: cases of Kubernetes' documentation and tests.

Each case names its source: KEP is enhancement 853 (configurable scale velocity), HC the tests of
pkg/controller/podautoscaler/horizontal.go.
"""

from dataclasses import dataclass

import pytest
from lightkube.models.autoscaling_v2 import (
    HorizontalPodAutoscalerBehavior as Behavior,
    HPAScalingPolicy,
    HPAScalingRules,
)

from corral.cluster.autoscaler.behavior import Bounds, Change, History, normalize

NOW = 10_000.0


def rules(pods=0, pods_period=60, percent=0, percent_period=60, window=0, select="Max"):
    """Rules as HC writes them: at most so many pods, or so many percent, in a time."""
    policies = []
    if pods:
        policies.append(HPAScalingPolicy(type="Pods", value=pods, periodSeconds=pods_period))
    if percent:
        policies.append(
            HPAScalingPolicy(type="Percent", value=percent, periodSeconds=percent_period)
        )
    return HPAScalingRules(
        policies=policies, selectPolicy=select, stabilizationWindowSeconds=window
    )


def spread(changes, seconds: float) -> list[Change]:
    """Changes in the middle of equal parts of the last seconds."""
    part = seconds / len(changes)
    return [
        Change(NOW - seconds + part * (index + 0.5), change) for index, change in enumerate(changes)
    ]


@dataclass(frozen=True)
class Case:
    source: str
    current: int
    proposed: int
    minimum: int
    maximum: int
    replicas: int
    reason: str
    up: HPAScalingRules | None = None
    down: HPAScalingRules | None = None
    added: tuple = ()
    removed: tuple = ()

    def __str__(self) -> str:
        return self.source.replace(" ", "-")


WITHIN = "DesiredWithinRange"
LATELY = (1, 5, 9)
RATES = [
    Case("HC within range", 5, 7, 3, 8, 7, WITHIN),
    Case("HC below the least", 3, 1, 2, 8, 2, "TooFewReplicas"),
    Case("HC none where none may be", 1, 0, 0, 10, 0, WITHIN),
    Case("HC above the most", 100, 1000, 100, 150, 150, "TooManyReplicas"),
    Case("HC one percent is one pod", 3, 1000, 1, 2000, 4, "ScaleUpLimit", rules(percent=1)),
    Case("HC default behavior doubles", 10, 50, 1, 1000, 20, "ScaleUpLimit"),
    Case("HC more pods than percent", 10, 500, 1, 1000, 110, "ScaleUpLimit", rules(100, 60, 100)),
    Case("HC more percent than pods", 10, 500, 1, 1000, 20, "ScaleUpLimit", rules(2, 60, 100)),
    Case("HC as many pods as are desired", 10, 50, 1, 1000, 50, WITHIN, rules(100)),
    Case("HC fewer pods than are desired", 10, 50, 1, 1000, 40, "ScaleUpLimit", rules(30)),
    Case("HC percent up", 10, 50, 1, 1000, 30, "ScaleUpLimit", rules(percent=200)),
    Case("HC the lesser of two", 1, 9, 1, 10, 2, "ScaleUpLimit", rules(2, 60, 50, select="Min")),
    Case("HC pods down", 100, 2, 1, 1000, 80, "ScaleDownLimit", down=rules(20, 60, 1)),
    Case(
        "HC percent against pods down", 100, 2, 1, 1000, 98, "ScaleDownLimit", down=rules(2, 60, 1)
    ),
    Case("HC many pods down to the least", 10, 0, 1, 1000, 1, "TooFewReplicas", down=rules(100)),
    Case(
        "HC all percent down to the least",
        10,
        2,
        5,
        1000,
        5,
        "TooFewReplicas",
        down=rules(percent=100),
    ),
    Case("HC five pods down", 10, 2, 1, 1000, 5, "ScaleDownLimit", down=rules(5)),
    Case("HC half down", 10, 5, 1, 1000, 5, WITHIN, down=rules(percent=50)),
    Case(
        "HC the lesser of two down",
        5,
        1,
        1,
        10,
        3,
        "ScaleDownLimit",
        down=rules(2, 60, 50, select="Min"),
    ),
    Case(
        "HC up to the most after some",
        100,
        500,
        1,
        200,
        200,
        "TooManyReplicas",
        rules(300),
        added=LATELY,
    ),
    Case(
        "HC percent to the most after some",
        100,
        500,
        1,
        200,
        200,
        "TooManyReplicas",
        rules(percent=10000),
        added=LATELY,
    ),
    Case(
        "HC none after too many",
        100,
        500,
        1,
        1000,
        100,
        "ScaleUpLimit",
        rules(5, 120),
        added=LATELY,
    ),
    Case(
        "HC pods after some", 100, 500, 1, 1000, 235, "ScaleUpLimit", rules(150, 120), added=LATELY
    ),
    Case(
        "HC percent after some",
        100,
        500,
        1,
        1000,
        255,
        "ScaleUpLimit",
        rules(percent=200, percent_period=120),
        added=LATELY,
    ),
    Case(
        "HC percent after ups and downs",
        6,
        24,
        1,
        1000,
        16,
        "ScaleUpLimit",
        rules(percent=300, percent_period=300),
        added=(4,),
        removed=(2,),
    ),
    Case("HC default down after some", 10, 5, 1, 1000, 5, WITHIN, removed=LATELY),
    Case(
        "HC many pods down after some",
        100,
        0,
        1,
        1000,
        1,
        "TooFewReplicas",
        down=rules(115, 120),
        removed=LATELY,
    ),
    Case(
        "HC none down after too many",
        100,
        2,
        1,
        1000,
        100,
        "ScaleDownLimit",
        down=rules(5, 120),
        removed=LATELY,
    ),
    Case(
        "HC percent down after some",
        100,
        0,
        1,
        1000,
        56,
        "ScaleDownLimit",
        down=rules(percent=50, percent_period=120),
        removed=(2, 4, 6),
    ),
    Case(
        "HC percent down after ups and downs",
        10,
        1,
        1,
        1000,
        6,
        "ScaleDownLimit",
        down=rules(percent=50, percent_period=180),
        added=(2,),
        removed=(4,),
    ),
    Case(
        "HC no more down after a tenth",
        100,
        0,
        1,
        1000,
        100,
        "ScaleDownLimit",
        down=rules(percent=10, percent_period=120),
        removed=(10, 10, 10),
    ),
    Case(
        "HC below nothing is as desired",
        10,
        5,
        1,
        1000,
        5,
        WITHIN,
        down=rules(percent=1000, percent_period=120),
        removed=(10, 10, 10),
    ),
    Case("KEP story 1", 10, 1000, 1, 1000, 100, "ScaleUpLimit", rules(percent=900)),
    Case(
        "KEP story 4 never down",
        10,
        1,
        1,
        20,
        10,
        "ScaleDownLimit",
        down=HPAScalingRules(selectPolicy="Disabled", stabilizationWindowSeconds=0),
    ),
    Case(
        "KEP never up", 10, 15, 1, 20, 10, "ScaleUpLimit", HPAScalingRules(selectPolicy="Disabled")
    ),
]


@pytest.mark.parametrize("case", RATES, ids=str)
def test_policies_limit_the_change_of_replicas(case):
    quick = HPAScalingRules(stabilizationWindowSeconds=0)
    history = History(
        added=spread(case.added, 120) if case.added else [],
        removed=spread(case.removed, 120) if case.removed else [],
    )
    bounds = Bounds(case.current, case.minimum, case.maximum)
    behavior = Behavior(scaleUp=case.up, scaleDown=case.down or quick)
    outcome = normalize(case.proposed, bounds, behavior, history, NOW)
    assert (outcome.replicas, outcome.limit[0]) == (case.replicas, case.reason)
    assert outcome.is_limited is (case.reason != WITHIN)
    assert outcome.able == ("ReadyForNewScale", "recommended size matches current size")


@pytest.mark.parametrize(
    ("current", "proposed", "minimum", "maximum", "replicas", "reason"),
    [
        # HC TestConvertDesiredReplicasWithRules
        (5, 7, 3, 8, 7, WITHIN),
        (3, 1, 2, 8, 2, "TooFewReplicas"),
        (1, 0, 0, 10, 0, WITHIN),
        (20, 1000, 1, 10, 10, "TooManyReplicas"),
        (3, 1000, 1, 2000, 6, "ScaleUpLimit"),
        # ... of few, four are made at once
        (1, 1000, 1, 2000, 4, "ScaleUpLimit"),
        (0, 9, 0, 10, 4, "ScaleUpLimit"),
    ],
)
def test_without_behavior_replicas_at_most_double(
    current, proposed, minimum, maximum, replicas, reason
):
    outcome = normalize(proposed, Bounds(current, minimum, maximum), None, History(), NOW)
    assert (outcome.replicas, outcome.limit[0]) == (replicas, reason)


MINUTE = 60.0


@pytest.mark.parametrize(
    ("recommended", "proposed", "replicas"),
    [
        # HC TestNormalizeDesiredReplicas: minutes ago, and what was recommended then
        ({}, 5, 5),
        ({2: 4, 1: 5}, 3, 5),
        ({2: 1, 1: 2}, 3, 3),
        ({10: 10, 9: 9}, 3, 3),
        ({10: 10, 1: 4, 2: 5, 9: 9}, 3, 5),
        # what was recommended five minutes ago just does not count any more
        ({5: 9}, 3, 3),
        ({4.99: 9}, 3, 9),
    ],
)
def test_without_behavior_the_highest_recommendation_of_five_minutes_counts(
    recommended, proposed, replicas
):
    lately = [Change(NOW - ago * MINUTE, count) for ago, count in recommended.items()]
    outcome = normalize(proposed, Bounds(9, 1, 10), None, History(recommended=lately), NOW)
    assert outcome.replicas == replicas
    is_held = replicas != proposed
    assert outcome.able[0] == ("ScaleDownStabilized" if is_held else "ReadyForNewScale")


def follow(behavior: Behavior | None, current: int, recommendations) -> list[int]:
    """Return the replicas after each of some recommendations, one a minute."""
    history, numbers = History(), []
    for minute, desired in enumerate(recommendations):
        now = NOW + minute * MINUTE
        history.begin(current, now)
        outcome = normalize(desired, Bounds(current, 1, 1000), behavior, history, now)
        history.recommend(desired, behavior, now)
        if outcome.replicas != current:
            history.scaled(current, outcome.replicas, behavior, now)
        current = outcome.replicas
        numbers.append(current)
    return numbers


def test_replicas_scale_up_tenfold_a_minute():
    """KEP story 1."""
    behavior = Behavior(scaleUp=rules(percent=900))
    assert follow(behavior, 1, [1000] * 3) == [10, 100, 1000]


def test_replicas_scale_down_by_one_in_ten_minutes():
    """KEP story 2; the first waits for the stabilization of five minutes."""
    behavior = Behavior(scaleDown=rules(1, 600, window=300))
    numbers = follow(behavior, 1000, [1] * 26)
    assert [numbers.index(count) for count in (999, 998, 997)] == [5, 15, 25]


def test_replicas_scale_up_by_one_in_five_minutes():
    """KEP story 3."""
    behavior = Behavior(scaleUp=rules(1, 300))
    numbers = follow(behavior, 1, [4] * 11)
    assert [numbers.index(count) for count in (2, 3, 4)] == [0, 5, 10]


def test_the_largest_recommendation_of_the_window_delays_a_scale_down():
    """KEP story 5."""
    behavior = Behavior(scaleDown=rules(5, 60, window=600))
    numbers = follow(behavior, 10, [10, 9, 8, 9, 9, 8, 9, 8, 9, 8, 7])
    assert numbers == [10] * 10 + [9]


def test_the_smallest_recommendation_of_the_window_delays_a_scale_up():
    """KEP story 6."""
    behavior = Behavior(scaleUp=rules(20, 60, window=300))
    numbers = follow(behavior, 2, [2, 3, 19, 10, 3, 4, 7])
    assert numbers == [2, 2, 2, 2, 2, 3, 3]


def test_fluctuating_recommendations_change_nothing():
    """HC TestNormalizeDesiredReplicasWithBehavior: both directions wait."""
    behavior = Behavior(
        scaleUp=HPAScalingRules(stabilizationWindowSeconds=300),
        scaleDown=HPAScalingRules(stabilizationWindowSeconds=300),
    )
    assert follow(behavior, 5, [2, 8, 2, 8, 2, 8]) == [5] * 6


def test_the_condition_has_the_direction_of_a_delayed_scaling():
    behavior = Behavior(scaleUp=rules(percent=100, window=60), scaleDown=rules(percent=100))
    history = History(recommended=[Change(NOW - 10, 2)])
    repeated = normalize(4, Bounds(2, 1, 9), behavior, history, NOW)
    assert (repeated.replicas, repeated.able[0]) == (2, "ScaleUpStabilized")
    behavior = Behavior(scaleUp=rules(percent=100), scaleDown=rules(percent=100, window=60))
    repeated = normalize(1, Bounds(2, 1, 9), behavior, history, NOW)
    assert (repeated.replicas, repeated.able[0]) == (2, "ScaleDownStabilized")


def test_current_replicas_count_as_recommended_after_a_restart():
    history = History()
    history.begin(6, NOW)
    history.begin(2, NOW)
    assert normalize(1, Bounds(6, 1, 9), None, history, NOW + 299).replicas == 6
    assert normalize(1, Bounds(6, 1, 9), None, history, NOW + 300).replicas == 1


@pytest.mark.parametrize(("before", "replicas"), [(6, 6), (1, 1)])
def test_the_last_recommendation_lasts_through_missing_metrics(before, replicas):
    history = History()
    history.recommend(6, None, NOW)
    history.recommend(before, None, NOW + 15)
    for second in range(30, 900, 15):
        history.repeat_last(None, NOW + second)
    assert normalize(1, Bounds(6, 1, 9), None, history, NOW + 900).replicas == replicas


@pytest.mark.parametrize("behavior", [None, Behavior(), Behavior(scaleUp=rules(percent=100))])
def test_a_recommendation_repeated_through_missing_metrics_does_not_scale(behavior):
    history = History()
    history.recommend(6, behavior, NOW)
    for second in range(15, 900, 15):
        history.repeat_last(behavior, NOW + second)
    # Somebody has made fewer meanwhile: as many as there are is as many as are kept.
    assert normalize(2, Bounds(2, 1, 9), behavior, history, NOW + 900).replicas == 2
    assert normalize(1, Bounds(2, 1, 9), behavior, history, NOW + 900).replicas == 2
    assert normalize(1, Bounds(8, 1, 9), behavior, history, NOW + 900).replicas == 6


def test_missing_metrics_do_not_delay_a_scale_up():
    behavior = Behavior(scaleUp=rules(percent=100, window=300))
    history = History()
    history.recommend(1, behavior, NOW)
    for second in range(15, 900, 15):
        history.repeat_last(behavior, NOW + second)
    assert normalize(2, Bounds(1, 1, 9), behavior, history, NOW + 900).replicas == 2


def test_one_metric_between_missing_ones_keeps_the_window():
    history = History()
    history.recommend(6, None, NOW)
    for second in range(15, 900, 15):
        history.repeat_last(None, NOW + second)
    history.recommend(1, None, NOW + 900)
    history.repeat_last(None, NOW + 915)
    assert normalize(1, Bounds(6, 1, 9), None, history, NOW + 930).replicas == 6


def test_old_recommendations_are_dropped():
    history, behavior = History(), Behavior(scaleUp=rules(1, 60), scaleDown=rules(1, 90))
    for second in range(0, 3000, 15):
        history.recommend(second, None, NOW + second)
        history.repeat_last(None, NOW + second)
        history.scaled(1, 2, behavior, NOW + second)
        history.scaled(2, 1, behavior, NOW + second)
    assert len(history.recommended) == len(history.repeated) == 20
    assert len(history.added) == len(history.removed) == 6
    history.scaled(1, 2, None, NOW)
    assert len(history.added) == 6
