"""Checkpoints that new VMIs name: the annotations that follow from them are filled in.

A VMI, or the template that it is made from, names the checkpoint alone.  The node that has it,
where the VMI starts, the identity that its guest has in memory, and the sockets by which its
devices have their queues are read from its status when the VMI is created.
"""

from corral.api.encoding import decode_as
from corral.api.kind import at
from corral.api.kinds.corral.checkpoint import FAILED, VirtualMachineCheckpoint
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.vmi.live_update import BOOT_SOCKETS
from corral.api.kinds.vmi.saved_memory import IDENTITY, START_FROM, START_ON, identity
from corral.api.kinds.vmi.start_annotations import invalid_annotation
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.names import subdomain_faults
from corral.api.object import Document, Key
from corral.server.request.call import Call, Prepare, storage
from corral.store import Objects


class Checkpoints:
    """The admission plugin of VMIs that start from a checkpoint."""

    def __init__(self, store: Objects) -> None:
        self._store = store

    def creators(self) -> dict[str, Prepare]:
        """Return the steps of new objects, by the resource name of the stored kind."""
        return {storage(VIRTUAL_MACHINE_INSTANCE): self._resolve}

    def _resolve(self, call: Call, document: Document, _old: Document | None) -> None:
        """Fill in what a new VMI has from its checkpoint.  Raises Invalid."""
        name = at(document, "metadata", "annotations", START_FROM)
        if not name or subdomain_faults(name):  # validation refuses the latter
            return
        namespace = document["metadata"].get("namespace") or call.namespace
        record = self._store.latest(storage(CHECKPOINT), Key(namespace, name))
        if record is None:
            self._warn(call, f'there is no VirtualMachineCheckpoint "{name}"')
            return
        checkpoint = decode_as(record.data, VirtualMachineCheckpoint)
        if checkpoint.has(FAILED):
            self._warn(call, f'VirtualMachineCheckpoint "{name}" has failed')
            return
        theirs = self._identity(checkpoint)
        annotations = document["metadata"]["annotations"]
        given = annotations.get(IDENTITY)
        if given and theirs and given.lower() != theirs:
            fault = f'must be that of checkpoint "{name}", {theirs}, or left out'
            cause = invalid_annotation("metadata", IDENTITY, given, fault)
            own = document["metadata"].get("name", "")
            raise call.kind.denied(own, [cause], creating=True)
        sockets = checkpoint.status.boot_sockets
        found = {
            IDENTITY: theirs,
            START_ON: checkpoint.status.node_name,
            BOOT_SOCKETS: str(sockets) if sockets is not None else "",
        }
        for annotation, value in found.items():
            if value:
                annotations.setdefault(annotation, value)

    def _identity(self, checkpoint: VirtualMachineCheckpoint) -> str:
        """Return the identity of the source's guest; empty while that is not known."""
        if checkpoint.status.identity:
            return checkpoint.status.identity
        record = self._store.latest(storage(VIRTUAL_MACHINE_INSTANCE), checkpoint.source_key)
        if record is None:
            return ""
        source = decode_as(record.data, VirtualMachineInstance)
        begun = checkpoint.status.source_uid
        return identity(source) if begun == source.metadata.uid else ""

    def _warn(self, call: Call, why: str) -> None:
        call.warnings.append(f"metadata.annotations[{START_FROM}]: {why}: the guest boots")
