"""Status of a DataSource: what it resolves to, and whether that can be cloned. Pure.

Conditions, messages and labels are those of CDI's pkg/controller/datasource-controller.go.
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
    StoredDataSource,
)
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.controllers.datavolume.status import FALSE, SUCCEEDED, TRUE, Conditions
from corral.reconcile.objects import labels_of

READY: Final = "Ready"
_COPIED: Final = re.compile(r"([\w.]+\.kubevirt\.io|kubevirt\.io)/[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Observed objects.

    named: the DataSource that the DataSource refers to.
    claim: the claim that it resolves to.
    volume: the DataVolume that fills the claim.
    now: the present time, RFC 3339.
    """

    named: DataSource | None = None
    claim: PersistentVolumeClaim | None = None
    volume: DataVolume | None = None
    now: str


class Decision(NamedTuple):
    """The status to write.

    status: the desired status.
    labels: labels to copy from the claim or its DataVolume, where they differ.
    """

    status: DataSourceStatus
    labels: Mapping[str, str]


class _Ready(NamedTuple):
    """Status, reason and message of the condition Ready."""

    status: str
    reason: str
    message: str


_IS_READY: Final = _Ready(TRUE, READY, "DataSource is ready to be consumed")


def decide(reference: StoredDataSource, observed: Observed) -> Decision:
    """Return the desired status and labels of a DataSource."""
    other = reference.spec.source.data_source
    target = reference if other is None else observed.named
    if target is None:
        name = other.name if other is not None else ""
        message = f'{DataSource.kind}.cdi.kubevirt.io "{name}" not found'
        ready = _Ready(FALSE, "NotFound", message)
    elif other is not None and target.spec.source.data_source is not None:
        message = "DataSource reference chain exceeds maximum depth of 1"
        ready = _Ready(FALSE, "MaxReferenceDepthReached", message)
    else:
        ready = _of(target.spec.source, observed)
    conditions = Conditions(reference.parsed_status.conditions, observed.now)
    conditions.set(READY, *ready)
    if target is None or ready is not _IS_READY:
        return Decision(DataSourceStatus(conditions=conditions.all), {})
    status = DataSourceStatus(source=target.spec.source, conditions=conditions.all)
    return Decision(status, _labels(reference, observed))


def _of(source: DataSourceSource, observed: Observed) -> _Ready:
    if source.snapshot is not None:  # created before admission rejected them
        return _Ready(FALSE, "NotFound", "Snapshot not found")
    if source.pvc is None:
        return _Ready(FALSE, "NoSource", "No source PVC set")
    if observed.volume is not None and observed.volume.status.phase != SUCCEEDED:
        phase = observed.volume.status.phase
        return _Ready(FALSE, phase, f"Import DataVolume phase {phase}")
    if observed.volume is None and observed.claim is None:
        return _Ready(FALSE, "NotFound", "PVC not found")
    return _IS_READY


def _labels(reference: DataSource, observed: Observed) -> dict[str, str]:
    """Return changed labels of KubeVirt, which name the instance type that suits an image."""
    of_volume = observed.volume.metadata.labels if observed.volume is not None else {}
    of_claim = labels_of(observed.claim) if observed.claim is not None else {}
    own = reference.metadata.labels
    return {
        name: value
        for name, value in {**of_volume, **of_claim}.items()
        if _COPIED.fullmatch(name) and own.get(name) != value
    }
