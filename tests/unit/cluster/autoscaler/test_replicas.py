"""How many replicas a metric asks for: cases worked in Kubernetes' documentation and tests.

Each case names its source: DOC is kubernetes.io/docs/concepts/workloads/autoscaling/
horizontal-pod-autoscale, RC the tests of pkg/controller/podautoscaler/replica_calculator.go, HC
those of horizontal.go beside it; LAB the training lab, and OURS what corral wants beyond them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, strategies as st
from lightkube.models.core_v1 import (
    Container,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from lightkube.models.meta_v1 import ObjectMeta

from corral.cluster.autoscaler.replicas import (
    FIRST_READINESS,
    MAX_REPLICAS,
    WARM_UP,
    MetricError,
    Sample,
    ScaleState,
    Tolerance,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
WINDOW = timedelta(seconds=15)
LARGEST = 2**63 - 1
PHASES = {"R": "Running", "P": "Pending", "F": "Failed", "S": "Succeeded", "D": "Running"}


@dataclass(frozen=True)
class Case:
    """Pods as words of one letter each, what they use, and what comes of it.

    phases: Running, Pending, Failed, Succeeded, or Deleted while it runs.
    ready: True, or False; a pod that is not has never been.  hot: which have just started.
    levels: what each uses in thousandths; None, or no entry, is a pod without a sample.
    """

    source: str
    replicas: int
    levels: tuple
    target: int
    current: int = 0
    phases: str = ""
    ready: str = ""
    hot: str = ""
    requests: tuple = ()
    value: int | None = None
    utilization: int | None = None
    tolerance: Tolerance = Tolerance()  # noqa: RUF009 - a tuple

    def __str__(self) -> str:
        return self.source.replace(" ", "-")

    @property
    def count(self) -> int:
        return len(self.phases) or self.current


def pod(name: str, phase: str, ready: str, hot: str, request: str | None) -> Pod:
    started = NOW if hot == "h" else LONG_AGO
    requests = {"cpu": request, "memory": "1Gi"} if request is not None else {}
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="default", deletionTimestamp=NOW if phase == "D" else None
        ),
        spec=PodSpec(
            containers=[
                Container(name="compute", resources=ResourceRequirements(requests=requests))
            ]
        ),
        status=PodStatus(
            phase=PHASES[phase],
            startTime=started,
            conditions=[
                PodCondition(
                    type="Ready",
                    status="True" if ready == "T" else "False",
                    lastTransitionTime=started,
                )
            ],
        ),
    )


def pods(case: Case) -> list[Pod]:
    count = case.count
    phases = case.phases.ljust(count, "R")
    ready = case.ready.ljust(count, "T")
    hot = case.hot.ljust(count, "-")
    requests = (case.requests or ("1",)) * count
    return [
        pod(f"pod-{index}", phases[index], ready[index], hot[index], requests[index])
        for index in range(count)
    ]


def samples(levels) -> dict[str, Sample]:
    return {
        f"pod-{index}": Sample(level, NOW, WINDOW)
        for index, level in enumerate(levels)
        if level is not None
    }


def state(case: Case, *, observed: int | None = None) -> ScaleState:
    return ScaleState(
        current=case.current,
        observed=case.current if observed is None else observed,
        pods=pods(case),
        now=NOW,
        tolerance=case.tolerance,
    )


MIXED = ("900m", "1", "1100m")
UTILIZATION = [
    Case("DOC twice the target doubles", 4, (200, 200), 10, 2, value=200, utilization=20),
    Case("DOC half of the target halves", 2, (50,) * 4, 10, 4, value=50, utilization=5),
    Case("DOC within 0.1 of the target nothing is done", 3, (105,) * 3, 10, 3, utilization=10),
    Case(
        "LAB 283 percent of 75 asks for four",
        4,
        (300,),
        75,
        1,
        requests=("106m",),
        value=300,
        utilization=283,
    ),
    Case("LAB an idle machine stays", 1, (2,), 75, 1, requests=("106m",), utilization=1),
    Case("RC scale up", 5, (300, 500, 700), 30, 3, value=500, utilization=50),
    Case(
        "RC scale up: an unready pod scales less",
        4,
        (300, 500, 700),
        30,
        3,
        ready="FTT",
        value=600,
        utilization=60,
    ),
    Case(
        "RC scale up: a hot pod scales less",
        4,
        (300, 500, 700),
        30,
        3,
        hot="h--",
        utilization=60,
    ),
    Case(
        "RC no scale: unready pods are ignored",
        3,
        (400, 500, 700),
        30,
        3,
        ready="TFF",
        utilization=40,
    ),
    Case(
        "RC no scale: hot pods are ignored",
        3,
        (400, 500, 700),
        30,
        3,
        ready="TFF",
        hot="-hh",
        utilization=40,
    ),
    Case("RC scale up: failed pods are ignored", 4, (500, 700), 30, 2, "RRFF", utilization=60),
    Case("RC scale up: succeeded pods are ignored", 4, (500, 700), 30, 2, "RRSS", utilization=60),
    Case("RC scale up: going pods are ignored", 4, (500, 700), 30, 2, "RRDD", utilization=60),
    Case("RC scale down", 3, (100, 300, 500, 250, 250), 50, 5, value=280, utilization=28),
    Case(
        "RC scale down: unready pods are left out",
        2,
        (100, 300, 500, 250, 250),
        50,
        5,
        ready="TTTFF",
        value=300,
        utilization=30,
    ),
    Case("RC scale down: pods without a node", 1, (100,), 50, 5, "RPPPP", utilization=10),
    Case(
        "RC scale down: hot pods are ignored",
        2,
        (100, 300, 500, 250, 250),
        50,
        5,
        hot="---hh",
        utilization=30,
    ),
    Case(
        "RC scale down: failed pods are ignored",
        3,
        (100, 300, 500, 250, 250),
        50,
        5,
        "RRRRRFF",
        utilization=28,
    ),
    Case(
        "RC scale down: going pods are ignored",
        3,
        (100, 300, 500, 250, 250),
        50,
        5,
        "RRRRRDD",
        utilization=28,
    ),
    Case("RC within tolerance", 3, (1010, 1030, 1020), 100, 3, requests=MIXED, utilization=102),
    Case(
        "RC outside a tolerance of none",
        4,
        (909, 1010, 1111),
        100,
        3,
        requests=MIXED,
        utilization=101,
        tolerance=Tolerance(0, 0),
    ),
    Case(
        "RC within a tolerance of 200 percent",
        3,
        (1890, 1910, 1900),
        100,
        3,
        requests=MIXED,
        utilization=190,
        tolerance=Tolerance(0.1, 2.0),
    ),
    Case(
        "RC outside a tolerance of 8 percent",
        4,
        (1100, 1080, 1090),
        100,
        3,
        requests=MIXED,
        utilization=109,
        tolerance=Tolerance(2.0, 0.08),
    ),
    Case(
        "RC within a tolerance of 36 percent down",
        3,
        (660, 640, 650),
        100,
        3,
        requests=MIXED,
        utilization=65,
        tolerance=Tolerance(0.36, 0.1),
    ),
    Case(
        "RC outside a tolerance of 34 percent down",
        2,
        (660, 640, 650),
        100,
        3,
        requests=MIXED,
        utilization=65,
        tolerance=Tolerance(0.34, 0.1),
    ),
    Case(
        "RC samples of pods that are not there do not count",
        24,
        (4000, 9500, 3000, 7000, 3200, 2000),
        100,
        4,
        value=5875,
        utilization=587,
    ),
    Case(
        "RC missing pods use all on the way down", 3, (400, 95), 100, 4, value=247, utilization=24
    ),
    Case("RC a missing pod beside one at the target", 2, (1000,), 100, 2, utilization=100),
    Case("RC a missing pod beside one above the target", 2, (1900,), 100, 2, utilization=190),
    Case("RC a missing pod beside one below the target", 2, (600,), 100, 2, utilization=60),
    Case(
        "RC no change: an unready and a missing pod",
        3,
        (100, 450),
        50,
        3,
        ready="FTT",
        utilization=45,
    ),
    Case("RC no change: a hot and a missing pod", 3, (100, 450), 50, 3, hot="h--", utilization=45),
    Case(
        "RC scale up: an unready and a missing pod",
        4,
        (100, 2000),
        50,
        3,
        ready="FTT",
        utilization=200,
    ),
    Case(
        "RC scale down: an unready and a missing pod",
        3,
        (100, 100, 100),
        50,
        4,
        ready="FTTT",
        utilization=10,
    ),
    Case(
        "RC scale down: missing pods use the target where it is above all",
        2,
        (200, 100, 100),
        300,
        4,
        ready="FTTT",
        requests=("1", "1", "2", "2"),
        utilization=6,
    ),
    Case("RC one pod too many, without a sample", 2, (100, 100), 50, 2, "RRR", utilization=10),
    Case("HC more pods than are desired", 4, (500,) * 5, 50, 4, "RRRRR", utilization=50),
    Case(
        "HC fewer pods than are desired", 2, (200,), 50, 4, "R", requests=("200m",), utilization=100
    ),
]


@pytest.mark.parametrize("case", UTILIZATION, ids=str)
def test_replicas_by_average_utilization(case):
    found = by_utilization(state(case), samples(case.levels), case.target, resource="cpu")
    assert found.replicas == case.replicas
    assert found.utilization == case.utilization
    if case.value is not None:
        assert found.value == case.value


AVERAGE = [
    Case("DOC twice the target doubles", 6, (200,) * 3, 100, 3, value=200),
    Case("RC pods metric up", 4, (20000, 10000, 30000), 15000, 3, value=20000),
    Case(
        "RC unready pods count for what is no processor",
        6,
        (50000, 10000, 30000),
        15000,
        3,
        ready="TTF",
        hot="--h",
        value=30000,
    ),
    Case(
        "RC unready pods count, two of three",
        7,
        (50000, 15000, 30000),
        15000,
        3,
        ready="FTF",
        hot="h-h",
        value=31666,
    ),
    Case("RC pods metric down", 3, (12000,) * 5, 20000, 5, value=12000),
    Case("RC pods metric within tolerance", 3, (20000, 21000, 21000), 20000, 3, value=20666),
    Case(
        "RC pods metric outside a tolerance of one percent",
        4,
        (20000, 21000, 21000),
        20000,
        3,
        value=20666,
        tolerance=Tolerance(0.1, 0.01),
    ),
    Case("RC missing pods are at the target", 5, (20000, 19000, 21000), 20000, 5, value=20000),
    Case(
        "RC one pod too many, without a sample",
        2,
        (10000,) * 2,
        17000,
        2,
        "RRR",
        value=10000,
    ),
    Case("OURS pending pods hold an increase back", 4, (30000, 30000), 15000, 4, "RRPP"),
]


@pytest.mark.parametrize("case", AVERAGE, ids=str)
def test_replicas_by_average_value(case):
    found = by_average(state(case), samples(case.levels), case.target)
    assert found.replicas == case.replicas
    assert found.utilization is None
    if case.value is not None:
        assert found.value == case.value


VALUE = [
    Case("RC object metric up", 4, (20000,), 15000, 3),
    Case("RC object metric up: unready pods are ignored", 5, (50000,), 10000, 3, ready="FTF"),
    Case("RC object metric down", 3, (12000,), 20000, 5),
    Case("RC object metric within tolerance", 3, (20666,), 20000, 3),
    Case(
        "RC object metric outside a tolerance of one percent",
        4,
        (20666,),
        20000,
        3,
        tolerance=Tolerance(0.1, 0.01),
    ),
    Case("RC an object metric beyond all is the most that can be", MAX_REPLICAS, (LARGEST,), 1, 3),
    Case("RC external metric down", 3, (8600,), 14334, 5),
    Case("RC external metric within tolerance", 3, (8600,), 8888, 3),
    # Kubernetes goes down to 2 here: it reckons with the one ready pod alone.
    Case("OURS pods that boot turn no need into less", 3, (8600,), 4400, 3, ready="FTF"),
    Case("OURS pods that all boot turn no need into none", 3, (90000,), 4400, 3, ready="FFF"),
    Case("HC of none, as many as there are targets", 3, (2500,), 1000, 0),
    Case("HC of none, none is needed", 0, (0,), 1000, 0),
]


@pytest.mark.parametrize("case", VALUE, ids=str)
def test_replicas_by_value(case):
    (total,) = case.levels
    found = by_value(state(case), total, case.target)
    assert (found.replicas, found.value) == (case.replicas, total)


SHARE = [
    Case("RC share up", 4, (20000,), 5000, 3, value=6667),
    Case("RC share down", 3, (6000,), 2000, 5, value=1200),
    Case("RC share within tolerance", 4, (20166,), 5000, 4, value=5042),
    Case(
        "RC share outside a tolerance of one percent",
        5,
        (20208,),
        5000,
        4,
        value=5052,
        tolerance=Tolerance(0.1, 0.01),
    ),
    Case("RC share of none", 4, (20000,), 5000, 0, value=0),
    Case("RC share of none where nothing is", 0, (0,), 5000, 0, value=0),
    Case(
        "RC share beyond all is the most that can be", MAX_REPLICAS, (LARGEST,), 1, 1, value=LARGEST
    ),
    Case("RC share with a target as large", 1, (LARGEST,), LARGEST, 1, value=LARGEST),
]


@pytest.mark.parametrize("case", SHARE, ids=str)
def test_replicas_by_average_value_of_a_total(case):
    (total,) = case.levels
    found = by_value_per_pod(state(case), total, case.target)
    assert (found.replicas, found.value) == (case.replicas, case.value)


def refused(ask, *arguments, **options) -> str:
    with pytest.raises(MetricError) as caught:
        ask(*arguments, **options)
    return str(caught.value)


def test_a_container_without_requests_is_named():
    case = Case("RC missing request", 0, (200,), 100, 1, requests=(None,))
    text = refused(by_utilization, state(case), samples((200,)), 100, resource="cpu")
    assert text == "missing request for cpu in container compute of Pod pod-0"


def test_metrics_of_other_pods_only_are_an_error():
    case = Case("RC disjoint names", 0, (), 100, 1)
    other = {"an-older-pod": Sample(100, NOW, WINDOW)}
    text = refused(by_utilization, state(case), other, 100, resource="cpu")
    assert text == "no metrics returned matched known pods"


def test_metrics_of_unready_pods_only_are_an_error():
    case = Case("RC unready", 0, (), 100, 2, ready="FF")
    message = samples((900, 900))
    text = refused(by_utilization, state(case), message, 100, resource="cpu")
    assert text == "did not receive metrics for targeted pods (pods might be unready)"


def test_no_pods_are_an_error():
    empty = ScaleState(current=2, observed=2, pods=[], now=NOW)
    text = refused(by_average, empty, samples((1,)), 100)
    assert text == "no pods returned by selector while calculating replica count"
    text = refused(by_value, empty, 900, 100)
    assert text.startswith("unable to calculate ready pods: no pods returned by selector")


def test_a_target_of_zero_is_an_error():
    case = Case("OURS", 0, (), 0, 1)
    assert "greater than 0" in refused(by_average, state(case), samples((1,)), 0)
    assert "greater than 0" in refused(by_value, state(case), 5, 0)
    assert "greater than 0" in refused(by_value_per_pod, state(case), 5, 0)


def test_only_the_named_container_counts():
    one = pod("pod-0", "R", "T", "-", "1")
    one.spec.containers.append(
        Container(name="helper", resources=ResourceRequirements(requests={"cpu": "500m"}))
    )
    seen = ScaleState(current=1, observed=1, pods=[one], now=NOW)
    message = samples((450,))
    found = by_utilization(seen, message, 30, resource="cpu", container="helper")
    assert (found.replicas, found.utilization) == (3, 90)
    text = refused(by_utilization, seen, message, 30, resource="cpu", container="other")
    assert text == "container other not found in Pod pod-0"


def test_sidecars_count_and_init_containers_do_not():
    one = pod("pod-0", "R", "T", "-", "100m")
    small = ResourceRequirements(requests={"cpu": "5m"})
    one.spec.initContainers = [
        Container(name="log", resources=small, restartPolicy="Always"),
        Container(name="prepare", resources=ResourceRequirements(requests={"cpu": "4"})),
    ]
    seen = ScaleState(current=1, observed=1, pods=[one], now=NOW)
    found = by_utilization(seen, samples((300,)), 75, resource="cpu")
    assert found.utilization == 285


LEVELS = st.lists(st.none() | st.integers(0, 5000), min_size=1, max_size=6)
TARGETS = st.integers(1, 400)


@given(LEVELS, TARGETS)
def test_pods_without_metrics_never_reverse_the_direction(levels, target):
    assume(any(level is not None for level in levels))
    case = Case("OURS", 0, tuple(levels), target, len(levels))
    known = [level for level in levels if level is not None]
    utilization = sum(known) * 100 // (1000 * len(known))
    found = by_utilization(state(case), samples(levels), target, resource="cpu")
    assert found.utilization == utilization
    if utilization >= target:
        assert found.replicas >= len(levels)
    if utilization <= target:
        assert found.replicas <= len(levels)


@given(LEVELS, TARGETS)
def test_pods_without_metrics_never_count_as_idle(levels, target):
    assume(any(level is not None for level in levels))
    case = Case("OURS", 0, tuple(levels), target, len(levels))
    idle = [0 if level is None else level for level in levels]

    def proposed(levels) -> int:
        message = samples(levels)
        return by_utilization(state(case), message, target, resource="cpu").replicas

    assert proposed(levels) >= proposed(idle)


def warmed(*, started: timedelta, turned: timedelta, ready: str, sampled: timedelta) -> bool:
    """Whether what a pod uses counts; times are before now."""
    one = pod("pod-0", "R", ready, "-", "1")
    one.status.startTime = NOW - started
    one.status.conditions[0].lastTransitionTime = NOW - turned
    seen = ScaleState(current=1, observed=1, pods=[one], now=NOW)
    message = {"pod-0": Sample(500, NOW - sampled, WINDOW)}
    try:
        by_utilization(seen, message, 50, resource="cpu")
    except MetricError:
        return False
    return True


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@pytest.mark.parametrize(
    ("started", "turned", "ready", "sampled", "counts"),
    [
        # RC TestGroupPods: fresh and ready, with a whole window since it turned ready
        (seconds(60), seconds(30), "T", seconds(0), True),
        (seconds(60), seconds(30), "T", seconds(15), True),
        # ... a part of the window is from before it was ready
        (seconds(60), seconds(10), "T", seconds(0), False),
        (seconds(60), seconds(30), "T", seconds(16), False),
        # ... fresh and unready
        (seconds(60), seconds(50), "F", seconds(0), False),
        # ... old, and never ready since it turned unready right at the start
        (WARM_UP, WARM_UP, "F", seconds(0), False),
        (WARM_UP, WARM_UP - FIRST_READINESS + seconds(1), "F", seconds(0), False),
        # ... old, and was ready once
        (WARM_UP, WARM_UP - FIRST_READINESS, "F", seconds(0), True),
        (WARM_UP, seconds(5), "T", seconds(0), True),
    ],
)
def test_a_starting_pod_does_not_count(started, turned, ready, sampled, counts):
    assert warmed(started=started, turned=turned, ready=ready, sampled=sampled) is counts


FIRST = NOW - datetime.min.replace(tzinfo=UTC)
LAST = NOW - datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("started", "turned", "ready", "sampled", "counts"),
    [
        (seconds(60), seconds(30), "T", FIRST, False),
        (seconds(60), FIRST, "T", FIRST, False),
        (seconds(60), LAST, "T", seconds(0), False),
        (LAST, seconds(0), "T", seconds(0), False),
        (FIRST, LAST, "F", seconds(0), True),
        (FIRST, seconds(0), "T", LAST, True),
    ],
)
def test_any_timestamps_are_accepted(started, turned, ready, sampled, counts):
    assert warmed(started=started, turned=turned, ready=ready, sampled=sampled) is counts


@pytest.mark.parametrize("level", [0, 4000])
def test_a_paused_vmi_counts_as_without_metrics(level):
    case = Case("OURS", 0, (), 100, 2)
    seen = state(case)
    seen.pods[0].status.conditions.append(
        PodCondition(type="kubevirt.io/virtual-machine-unpaused", status="False")
    )
    found = by_utilization(seen, samples((level, 900)), 100, resource="cpu")
    assert (found.replicas, found.utilization) == (2, 90)
    # It counts as busy while the others ask for less, and as idle while they ask for more.
    assert by_utilization(seen, samples((level, 500)), 100, resource="cpu").replicas == 2
    assert by_utilization(seen, samples((level, 1500)), 100, resource="cpu").replicas == 2
    assert by_utilization(seen, samples((level, 3000)), 100, resource="cpu").replicas == 3


def test_a_pod_without_a_ready_condition_is_not_ready():
    one = pod("pod-0", "R", "T", "-", "1")
    one.status.conditions = None
    seen = ScaleState(current=1, observed=1, pods=[one], now=NOW)
    refused(by_utilization, seen, samples((500,)), 50, resource="cpu")
    found = by_average(seen, samples((500,)), 500, resource="memory")
    assert found.replicas == 1
