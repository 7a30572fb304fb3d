"""A machine's memory that is kept in a claim: what asks for it, and what tells of it.  Pure.

An instance that is to be saved names the claim, and so does the one that is to go on from there;
both say so in annotations, since KubeVirt has no field for it (the pool's ``statePreservation:
Online`` promises it).  The claim tells of what is in it by a mark, which its node writes and takes
away.  The mark is no proof: a node believes what it finds in the claim's volume.
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
"""Of an instance: the claim that its memory shall be saved to; it ends then."""
RESTORE_FROM = "corral.dev/restore-from"
"""Of an instance: the claim whose memory it shall go on from."""
IDENTITY = "corral.dev/identity"
"""Of an instance: whose hardware it has, by uid.

Hardware addresses and the firmware's UUID follow from it where the instance names none: a guest
that goes on has the cards that it had.
"""
SAVED_MACHINE = "corral.dev/saved-machine"
"""Of a claim: a ``Mark`` in JSON, while a machine's memory is in it."""


class Mark(Struct, kw_only=True):
    """What is told of a memory in a claim.

    identity: the uid that the machine's hardware follows from.
    instance: whose it was, namespace/name.
    saved_at: when, in RFC 3339.
    bytes: of memory and device state on disk.
    """

    identity: str
    instance: str = ""
    saved_at: str = ""
    bytes: int = 0


def mark_of(claim: PersistentVolumeClaim) -> Mark | None:
    """What a claim tells of the memory in it; None where it tells nothing that can be read."""
    with suppress(msgspec.DecodeError):
        return decode_as(_annotations(claim).get(SAVED_MACHINE, ""), Mark)
    return None


def mark_annotation(mark: Mark | None) -> dict[str, str | None]:
    """A merge patch of a claim's annotations, after which it tells this, or nothing."""
    return {SAVED_MACHINE: None if mark is None else msgspec.json.encode(mark).decode()}


def resume_annotations(claim_name: str, mark: Mark) -> dict[str, str]:
    """What an instance says that shall go on from the memory in a claim."""
    return {RESTORE_FROM: claim_name, IDENTITY: mark.identity}


def saves_to(vmi: VirtualMachineInstance) -> str:
    """The claim that an instance's memory shall be saved to; empty where it shall not be."""
    return vmi.metadata.annotations.get(SAVE_TO, "")


def restores_from(vmi: VirtualMachineInstance) -> str:
    """The claim that an instance shall go on from; empty where it shall start anew."""
    return vmi.metadata.annotations.get(RESTORE_FROM, "")


def identity(vmi: VirtualMachineInstance) -> str:
    """The uid that an instance's hardware follows from: its own, unless it goes on from another."""
    with suppress(ValueError):
        return str(uuid.UUID(vmi.metadata.annotations.get(IDENTITY, "")))
    return vmi.metadata.uid


def _annotations(claim: PersistentVolumeClaim) -> Mapping[str, str]:
    return (claim.metadata and claim.metadata.annotations) or {}
