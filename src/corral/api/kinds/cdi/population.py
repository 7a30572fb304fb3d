"""How a claim is filled: what is asked, and what is told, in the claim's own annotations.  Pure.

Whoever wants a claim with content (the loop of DataVolumes) says so in the claim when it makes it;
who keeps the claim's files (the node's storage) fills them, and tells how far it is.  Whoever
needs the claim's content asks ``is_populated``.  The names that CDI has for these are used.
"""

from collections.abc import Mapping

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.encoding import decode_as
from corral.api.kinds.cdi.datavolume import Source, UploadSource
from corral.api.object import Struct

WISH = "corral.dev/populate"
"""Asks for content: a ``Wish`` in JSON.  A claim without it is an empty disk, which is ready."""
PHASE = "cdi.kubevirt.io/storage.pod.phase"
"""How far filling it is: a ``Phase``."""
PROGRESS = "cdi.kubevirt.io/storage.import.progress"
"""How much of the content is there: ``12.34%``; absent while that is unknown."""
RESTARTS = "cdi.kubevirt.io/storage.pod.restarts"
"""How often filling it failed and was begun again."""
REASON = "cdi.kubevirt.io/storage.condition.running.reason"
MESSAGE = "cdi.kubevirt.io/storage.condition.running.message"
"""What it is doing, or why it does not go on: one CamelCase word, and a sentence."""
GOES_ON = "cdi.kubevirt.io/storage.condition.running"
"""Whether something is done for it at present: ``true`` or ``false``."""
READY = "cdi.kubevirt.io/storage.pod.ready"
"""``true`` while an upload is waited for."""
UPLOAD_TARGET = "cdi.kubevirt.io/storage.upload.target"
"""With any value: the claim waits for an upload, and needs no ``WISH`` (``image-upload pvc``)."""
POPULATED_FOR = "cdi.kubevirt.io/storage.populatedFor"
"""The DataVolume for which somebody else has filled the claim: it is taken over as it is."""

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
"""Values of ``PHASE``, those of CDI's importer pod; Failed is for good."""


class Wish(Struct, kw_only=True):
    """The content that a claim shall have.

    source: where it comes from.
    content_type: kubevirt (a disk) or archive.
    preallocation: whether all of the claim's space is taken at once.
    """

    source: Source
    content_type: str = "kubevirt"
    preallocation: bool = False


def annotations(wish: Wish) -> dict[str, str]:
    """What a claim says that shall be filled."""
    return {WISH: msgspec.json.encode(wish).decode()}


def wish_of(claim: PersistentVolumeClaim) -> Wish | None:
    """The content that a claim asks for; None for one that may stay empty.

    Raises msgspec.DecodeError for a wish that cannot be read.
    """
    told = _annotations(claim)
    text = told.get(WISH)
    if text is None:
        return Wish(source=Source(upload=UploadSource())) if UPLOAD_TARGET in told else None
    return decode_as(text, Wish)


def is_populated(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim has its content, or needs none."""
    told = _annotations(claim)
    asks = WISH in told or UPLOAD_TARGET in told
    return not asks or told.get(PHASE) == SUCCEEDED


def _annotations(claim: PersistentVolumeClaim) -> Mapping[str, str]:
    return (claim.metadata and claim.metadata.annotations) or {}
