"""Status of a DataVolume, from its claim's annotations, in CDI's phases and conditions. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datavolume import (
    DataVolume,
    DataVolumeCondition,
    DataVolumeStatus,
    Source,
)
from corral.api.kinds.storage.common import BOUND, LOST
from corral.reconcile.objects import annotations_of, key_of

PENDING, WAITS, CLAIM_BOUND = "Pending", "WaitForFirstConsumer", "PVCBound"
SUCCEEDED, FAILED, UNKNOWN = "Succeeded", "Failed", "Unknown"
UNKNOWN_PROGRESS, ALL = "N/A", "100.0%"

TRUE, FALSE = "True", "False"


class Event(NamedTuple):
    """An event to record: Normal or Warning, a CamelCase reason, a message."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The cause of a missing claim: reason and message of CDI's event."""

    reason: str
    message: str


class _Stage(NamedTuple):
    """A phase of population, and the event when it is reached."""

    phase: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """The stages of one kind of population, by the phase in the claim's annotation."""

    scheduled: _Stage
    in_progress: _Stage
    done: _Stage
    failed: _Stage
    has_progress: bool = True

    def stage(self, annotations: Mapping[str, str]) -> _Stage | None:
        if annotations.get(population.PHASE) == population.RUNNING:
            # An upload is ready once its server listens, not when its preparation began.
            started = self.has_progress or annotations.get(population.READY) == "true"
            return self.in_progress if started else self.scheduled
        return {
            population.PENDING: self.scheduled,
            population.SUCCEEDED: self.done,
            population.FAILED: self.failed,
        }.get(annotations.get(population.PHASE, ""))


def _import() -> _Kind:
    return _Kind(
        _Stage("ImportScheduled", "Normal", "ImportScheduled", "Import into {name} scheduled"),
        _Stage("ImportInProgress", "Normal", "ImportInProgress", "Import into {name} in progress"),
        _Stage(SUCCEEDED, "Normal", "ImportSucceeded", "Successfully imported into PVC {name}"),
        _Stage(FAILED, "Warning", "ImportFailed", "Failed to import into PVC {name}"),
    )


def _upload() -> _Kind:
    return _Kind(
        _Stage("UploadScheduled", "Normal", "UploadScheduled", "Upload into {name} scheduled"),
        _Stage("UploadReady", "Normal", "UploadReady", "Upload into {name} ready"),
        _Stage(SUCCEEDED, "Normal", "UploadSucceeded", "Successfully uploaded into {name}"),
        _Stage(FAILED, "Warning", "UploadFailed", "Upload into {name} failed"),
        has_progress=False,
    )


def _clone() -> _Kind:
    kind = "from {source} into {claim}"
    return _Kind(
        _Stage("CloneScheduled", "Normal", "CloneScheduled", f"Cloning {kind} scheduled"),
        _Stage(
            "CSICloneInProgress",
            "Normal",
            "CSICloneInProgress",
            "CSI Volume clone in progress (for pvc {source})",
        ),
        _Stage(SUCCEEDED, "Normal", "CloneSucceeded", f"Successfully cloned {kind}"),
        _Stage(FAILED, "Warning", "CloneFailed", f"Cloning {kind} failed"),
    )


IMPORT, UPLOAD, CLONE = _import(), _upload(), _clone()


def kind_of(source: Source) -> _Kind:
    """Return how a claim is populated from a source."""
    if source.upload is not None:
        return UPLOAD
    return CLONE if source.pvc is not None else IMPORT


def without_claim(volume: DataVolume, problem: Problem | None, now: str) -> DataVolumeStatus:
    """Return the status while the DataVolume has no claim of its own."""
    reason, message = (problem.reason, problem.message) if problem else ("NotFound", "No PVC found")
    conditions = Conditions(volume.status.conditions, now)
    conditions.set("Bound", FALSE, reason, message)
    conditions.set("Ready", FALSE, *((reason, message) if problem else ("", "")))
    conditions.set("Running", FALSE)
    status = msgspec.structs.replace(volume.status, phase=volume.status.phase or PENDING)
    return _with(status, conditions)


def with_claim(
    volume: DataVolume, source: Source, claim: PersistentVolumeClaim, *, waits: bool, now: str
) -> tuple[DataVolumeStatus, list[Event]]:
    """Return the status, and the events of the change.

    ``waits``: whether the claim's class binds claims only when they are used.
    """
    stage = _stage(volume, source, claim, waits=waits)
    annotations = annotations_of(claim)
    conditions = Conditions(volume.status.conditions, now)
    _set_conditions(conditions, claim, stage.phase)
    status = _with(
        msgspec.structs.replace(
            volume.status,
            claim_name=key_of(claim).name,
            phase=stage.phase,
            progress=_progress(volume, kind_of(source), stage.phase, annotations),
            restart_count=_count(
                annotations.get(population.RESTARTS, ""), volume.status.restart_count
            ),
        ),
        conditions,
    )
    events = []
    if stage.reason and stage.phase != volume.status.phase:
        events.append(Event(stage.type, stage.reason, stage.message))
    return status, [*events, *_condition_events(volume.status, status)]


