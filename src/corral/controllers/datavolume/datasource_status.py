"""What a DataSource means at present, and whether that can be copied.  Pure.

Conditions, their words and the labels are those of CDI's pkg/controller/datasource-controller.go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.cdi.datasource import (
    DataSource,
    DataSourceSource,
    DataSourceStatus,
    KeptDataSource,
)
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.controllers.datavolume.status import FALSE, SUCCEEDED, TRUE, Conditions
from corral.reconcile.objects import labels_of

READY: Final = "Ready"
_COPIED: Final = re.compile(r"([\w.]+\.kubevirt\.io|kubevirt\.io)/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is there.

    named: the DataSource that the DataSource names.
    claim: what is meant, by itself or by the one that it names.
    volume: the DataVolume that fills the claim.
    now: the present moment, RFC 3339.
    """

    named: DataSource | None = None
    claim: PersistentVolumeClaim | None = None
    volume: DataVolume | None = None
    now: str


class Decision(NamedTuple):
    """What to write.

    status: what the status shall be.
    labels: those that the DataSource takes from what it means, as they differ.
    """

    status: DataSourceStatus
    labels: Mapping[str, str]


class _Answer(NamedTuple):
    """The condition Ready: its status, and why."""

    status: str
    reason: str
    message: str


_IS_READY: Final = _Answer(TRUE, READY, "DataSource is ready to be consumed")


def decide(reference: KeptDataSource, seen: Observed) -> Decision:
    """What to write of a DataSource."""
    other = reference.spec.source.data_source
    meant = reference if other is None else seen.named
    if meant is None:
        name = other.name if other is not None else ""
        message = f'{DataSource.kind}.cdi.kubevirt.io "{name}" not found'
        answer = _Answer(FALSE, "NotFound", message)
    elif other is not None and meant.spec.source.data_source is not None:
        message = "DataSource reference chain exceeds maximum depth of 1"
        answer = _Answer(FALSE, "MaxReferenceDepthReached", message)
    else:
        answer = _of(meant.spec.source, seen)
    conditions = Conditions(reference.known_status.conditions, seen.now)
    conditions.set(READY, *answer)
    if meant is None or answer is not _IS_READY:
        return Decision(DataSourceStatus(conditions=conditions.all), {})
    status = DataSourceStatus(source=meant.spec.source, conditions=conditions.all)
    return Decision(status, _labels(reference, seen))


def _of(source: DataSourceSource, seen: Observed) -> _Answer:
    if source.snapshot is not None:  # from before they were refused: there are none
        return _Answer(FALSE, "NotFound", "Snapshot not found")
    if source.pvc is None:
        return _Answer(FALSE, "NoSource", "No source PVC set")
    if seen.volume is not None and seen.volume.status.phase != SUCCEEDED:
        phase = seen.volume.status.phase
        return _Answer(FALSE, phase, f"Import DataVolume phase {phase}")
    if seen.volume is None and seen.claim is None:
        return _Answer(FALSE, "NotFound", "PVC not found")
    return _IS_READY


def _labels(reference: DataSource, seen: Observed) -> dict[str, str]:
    """KubeVirt's labels, which tell machines of the image what instance type suits it."""
    of_volume = seen.volume.metadata.labels if seen.volume is not None else {}
    of_claim = labels_of(seen.claim) if seen.claim is not None else {}
    has = reference.metadata.labels
    return {
        name: value
        for name, value in {**of_volume, **of_claim}.items()
        if _COPIED.fullmatch(name) and has.get(name) != value
    }
