"""The arithmetic of Kubernetes' autoscaler: replicas that a metric proposes. Pure.

Values are whole thousandths of the metric's unit, as in Kubernetes: a CPU is 1000, a byte too. The
rules are those of pkg/controller/podautoscaler/replica_calculator.go; for an unmeasured pod the
value is assumed that argues against a change. VMs are not containers, so two rules are ours: a
paused one counts as unmeasured, and those that boot never cause scaling down.
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
"""In the first minutes of a pod its CPU usage counts only while it is ready."""
FIRST_READINESS = timedelta(seconds=30)
"""A pod that became unready within this time of its start was never ready."""
MAX_REPLICAS = 2**31 - 1
"""Largest number of replicas that the API can hold."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_FINISHED = ("Succeeded", "Failed")


class MetricError(Exception):
    """A metric is unavailable; the message is Kubernetes'."""


class Unmeasured(MetricError):
    """None of the pods has metrics."""


class Sample(NamedTuple):
    """Average of one pod's metric over a window that ends at a time."""

    value: int
    time: datetime
    window: timedelta


class Tolerance(NamedTuple):
    """Deviation from the target, as a ratio, within which nothing is scaled."""

    down: float = 0.1
    up: float = 0.1

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


DEFAULT_TOLERANCE = Tolerance()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleState:
    """Inputs of the arithmetic.

    current: desired replicas in the target's spec.
    observed: replicas in its status.
    pods: the pods of the target.
    """

    current: int
    observed: int
    pods: Sequence[Pod]
    now: datetime
    tolerance: Tolerance = DEFAULT_TOLERANCE


class Proposal(NamedTuple):
    """Proposed replicas and the current value of a metric.

    ``value`` is the total, or the average of the pods; ``utilization`` that average in percent of
    the pods' requests.
    """

    replicas: int
    value: int
    utilization: int | None = None


@dataclass(slots=True)
class _PodStates:
    """Names of pods by the state of their metrics."""

    measured: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    """Finished or being deleted: no value is assumed for them."""


