"""Saved memory: the annotations of VMIs and PVCs for a machine's memory kept in a PVC.  No I/O.

A VMI that shall be saved names the PVC, and so does the one that resumes from it; both in
annotations, since KubeVirt has no field for this, though its pools have ``statePreservation:
Online``.  The PVC has an annotation about the memory in it (``Mark``), which its node writes and
removes.  The annotation is informative only: a node trusts what it finds in the volume.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.encoding import decode_as
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Struct

SAVE_TO = "corral.dev/save-to"
"""Annotation of a VMI: the PVC to save its memory to; the VMI ends then."""
RESTORE_FROM = "corral.dev/restore-from"
"""Annotation of a VMI: the PVC to resume from."""
IDENTITY = "corral.dev/identity"
"""Annotation of a VMI: the uid from which its MAC addresses and firmware UUID are derived.

A guest that resumes must see the hardware that it had, though its VMI is a new one.
"""
START_FROM = "corral.dev/start-from"
"""Annotation of a VMI: the VirtualMachineCheckpoint of its namespace that it starts from."""
START_ON = "corral.dev/start-on"
"""Annotation of a VMI: the node that has its checkpoint; later it may move, as any other."""
SAVED_MACHINE = "corral.dev/saved-machine"
"""Annotation of a PVC: a ``Mark`` in JSON while it holds a machine's memory."""


class Mark(Struct, kw_only=True):
    """The description of saved memory in a PVC.

    identity: the uid that the machine's hardware is derived from.
    instance: the VMI, namespace/name.
    saved_at: when, in RFC 3339.
    bytes: size of memory and device state on disk.
    """

    identity: str
    instance: str = ""
    saved_at: str = ""
    bytes: int = 0


def mark_of(claim: PersistentVolumeClaim) -> Mark | None:
    """Return the mark of a PVC; None if it has none that can be decoded."""
    with suppress(msgspec.DecodeError):
        return decode_as(_annotations(claim).get(SAVED_MACHINE, ""), Mark)
    return None


def mark_annotation(mark: Mark | None) -> dict[str, str | None]:
    """Return a merge patch of a PVC's annotations that sets the mark, or removes it."""
    return {SAVED_MACHINE: None if mark is None else msgspec.json.encode(mark).decode()}


def resume_annotations(claim_name: str, mark: Mark) -> dict[str, str]:
    """Return the annotations of a VMI that resumes from the memory in a PVC."""
    return {RESTORE_FROM: claim_name, IDENTITY: mark.identity}


def saves_to(vmi: VirtualMachineInstance) -> str:
    """Return the PVC to save a VMI's memory to; empty if it shall not be saved."""
    return vmi.metadata.annotations.get(SAVE_TO, "")


def restores_from(vmi: VirtualMachineInstance) -> str:
    """Return the PVC that a VMI resumes from; empty if it boots."""
    return vmi.metadata.annotations.get(RESTORE_FROM, "")


def starts_from(vmi: VirtualMachineInstance) -> str:
    """Return the VirtualMachineCheckpoint that a VMI starts from; empty if it boots."""
    return vmi.metadata.annotations.get(START_FROM, "")


def firmware_uuid(vmi: VirtualMachineInstance) -> str:
    """Return the UUID in the firmware of a VMI: that of its identity, but each fork has its own."""
    firmware = vmi.spec.domain.firmware
    if firmware is not None and firmware.uuid:
        return firmware.uuid
    return vmi.metadata.uid if starts_from(vmi) else identity(vmi)


def identity(vmi: VirtualMachineInstance) -> str:
    """Return the uid that a VMI's hardware is derived from: its own, unless it resumes another."""
    with suppress(ValueError):
        return str(uuid.UUID(vmi.metadata.annotations.get(IDENTITY, "")))
    return vmi.metadata.uid


def _annotations(claim: PersistentVolumeClaim) -> Mapping[str, str]:
    return (claim.metadata and claim.metadata.annotations) or {}
