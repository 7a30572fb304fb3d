"""How far a DataVolume is, by what is told on its claim, in CDI's phases and conditions.  Pure."""

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


class Telling(NamedTuple):
    """An event to tell: Normal or Warning, a reason in CamelCase, a sentence."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no claim yet: an event's reason and message, as CDI tells them."""

    reason: str
    message: str


class _Stage(NamedTuple):
    """A phase of filling, and what is told when it is reached."""

    phase: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Way:
    """The stages of one kind of filling, by the phase that the claim tells."""

    scheduled: _Stage
    going: _Stage
    done: _Stage
    failed: _Stage
    tells_progress: bool = True

    def stage(self, told: Mapping[str, str]) -> _Stage | None:
        if told.get(population.PHASE) == population.RUNNING:
            # An upload is ready when it is waited for, not when something was begun for it.
            waits = self.tells_progress or told.get(population.READY) == "true"
            return self.going if waits else self.scheduled
        return {
            population.PENDING: self.scheduled,
            population.SUCCEEDED: self.done,
            population.FAILED: self.failed,
        }.get(told.get(population.PHASE, ""))


def _import() -> _Way:
    return _Way(
        _Stage("ImportScheduled", "Normal", "ImportScheduled", "Import into {name} scheduled"),
        _Stage("ImportInProgress", "Normal", "ImportInProgress", "Import into {name} in progress"),
        _Stage(SUCCEEDED, "Normal", "ImportSucceeded", "Successfully imported into PVC {name}"),
        _Stage(FAILED, "Warning", "ImportFailed", "Failed to import into PVC {name}"),
    )


def _upload() -> _Way:
    return _Way(
        _Stage("UploadScheduled", "Normal", "UploadScheduled", "Upload into {name} scheduled"),
        _Stage("UploadReady", "Normal", "UploadReady", "Upload into {name} ready"),
        _Stage(SUCCEEDED, "Normal", "UploadSucceeded", "Successfully uploaded into {name}"),
        _Stage(FAILED, "Warning", "UploadFailed", "Upload into {name} failed"),
        tells_progress=False,
    )


def _clone() -> _Way:
    way = "from {source} into {claim}"
    return _Way(
        _Stage("CloneScheduled", "Normal", "CloneScheduled", f"Cloning {way} scheduled"),
        _Stage(
            "CSICloneInProgress",
            "Normal",
            "CSICloneInProgress",
            "CSI Volume clone in progress (for pvc {source})",
        ),
        _Stage(SUCCEEDED, "Normal", "CloneSucceeded", f"Successfully cloned {way}"),
        _Stage(FAILED, "Warning", "CloneFailed", f"Cloning {way} failed"),
    )


IMPORT, UPLOAD, CLONE = _import(), _upload(), _clone()


def way_of(source: Source) -> _Way:
    """How a claim is filled from a source."""
    if source.upload is not None:
        return UPLOAD
    return CLONE if source.pvc is not None else IMPORT


def without_claim(volume: DataVolume, problem: Problem | None, now: str) -> DataVolumeStatus:
    """The status while there is no claim of the DataVolume's own."""
    reason, message = (problem.reason, problem.message) if problem else ("NotFound", "No PVC found")
    conditions = Conditions(volume.status.conditions, now)
    conditions.set("Bound", FALSE, reason, message)
    conditions.set("Ready", FALSE, *((reason, message) if problem else ("", "")))
    conditions.set("Running", FALSE)
    status = msgspec.structs.replace(volume.status, phase=volume.status.phase or PENDING)
    return _with(status, conditions)


def with_claim(
    volume: DataVolume, source: Source, claim: PersistentVolumeClaim, *, waits: bool, now: str
) -> tuple[DataVolumeStatus, list[Telling]]:
    """The status, and what is to be told of how it came to be.

    ``waits``: whether the claim's class binds claims only when they are used.
    """
    stage = _stage(volume, source, claim, waits=waits)
    told = annotations_of(claim)
    conditions = Conditions(volume.status.conditions, now)
    _set_conditions(conditions, claim, stage.phase)
    status = _with(
        msgspec.structs.replace(
            volume.status,
            claim_name=key_of(claim).name,
            phase=stage.phase,
            progress=_progress(volume, way_of(source), stage.phase, told),
            restart_count=_count(told.get(population.RESTARTS, ""), volume.status.restart_count),
        ),
        conditions,
    )
    events = []
    if stage.reason and stage.phase != volume.status.phase:
        events.append(Telling(stage.type, stage.reason, stage.message))
    return status, [*events, *_told_of(volume.status, status)]