def _stage(
    volume: DataVolume, source: Source, claim: PersistentVolumeClaim, *, waits: bool
) -> _Stage:
    annotations, phase = annotations_of(claim), claim.status.phase if claim.status else None
    name = key_of(claim).name
    if phase == LOST:
        return _Stage(FAILED, "Warning", "ErrClaimLost", f"PVC {name} lost")
    if annotations.get(population.POPULATED_FOR) == volume.metadata.name and phase == BOUND:
        return _Stage(SUCCEEDED, "", "", "")
    found = kind_of(source).stage(annotations)
    if phase != BOUND and annotations.get(population.PHASE) != population.SUCCEEDED:
        return _Stage(WAITS if waits else PENDING, "", "", "")
    if found is None:
        return _Stage(CLAIM_BOUND, "", "", "")
    copied = source.pvc
    names = {
        "name": name,
        "claim": f"{volume.metadata.namespace}/{name}",
        "source": f"{copied.namespace or volume.metadata.namespace}/{copied.name}"
        if copied
        else "",
    }
    return found._replace(message=found.message.format_map(names))


def _progress(volume: DataVolume, kind: _Kind, phase: str, annotations: Mapping[str, str]) -> str:
    if not kind.has_progress:
        return UNKNOWN_PROGRESS
    if phase == SUCCEEDED:
        return ALL
    return annotations.get(population.PROGRESS) or volume.status.progress or UNKNOWN_PROGRESS


def _count(text: str, old: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else old


# ---------------------------------------------------------------- conditions


class Conditions:
    """CDI's conditions, of DataVolumes and DataSources: times change only with the fields."""

    def __init__(self, conditions: Sequence[DataVolumeCondition], now: str) -> None:
        self.all = list(conditions)
        self._now = now

    def set(self, type_: str, status: str, reason: str = "", message: str = "") -> None:
        old = find(self.all, type_)
        if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
            return
        changed = old is None or old.status != status
        new = DataVolumeCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_heartbeat_time=self._now,
            last_transition_time=self._now if changed or old is None else old.last_transition_time,
        )
        if old is None:
            self.all.append(new)
        else:
            self.all[self.all.index(old)] = new


def find(conditions: Sequence[DataVolumeCondition], type_: str) -> DataVolumeCondition | None:
    """Return the condition of a type."""
    return next((each for each in conditions if each.type == type_), None)


def _set_conditions(conditions: Conditions, claim: PersistentVolumeClaim, phase: str) -> None:
    name, annotations = key_of(claim).name, annotations_of(claim)
    state = claim.status.phase if claim.status else None
    if state == BOUND:
        conditions.set("Bound", TRUE, BOUND, f"PVC {name} Bound")
    elif state == LOST:
        conditions.set("Bound", FALSE, "ClaimLost", "Claim Lost")
    else:
        conditions.set("Bound", FALSE, PENDING, f"PVC {name} Pending")
    goes_on = annotations.get(population.RUNNING_CONDITION) == "true"
    if goes_on and phase != SUCCEEDED:
        conditions.set("Ready", FALSE, "TransferRunning")
    else:
        conditions.set("Ready", TRUE if phase == SUCCEEDED else FALSE)
    conditions.set(
        "Running",
        TRUE if goes_on else FALSE,
        annotations.get(population.REASON, ""),
        annotations.get(population.MESSAGE, ""),
    )


def _with(status: DataVolumeStatus, conditions: Conditions) -> DataVolumeStatus:
    return msgspec.structs.replace(status, conditions=conditions.all)


def _condition_events(old: DataVolumeStatus, new: DataVolumeStatus) -> list[Event]:
    """Return events of changed conditions: that of the claim, and why population halts."""
    bound, before = find(new.conditions, "Bound"), find(old.conditions, "Bound")
    events = []
    if bound is not None and (
        before is None or (bound.reason, bound.message) != (before.reason, before.message)
    ):
        events.append(Event("Normal", bound.reason, bound.message))
    running, was = find(new.conditions, "Running"), find(old.conditions, "Running")
    halted = (
        running is not None
        and running.status == FALSE
        and running.message
        and (bound is None or bound.status == TRUE)
        and new.phase != SUCCEEDED
    )
    if running is not None and halted and (was is None or was.message != running.message):
        events.append(Event("Warning", running.reason, running.message))
    return events
