"""How long instances take from phase to phase, and where the time goes until they are ready.

The only thing here that cannot be read off the objects when somebody asks.  What was there already
when this process started is left out: nobody knows when its stages began.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.vmi import VirtualMachineInstance as Machine
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
"""KubeVirt's (PhaseTransitionTimeBuckets)."""


def source(context: ControllerContext) -> Source:
    """The source of the times of what happens from now on."""
    return Transitions(context).tell


class Transitions:
    """Follows instances from their creation to their readiness, and from phase to phase."""

    def __init__(self, context: ControllerContext) -> None:
        self._between: dict[tuple[str, str], Histogram] = {}
        self._from_creation: dict[str, Histogram] = {}
        self._from_deletion: dict[str, Histogram] = {}
        self._stages = Stages(*START_STAGES, START_BOUNDS)
        self._machines = context.informers.of(Machine)
        self._machines.handle(self._machine_changed)
        context.informers.of(Pod).handle(self._pod_changed)

    def _machine_changed(self, old: Machine | None, new: Machine | None) -> None:
        if new is None:
            if old is not None:
                self._stages.forget(old.metadata.uid)
            return
        uid = new.metadata.uid
        if old is None:
            if self._machines.has_synced:
                self._stages.begin(uid)
            return
        if old.status.phase != new.status.phase:
            self._phase_changed(old, new)
        if _is_ready(new):
            self._stages.end("ready", uid)
            self._stages.forget(uid)

    def _phase_changed(self, old: Machine, new: Machine) -> None:
        before, now = old.status.phase, new.status.phase
        if now == "Running":
            self._stages.begin(new.metadata.uid)  # the node tells what it took until here
        created = _moment(new.metadata.creation_timestamp)
        # One write may tell of several phases: who is placed at once was Scheduling, too.
        passed = new.status.phase_transition_timestamps
        passed = passed[len(old.status.phase_transition_timestamps) : -1]
        entered = None
        for phase in (*(each.phase for each in passed), now):
            entered = _entered(new, phase)
            _observe(self._from_creation, phase, created, entered)
            since = _entered(new, before) if before else created
            _observe(self._between, (phase, before), since, entered)
            before = phase
        if new.is_final and new.metadata.deletion_timestamp:
            asked = _moment(new.metadata.deletion_timestamp)
            _observe(self._from_deletion, now, asked, entered)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and _node(new) and not (old and _node(old)):
            self._stages.end("scheduled", controller_uid(new))

    async def tell(self) -> Iterable[Family]:
        between = histogram(
            "kubevirt_vmi_phase_transition_time_seconds", "From one phase to the next."
        )
        for (phase, last_phase), took in self._between.items():
            between.add_histogram(took, {"phase": phase, "last_phase": last_phase})
        from_creation = histogram(
            "kubevirt_vmi_phase_transition_time_from_creation_seconds",
            "From the creation to a phase.",
        )
        from_deletion = histogram(
            "kubevirt_vmi_phase_transition_time_from_deletion_seconds",
            "From the wish to delete to a final phase.",
        )
        for family, taken in (
            (from_creation, self._from_creation),
            (from_deletion, self._from_deletion),
        ):
            for phase, took in taken.items():
                family.add_histogram(took, {"phase": phase})
        return between, from_creation, from_deletion, self._stages.family()


def _observe(
    histograms: dict[L, Histogram], labels: L, since: datetime | None, until: datetime | None
) -> None:
    """Count a time; where one of its ends is not known it is left out."""
    if since is not None and until is not None:
        seconds = max(0.0, (until - since).total_seconds())
        histograms.setdefault(labels, Histogram(BOUNDS)).observe(seconds)


def _entered(vmi: Machine, phase: str) -> datetime | None:
    """When a phase was entered for the first time."""
    for each in vmi.status.phase_transition_timestamps:
        if each.phase == phase:
            return _moment(each.phase_transition_timestamp)
    return None


def _moment(text: str | None) -> datetime | None:
    return parse_rfc3339(text) if text else None


def _is_ready(vmi: Machine) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in vmi.status.conditions)


def _node(pod: Pod) -> str:
    return (pod.spec and pod.spec.nodeName) or ""