def _stage(
    volume: DataVolume, source: Source, claim: PersistentVolumeClaim, *, waits: bool
) -> _Stage:
    told, phase = annotations_of(claim), claim.status.phase if claim.status else None
    name = key_of(claim).name
    if phase == LOST:
        return _Stage(FAILED, "Warning", "ErrClaimLost", f"PVC {name} lost")
    if told.get(population.POPULATED_FOR) == volume.metadata.name and phase == BOUND:
        return _Stage(SUCCEEDED, "", "", "")
    found = way_of(source).stage(told)
    if phase != BOUND and told.get(population.PHASE) != population.SUCCEEDED:
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


def _progress(volume: DataVolume, way: _Way, phase: str, told: Mapping[str, str]) -> str:
    if not way.tells_progress:
        return UNKNOWN_PROGRESS
    if phase == SUCCEEDED:
        return ALL
    return told.get(population.PROGRESS) or volume.status.progress or UNKNOWN_PROGRESS


def _count(text: str, known: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else known


# ---------------------------------------------------------------- conditions


class Conditions:
    """CDI's conditions, of DataVolumes and DataSources: times move only when something changes."""

    def __init__(self, conditions: Sequence[DataVolumeCondition], now: str) -> None:
        self.all = list(conditions)
        self._now = now

    def set(self, type_: str, status: str, reason: str = "", message: str = "") -> None:
        old = find(self.all, type_)
        if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
            return
        turned = old is None or old.status != status
        new = DataVolumeCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_heartbeat_time=self._now,
            last_transition_time=self._now if turned or old is None else old.last_transition_time,
        )
        if old is None:
            self.all.append(new)
        else:
            self.all[self.all.index(old)] = new


def find(conditions: Sequence[DataVolumeCondition], type_: str) -> DataVolumeCondition | None:
    """The condition of a type."""
    return next((each for each in conditions if each.type == type_), None)


def _set_conditions(conditions: Conditions, claim: PersistentVolumeClaim, phase: str) -> None:
    name, told = key_of(claim).name, annotations_of(claim)
    state = claim.status.phase if claim.status else None
    if state == BOUND:
        conditions.set("Bound", TRUE, BOUND, f"PVC {name} Bound")
    elif state == LOST:
        conditions.set("Bound", FALSE, "ClaimLost", "Claim Lost")
    else:
        conditions.set("Bound", FALSE, PENDING, f"PVC {name} Pending")
    goes_on = told.get(population.GOES_ON) == "true"
    if goes_on and phase != SUCCEEDED:
        conditions.set("Ready", FALSE, "TransferRunning")
    else:
        conditions.set("Ready", TRUE if phase == SUCCEEDED else FALSE)
    conditions.set(
        "Running",
        TRUE if goes_on else FALSE,
        told.get(population.REASON, ""),
        told.get(population.MESSAGE, ""),
    )


def _with(status: DataVolumeStatus, conditions: Conditions) -> DataVolumeStatus:
    return msgspec.structs.replace(status, conditions=conditions.all)


def _told_of(old: DataVolumeStatus, new: DataVolumeStatus) -> list[Telling]:
    """Events about conditions that changed: the claim's, and why filling does not go on."""
    bound, before = find(new.conditions, "Bound"), find(old.conditions, "Bound")
    events = []
    if bound is not None and (
        before is None or (bound.reason, bound.message) != (before.reason, before.message)
    ):
        events.append(Telling("Normal", bound.reason, bound.message))
    running, was = find(new.conditions, "Running"), find(old.conditions, "Running")
    fails = (
        running is not None
        and running.status == FALSE
        and running.message
        and (bound is None or bound.status == TRUE)
        and new.phase != SUCCEEDED
    )
    if running is not None and fails and (was is None or was.message != running.message):
        events.append(Telling("Warning", running.reason, running.message))
    return events
