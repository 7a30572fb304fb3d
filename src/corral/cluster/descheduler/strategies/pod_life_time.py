"""PodLifeTime: pods that are too old, or in a state for too long."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from lightkube.models.core_v1 import Pod

from corral.cluster.descheduler.arguments import ConditionFilter, PodLifeTimeArgs
from corral.cluster.descheduler.eviction_outcome import EvictionOutcome
from corral.cluster.descheduler.handle import Evictions, Handle
from corral.cluster.descheduler.snapshot import PodInfo


def evictions(args: PodLifeTimeArgs, handle: Handle) -> Evictions:
    """Yield pods that match all filters, the oldest first.

    A pod that is replaced may come back to its node; one that migrates needs another.
    """
    found = []
    for one in handle.evictable(handle.nodes, args):
        if one is not None and _is_over(args, one, handle.now):
            found.append(one)
        yield None
    for one in sorted(found, key=lambda one: str(_created(one.pod))):
        goes = one.outcome is EvictionOutcome.REPLACEMENT or handle.leaves(one)
        yield one if goes else None


def _is_over(args: PodLifeTimeArgs, one: PodInfo, now: datetime) -> bool:
    """Return whether a pod matches all filters."""
    return (
        _is_too_old(args, one.pod, now)
        and args.owner_kinds.has(*one.owner_kinds)
        and (not args.states or not states(args, one.pod).isdisjoint(args.states))
        and (not args.conditions or _matches_conditions(args, one.pod, now))
        and (not args.exit_codes or not _exit_codes(args, one.pod).isdisjoint(args.exit_codes))
    )


def states(args: PodLifeTimeArgs, pod: Pod) -> frozenset[str]:
    """Return the phase and the reason of a pod, and the reasons of its containers' states."""
    if pod.status is None:
        return frozenset()
    found = {pod.status.phase, pod.status.reason}
    for each in _containers(args, pod):
        state = each.state
        for one in (state and state.waiting, state and state.terminated):
            found.add(one.reason if one is not None else None)
    return frozenset(text for text in found if text)


def _is_too_old(args: PodLifeTimeArgs, pod: Pod, now: datetime) -> bool:
    most = args.max_pod_life_time_seconds
    return most is None or _seconds_since(_created(pod), now) > most


def _matches_conditions(args: PodLifeTimeArgs, pod: Pod, now: datetime) -> bool:
    conditions = (pod.status and pod.status.conditions) or ()
    return any(_matches(each, one, now) for each in args.conditions for one in conditions)


def _matches(expected: ConditionFilter, condition: Any, now: datetime) -> bool:
    fields = ("type", "status", "reason")
    if any(getattr(expected, name) not in ("", getattr(condition, name)) for name in fields):
        return False
    least = expected.min_time_since_last_transition_seconds
    since = condition.lastTransitionTime
    return least is None or (since is not None and _seconds_since(since, now) >= least)


def _exit_codes(args: PodLifeTimeArgs, pod: Pod) -> frozenset[int]:
    ended = (each.state and each.state.terminated for each in _containers(args, pod))
    return frozenset(each.exitCode for each in ended if each is not None)


def _containers(args: PodLifeTimeArgs, pod: Pod) -> Iterator[Any]:
    """Yield the statuses of a pod's containers."""
    assert pod.status is not None
    yield from pod.status.containerStatuses or ()
    if args.including_init_containers:
        yield from pod.status.initContainerStatuses or ()
    if args.including_ephemeral_containers:
        yield from pod.status.ephemeralContainerStatuses or ()


def _created(pod: Pod) -> datetime | None:
    return pod.metadata.creationTimestamp if pod.metadata is not None else None


def _seconds_since(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else (now - moment).total_seconds()
