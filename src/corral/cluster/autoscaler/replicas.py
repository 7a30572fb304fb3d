"""How many replicas a metric asks for: the arithmetic of Kubernetes' autoscaler.

Nobody is asked here: pods and what was measured go in, a number comes out.  Values are whole
thousandths of the metric's unit, as Kubernetes reckons: a processor is 1000, a byte too.  The rules
are those of pkg/controller/podautoscaler/replica_calculator.go; what is not known of a pod is
supposed to be what speaks against a change.  Machines are not containers, so two rules are ours: a
paused one is as if nothing were known of it, and those that boot never make a need smaller.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from lightkube.models.core_v1 import Pod

from corral.api import quantity
from corral.api.kinds.vmi.derived import UNPAUSED
from corral.reconcile.objects import is_being_deleted, key_of

WARM_UP = timedelta(minutes=5)
"""In its first minutes a pod's use of the processor counts only while it is ready."""
FIRST_READINESS = timedelta(seconds=30)
"""A pod that turned unready within this time of its start is one that was never ready."""
MOST = 2**31 - 1
"""The largest number of replicas that Kubernetes can write down."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_FINISHED = ("Succeeded", "Failed")


class MetricError(Exception):
    """Why a metric tells nothing at present, in Kubernetes' words."""


class Unmeasured(MetricError):
    """Of none of the pods anything was measured."""


class Sample(NamedTuple):
    """What was measured of one pod: the average over a window of time that ends at a moment."""

    value: int
    moment: datetime
    window: timedelta


class Tolerance(NamedTuple):
    """By which share of its target a metric may be off before anything is done about it."""

    down: float = 0.1
    up: float = 0.1

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


USUAL = Tolerance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a metric is weighed against.

    current: how many are wanted at present; observed: how many there are.
    pods: those that belong to them.
    """

    current: int
    observed: int
    pods: Sequence[Pod]
    now: datetime
    tolerance: Tolerance = USUAL


class Proposal(NamedTuple):
    """How many replicas a metric asks for, and what it is at.

    ``value`` is the total, or the average of the pods; ``utilization`` that average in percent of
    what the pods request.
    """

    replicas: int
    value: int
    utilization: int | None = None


@dataclass(slots=True)
class _Sorted:
    """The names of pods, by what is known of them."""

    measured: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    """Those that go or have ended: nothing is supposed of them."""


def by_utilization(
    situation: Situation,
    samples: Mapping[str, Sample],
    target: int,
    *,
    resource: str,
    container: str = "",
) -> Proposal:
    """So many that the pods use ``target`` percent of the resource that they request.

    With a container, only what that container uses and requests is looked at.  Raises MetricError.
    """
    found, values = _measured(situation, samples, resource)
    requests = {key_of(pod).name: _requested(pod, resource, container) for pod in situation.pods}

    def utilization(values: Mapping[str, int]) -> int:
        requested = sum(requests[name] for name in values)
        if not requested:
            raise MetricError("no metrics returned matched known pods")
        return sum(values.values()) * 100 // requested

    supposed = max(100, target)
    replicas = _replicas(
        situation,
        found,
        values,
        ratio=lambda values: _ratio(utilization(values), target),
        full=lambda name: requests[name] * supposed // 100,
    )
    return Proposal(replicas, sum(values.values()) // len(values), utilization(values))


def by_average(
    situation: Situation, samples: Mapping[str, Sample], target: int, *, resource: str = ""
) -> Proposal:
    """So many that the pods' average is ``target``.  Raises MetricError."""
    found, values = _measured(situation, samples, resource)

    def average(values: Mapping[str, int]) -> int:
        return sum(values.values()) // len(values)

    replicas = _replicas(
        situation,
        found,
        values,
        ratio=lambda values: _ratio(average(values), target),
        full=lambda _name: target,
    )
    return Proposal(replicas, average(values))


def by_value(situation: Situation, total: int, target: int) -> Proposal:
    """As many as bring a metric of no pod's to ``target``, if it goes down as they go up.

    Of none there are made as many as the metric is targets.  Pods that are not ready yet never turn
    a metric above its target into fewer replicas.  Raises MetricError.
    """
    ratio = _ratio(total, target)
    if situation.current == 0:
        return Proposal(_whole(ratio), total)
    if situation.tolerance.covers(ratio):
        return Proposal(situation.current, total)
    if not situation.pods:
        raise MetricError(
            "unable to calculate ready pods: no pods returned by selector while calculating "
            "replica count"
        )
    replicas = _whole(ratio * sum(map(_is_ready, situation.pods)))
    return Proposal(max(replicas, situation.current) if ratio > 1 else replicas, total)


