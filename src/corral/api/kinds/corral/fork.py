"""VMIs that start from a checkpoint.  No I/O."""

from copy import deepcopy
from typing import Final

from corral.api.kind import at
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.vmi.live_update import BOOT_SOCKETS
from corral.api.kinds.vmi.saved_memory import IDENTITY, START_FROM, START_ON
from corral.api.object import Document

_OF_THE_SOURCE: Final = ("uuid", "serial")
"""Fields of the firmware that a fork does not share with its source."""


def fork_annotations(checkpoint: VirtualMachineCheckpoint) -> dict[str, str]:
    """Return the annotations of a VMI that starts from a complete checkpoint, on its node."""
    status = checkpoint.status
    annotations = {
        START_FROM: checkpoint.metadata.name,
        START_ON: status.node_name,
        IDENTITY: status.identity,
    }
    if status.boot_sockets is not None:
        annotations[BOOT_SOCKETS] = str(status.boot_sockets)
    return annotations


def fork_of(source: Document, checkpoint: VirtualMachineCheckpoint) -> Document:
    """Return a VMI that starts from a checkpoint of ``source``.

    It has none of the labels, lest a set or a Service of the source's take it for one of theirs.
    """
    spec = deepcopy(source["spec"])
    spec.pop("hostname", None)
    firmware = at(spec, "domain", "firmware")
    for field in _OF_THE_SOURCE if firmware else ():
        firmware.pop(field, None)
    return {
        "apiVersion": source["apiVersion"],
        "kind": source["kind"],
        "metadata": {
            "generateName": f"{source['metadata']['name']}-",
            "namespace": source["metadata"]["namespace"],
            "annotations": fork_annotations(checkpoint),
        },
        "spec": spec,
    }
