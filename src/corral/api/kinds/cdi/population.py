"""Population of PVCs: annotations that request content for a PVC and report its progress.  No I/O.

The DataVolume controller requests content when it creates a PVC; the storage of the node writes the
content and reports its progress; consumers of the PVC check ``is_populated``.  Where CDI has an
annotation for it, that one is used.
"""

from collections.abc import Mapping

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.encoding import decode_as
from corral.api.kinds.cdi.datavolume import Source, UploadSource
from corral.api.object import Key, Struct

POPULATE = "corral.dev/populate"
"""Requests content: a ``PopulateRequest`` in JSON.  A PVC without it is ready as an empty disk."""
PHASE = "cdi.kubevirt.io/storage.pod.phase"
"""The phase of the population."""
PROGRESS = "cdi.kubevirt.io/storage.import.progress"
"""The progress, such as ``12.34%``; absent while it is unknown."""
RESTARTS = "cdi.kubevirt.io/storage.pod.restarts"
"""Number of restarts after failures of the population."""
REASON = "cdi.kubevirt.io/storage.condition.running.reason"
MESSAGE = "cdi.kubevirt.io/storage.condition.running.message"
"""Reason and message of the running condition."""
RUNNING_CONDITION = "cdi.kubevirt.io/storage.condition.running"
"""True if the population is running at present: ``true`` or ``false``."""
READY = "cdi.kubevirt.io/storage.pod.ready"
"""``true`` while an upload can be sent."""
UPLOAD_TARGET = "cdi.kubevirt.io/storage.upload.target"
"""With any value: the PVC waits for an upload, without ``POPULATE`` (``image-upload pvc``)."""
POPULATED_FOR = "cdi.kubevirt.io/storage.populatedFor"
"""The DataVolume for which the PVC was populated by others: it is adopted as it is."""

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
"""Values of ``PHASE``, those of CDI's importer pod; Failed is final."""


class PopulateRequest(Struct, kw_only=True):
    """A request for the content of a PVC.

    source: where it comes from.
    content_type: kubevirt (a disk) or archive.
    preallocation: whether all of the claim's space is allocated at once.
    """

    source: Source
    content_type: str = "kubevirt"
    preallocation: bool = False


def annotations(request: PopulateRequest) -> dict[str, str]:
    """Return the annotations of a PVC that shall be populated."""
    return {POPULATE: msgspec.json.encode(request).decode()}


def populate_request(claim: PersistentVolumeClaim) -> PopulateRequest | None:
    """Return the request for a PVC's content; None if it may stay empty.

    Raises msgspec.DecodeError for a request that cannot be decoded.
    """
    values = _annotations(claim)
    text = values.get(POPULATE)
    if text is None:
        return (
            PopulateRequest(source=Source(upload=UploadSource()))
            if UPLOAD_TARGET in values
            else None
        )
    return decode_as(text, PopulateRequest)


def is_populated(claim: PersistentVolumeClaim) -> bool:
    """Return whether a PVC has its content, or needs none."""
    values = _annotations(claim)
    is_requested = POPULATE in values or UPLOAD_TARGET in values
    return not is_requested or values.get(PHASE) == SUCCEEDED


def source_claim(claim: PersistentVolumeClaim) -> Key | None:
    """Return the PVC that a PVC is cloned from, by its data source or by a DataVolume."""
    spec, namespace = claim.spec, (claim.metadata and claim.metadata.namespace) or ""
    reference = spec and (spec.dataSourceRef or spec.dataSource)
    if reference and reference.kind == "PersistentVolumeClaim" and not reference.apiGroup:
        return Key(getattr(reference, "namespace", None) or namespace, reference.name)
    try:
        request = populate_request(claim)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    copied = request.source.pvc if request is not None else None
    return Key(copied.namespace or namespace, copied.name) if copied is not None else None


def _annotations(claim: PersistentVolumeClaim) -> Mapping[str, str]:
    return (claim.metadata and claim.metadata.annotations) or {}