def by_share(situation: Situation, total: int, target: int) -> Proposal:
    """So many that each has ``target`` of a metric of no pod's.  Raises MetricError."""
    wanted, observed = _ratio(total, target), situation.observed
    if not observed:
        return Proposal(_whole(wanted), 0)
    is_close = situation.tolerance.covers(wanted / observed)
    return Proposal(observed if is_close else _whole(wanted), -(-total // observed))


def _replicas(
    situation: Situation,
    found: _Sorted,
    values: Mapping[str, int],
    *,
    ratio: Callable[[Mapping[str, int]], float],
    full: Callable[[str], int],
) -> int:
    """What the pods' values ask for; ``full`` is what a pod is supposed to take at the most."""
    current, tolerance = situation.current, situation.tolerance
    seen = ratio(values)
    grows = seen > 1 and bool(found.unready)
    if not grows and not found.missing:
        return current if tolerance.covers(seen) else _whole(seen * len(values))
    supposed = dict(values)
    if seen < 1:
        supposed |= {name: full(name) for name in found.missing}
    elif seen > 1:
        supposed |= dict.fromkeys(found.missing, 0)
    if grows:
        supposed |= dict.fromkeys(found.unready, 0)
    new = ratio(supposed)
    if tolerance.covers(new) or (seen < 1) != (new < 1):
        return current
    replicas = _whole(new * len(supposed))
    return max(replicas, current) if new > 1 else min(replicas, current)


def _measured(
    situation: Situation, samples: Mapping[str, Sample], resource: str
) -> tuple[_Sorted, dict[str, int]]:
    """The pods by what is known of them, and the values of those that count.

    Raises MetricError where none does.
    """
    if not situation.pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    found = _sort(situation, samples, resource)
    if not samples.keys() - found.unready - found.finished:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    if not found.measured:
        raise MetricError("no metrics returned matched known pods")
    return found, {name: samples[name].value for name in found.measured}


def _sort(situation: Situation, samples: Mapping[str, Sample], resource: str) -> _Sorted:
    found = _Sorted()
    for pod in situation.pods:
        name, phase = key_of(pod).name, _phase(pod)
        if is_being_deleted(pod) or phase in _FINISHED:
            found.finished.add(name)
        elif phase == "Pending":
            found.unready.add(name)
        elif (sample := samples.get(name)) is None or _is_paused(pod):
            found.missing.add(name)
        elif resource == "cpu" and _is_warming_up(pod, sample, situation.now):
            found.unready.add(name)
        else:
            found.measured.add(name)
    return found


def _is_paused(pod: Pod) -> bool:
    """Whether the pod's machine is stopped: what it does not use tells nothing of the need."""
    return any(
        condition.type == UNPAUSED and condition.status == "False"
        for condition in (pod.status and pod.status.conditions) or ()
    )


def _is_warming_up(pod: Pod, sample: Sample, now: datetime) -> bool:
    """Whether a pod is starting still, so that its use of the processor tells nothing."""
    status, turned = _readiness(pod)
    started = pod.status.startTime if pod.status else None
    if not status or started is None:
        return True
    # Moments are told by others: between any two of them lies a time, added to they may overflow.
    if now - started < WARM_UP:
        return status == "False" or sample.moment - turned < sample.window
    return status == "False" and turned - started < FIRST_READINESS


def _readiness(pod: Pod) -> tuple[str, datetime]:
    """The status of the pod's condition Ready, and since when it is so."""
    for condition in (pod.status and pod.status.conditions) or ():
        if condition.type == "Ready":
            return condition.status, condition.lastTransitionTime or _BEGINNING
    return "", _BEGINNING


def _is_ready(pod: Pod) -> bool:
    return _phase(pod) == "Running" and _readiness(pod)[0] == "True"


def _phase(pod: Pod) -> str:
    return (pod.status and pod.status.phase) or ""


def _requested(pod: Pod, resource: str, container: str) -> int:
    """What a pod, or one container of it, requests; what ends before it runs does not count."""
    spec = pod.spec
    assert spec is not None
    helpers = [each for each in spec.initContainers or () if each.restartPolicy == "Always"]
    total = 0
    for each in (*spec.containers, *helpers):
        if container and each.name != container:
            continue
        requests = (each.resources and each.resources.requests) or {}
        if resource not in requests:
            raise MetricError(
                f"missing request for {resource} in container {each.name} of Pod {key_of(pod).name}"
            )
        requested = quantity.parse(requests[resource]).rounded_up(-3)
        if container:
            return requested
        total += requested
    if container:
        raise MetricError(f"container {container} not found in Pod {key_of(pod).name}")
    return total


def _ratio(value: int, target: int) -> float:
    if target <= 0:
        raise MetricError("the target of the metric must be greater than 0")
    return value / target


def _whole(replicas: float) -> int:
    return min(math.ceil(replicas), MOST)
