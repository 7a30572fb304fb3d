"""Histograms of VMI phase transitions, and of the stages of a start.

Recorded as events arrive, unlike other metrics: they cannot be computed from objects at a scrape.
VMIs that exist when the process starts are left out: the start of their stages is unknown.
"""

from collections.abc import Iterable
from typing import TypeVar

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.time import parse_rfc3339
from corral.metrics import START_BOUNDS, START_STAGES, Family, Histogram, Source, Stages, histogram
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid

L = TypeVar("L")

_MINUTE = 60
BOUNDS = (
    *(0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90),
    *(
        2 * _MINUTE,
        3 * _MINUTE,
        5 * _MINUTE,
        10 * _MINUTE,
        20 * _MINUTE,
        30 * _MINUTE,
        60 * _MINUTE,
    ),
)
"""KubeVirt's PhaseTransitionTimeBuckets."""


def source(context: ControllerContext) -> Source:
    """Return the source of transitions from now on."""
    return Transitions(context).collect


class Transitions:
    """Follows VMIs from creation to Ready, and from phase to phase."""

    def __init__(self, context: ControllerContext) -> None:
        self._between: dict[tuple[str, str], Histogram] = {}
        self._from_creation: dict[str, Histogram] = {}
        self._from_deletion: dict[str, Histogram] = {}
        self._stages = Stages(*START_STAGES, START_BOUNDS)
        self._vmis = context.informers.of(VirtualMachineInstance)
        self._vmis.handle(self._vmi_changed)
        context.informers.of(Pod).handle(self._pod_changed)

    def _vmi_changed(
        self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None
    ) -> None:
        if new is None:
            if old is not None:
                self._stages.forget(old.metadata.uid)
            return
        uid = new.metadata.uid
        if old is None:
            if self._vmis.has_synced:
                self._stages.begin(uid)
            return
        if old.status.phase != new.status.phase:
            self._phase_changed(old, new)
        if _is_ready(new):
            self._stages.end("ready", uid)
            self._stages.forget(uid)

    def _phase_changed(self, old: VirtualMachineInstance, new: VirtualMachineInstance) -> None:
        before, now = old.status.phase, new.status.phase
        if now == "Running":
            self._stages.begin(new.metadata.uid)  # the node measures the stages before
        created = new.metadata.creation_timestamp
        # One write may pass several phases: the controller skips Scheduling for a fast pod.
        passed = new.status.phase_transition_timestamps
        passed = passed[len(old.status.phase_transition_timestamps) : -1]
        entered = None
        for phase in (*(each.phase for each in passed), now):
            entered = _entered(new, phase)
            observe(self._from_creation, phase, created, entered)
            since = _entered(new, before) if before else created
            observe(self._between, (phase, before), since, entered)
            before = phase
        if new.is_final and new.metadata.deletion_timestamp:
            observe(self._from_deletion, now, new.metadata.deletion_timestamp, entered)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and _node(new) and not (old and _node(old)):
            self._stages.end("scheduled", controller_uid(new))

    async def collect(self) -> Iterable[Family]:
        between = histogram(
            "kubevirt_vmi_phase_transition_time_seconds", "From one phase to the next."
        )
        for (phase, last_phase), durations in self._between.items():
            between.add_histogram(durations, {"phase": phase, "last_phase": last_phase})
        from_creation = histogram(
            "kubevirt_vmi_phase_transition_time_from_creation_seconds",
            "From the creation to a phase.",
        )
        from_deletion = histogram(
            "kubevirt_vmi_phase_transition_time_from_deletion_seconds",
            "From the deletion request to a final phase.",
        )
        for family, histograms in (
            (from_creation, self._from_creation),
            (from_deletion, self._from_deletion),
        ):
            for phase, durations in histograms.items():
                family.add_histogram(durations, {"phase": phase})
        return between, from_creation, from_deletion, self._stages.family()


def observe(
    histograms: dict[L, Histogram], labels: L, since: str | None, until: str | None
) -> None:
    """Observe the time between two timestamps; it is left out where one of them is unknown."""
    if since and until:
        duration = parse_rfc3339(until) - parse_rfc3339(since)
        seconds = max(0.0, duration.total_seconds())
        histograms.setdefault(labels, Histogram(BOUNDS)).observe(seconds)


def _entered(vmi: VirtualMachineInstance, phase: str) -> str | None:
    """Return when a phase was entered first."""
    for each in vmi.status.phase_transition_timestamps:
        if each.phase == phase:
            return each.phase_transition_timestamp
    return None


def _is_ready(vmi: VirtualMachineInstance) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in vmi.status.conditions)


def _node(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""
