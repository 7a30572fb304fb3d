"""VMIs that start from a checkpoint.  No I/O."""

from copy import deepcopy
from typing import Final

from corral.api.kind import at
from corral.api.kinds.corral.checkpoint import VirtualMachineCheckpoint
from corral.api.kinds.vmi.saved_memory import IDENTITY, START_FROM
from corral.api.object import Document

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_OF_THE_SOURCE: Final = ("uuid", "serial")
"""Fields of the firmware that a fork does not share with its source."""


def fork_annotations(checkpoint: VirtualMachineCheckpoint) -> dict[str, str]:
    """Return the annotations of a VMI that starts from a complete checkpoint."""
    return {START_FROM: checkpoint.metadata.name, IDENTITY: checkpoint.status.identity}


def fork_of(source: Document, checkpoint: VirtualMachineCheckpoint) -> Document:
    """Return a VMI that starts from a checkpoint of ``source``, on the node that has it.

    It has none of the labels, lest a set or a Service of the source's take it for one of theirs.
    """
    spec = deepcopy(source["spec"])
    selector = spec.get("nodeSelector") or {}
    spec["nodeSelector"] = {**selector, HOSTNAME_LABEL: checkpoint.status.node}
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