def by_utilization(
    state: ScaleState,
    samples: Mapping[str, Sample],
    target: int,
    *,
    resource: str,
    container: str = "",
) -> Proposal:
    """Propose replicas so that pods use ``target`` percent of their requests.

    With a container, only its usage and requests count. Raises MetricError.
    """
    states, values = _measured(state, samples, resource)
    requests = {key_of(pod).name: _requested(pod, resource, container) for pod in state.pods}

    def utilization(values: Mapping[str, int]) -> int:
        requested = sum(requests[name] for name in values)
        if not requested:
            raise MetricError("no metrics returned matched known pods")
        return sum(values.values()) * 100 // requested

    assumed = max(100, target)
    replicas = _replicas(
        state,
        states,
        values,
        ratio=lambda values: _ratio(utilization(values), target),
        full=lambda name: requests[name] * assumed // 100,
    )
    return Proposal(replicas, sum(values.values()) // len(values), utilization(values))


def by_average(
    state: ScaleState, samples: Mapping[str, Sample], target: int, *, resource: str = ""
) -> Proposal:
    """Propose replicas so that the pods' average is ``target``. Raises MetricError."""
    states, values = _measured(state, samples, resource)

    def average(values: Mapping[str, int]) -> int:
        return sum(values.values()) // len(values)

    replicas = _replicas(
        state,
        states,
        values,
        ratio=lambda values: _ratio(average(values), target),
        full=lambda _name: target,
    )
    return Proposal(replicas, average(values))


def by_value(state: ScaleState, total: int, target: int) -> Proposal:
    """Propose replicas that bring an object or external metric to ``target``.

    It is assumed to be proportional to the inverse of the replicas; from zero, one replica per
    target is proposed. Pods that are not ready never cause scaling down while the metric is above
    its target. Raises MetricError.
    """
    ratio = _ratio(total, target)
    if state.current == 0:
        return Proposal(_round_up(ratio), total)
    if state.tolerance.covers(ratio):
        return Proposal(state.current, total)
    if not state.pods:
        raise MetricError(
            "unable to calculate ready pods: no pods returned by selector while calculating "
            "replica count"
        )
    replicas = _round_up(ratio * sum(map(_is_ready, state.pods)))
    return Proposal(max(replicas, state.current) if ratio > 1 else replicas, total)


def by_value_per_pod(state: ScaleState, total: int, target: int) -> Proposal:
    """Propose replicas so that each has ``target`` of a total. Raises MetricError."""
    replicas, observed = _ratio(total, target), state.observed
    if not observed:
        return Proposal(_round_up(replicas), 0)
    is_close = state.tolerance.covers(replicas / observed)
    return Proposal(observed if is_close else _round_up(replicas), -(-total // observed))


def _replicas(
    state: ScaleState,
    states: _PodStates,
    values: Mapping[str, int],
    *,
    ratio: Callable[[Mapping[str, int]], float],
    full: Callable[[str], int],
) -> int:
    """Return the replicas for the pods' values; ``full`` is the assumed maximum of a pod."""
    current, tolerance = state.current, state.tolerance
    measured_ratio = ratio(values)
    counts_unready = measured_ratio > 1 and bool(states.unready)
    if not counts_unready and not states.missing:
        return (
            current if tolerance.covers(measured_ratio) else _round_up(measured_ratio * len(values))
        )
    assumed = dict(values)
    if measured_ratio < 1:
        assumed |= {name: full(name) for name in states.missing}
    elif measured_ratio > 1:
        assumed |= dict.fromkeys(states.missing, 0)
    if counts_unready:
        assumed |= dict.fromkeys(states.unready, 0)
    new = ratio(assumed)
    if tolerance.covers(new) or (measured_ratio < 1) != (new < 1):
        return current
    replicas = _round_up(new * len(assumed))
    return max(replicas, current) if new > 1 else min(replicas, current)


def _measured(
    state: ScaleState, samples: Mapping[str, Sample], resource: str
) -> tuple[_PodStates, dict[str, int]]:
    """Return the pods by state, and the values of those that count.

    Raises MetricError where none does.
    """
    if not state.pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    states = _classify(state, samples, resource)
    if not samples.keys() - states.unready - states.finished:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    if not states.measured:
        raise MetricError("no metrics returned matched known pods")
    return states, {name: samples[name].value for name in states.measured}


def _classify(state: ScaleState, samples: Mapping[str, Sample], resource: str) -> _PodStates:
    states = _PodStates()
    for pod in state.pods:
        name, phase = key_of(pod).name, _phase(pod)
        if is_being_deleted(pod) or phase in _FINISHED:
            states.finished.add(name)
        elif phase == "Pending":
            states.unready.add(name)
        elif (sample := samples.get(name)) is None or _is_paused(pod):
            states.missing.add(name)
        elif resource == "cpu" and _is_warming_up(pod, sample, state.now):
            states.unready.add(name)
        else:
            states.measured.add(name)
    return states


def _is_paused(pod: Pod) -> bool:
    """Report whether the VMI of the pod is paused: its usage says nothing about the load."""
    return any(
        condition.type == UNPAUSED and condition.status == "False"
        for condition in (pod.status and pod.status.conditions) or ()
    )


def _is_warming_up(pod: Pod, sample: Sample, now: datetime) -> bool:
    """Report whether a pod still starts, so that its CPU usage does not count."""
    status, since = _readiness(pod)
    started = pod.status.startTime if pod.status else None
    if not status or started is None:
        return True
    # Only differences: times from other components may be so large that a sum overflows.
    if now - started < WARM_UP:
        return status == "False" or sample.time - since < sample.window
    return status == "False" and since - started < FIRST_READINESS


def _readiness(pod: Pod) -> tuple[str, datetime]:
    """Return the status of the pod's condition Ready, and since when."""
    for condition in (pod.status and pod.status.conditions) or ():
        if condition.type == "Ready":
            return condition.status, condition.lastTransitionTime or _BEGINNING
    return "", _BEGINNING


def _is_ready(pod: Pod) -> bool:
    return _phase(pod) == "Running" and _readiness(pod)[0] == "True"


def _phase(pod: Pod) -> str:
    return (pod.status and pod.status.phase) or ""


def _requested(pod: Pod, resource: str, container: str) -> int:
    """Return the request of a pod, or of one container; init containers do not count."""
    spec = pod.spec
    assert spec is not None
    sidecars = [each for each in spec.initContainers or () if each.restartPolicy == "Always"]
    total = 0
    for each in (*spec.containers, *sidecars):
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


def _round_up(replicas: float) -> int:
    return min(math.ceil(replicas), MAX_REPLICAS)
