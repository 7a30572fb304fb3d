"""Controller of checkpoints: reports those that no node makes, as their source is on none.

The node of the source reports all else (``corral.node.agent.checkpoints``).
"""

from contextlib import suppress

import msgspec

from corral.api.conditions import set_condition
from corral.api.errors import NotFound
from corral.api.kinds.corral.checkpoint import READY, VirtualMachineCheckpoint
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.indexes import by_source
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Checkpoints(context)
    return Controller("checkpoint", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Checkpoints:
    """Caches of the controller; the keys are those of checkpoints."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self._checkpoints = context.informers.of(VirtualMachineCheckpoint)
        self._vmis = context.informers.of(VMI)
        self.sources = (self._checkpoints, self._vmis)
        self._client = context.client
        self._clock = context.clock
        self._checkpoints.index(by_source)
        self._checkpoints.handle(self._checkpoint_changed)
        self._vmis.handle(self._vmi_changed)

    async def reconcile(self, key: Key) -> None:
        """Report why no node makes a checkpoint.  Raises ApiError."""
        checkpoint = self._checkpoints.get(key)
        if checkpoint is None or checkpoint.is_final or is_being_deleted(checkpoint):
            return
        found = missing_source(checkpoint, self._vmis.get(checkpoint.source_key))
        if found is None:
            return
        reason, message = found
        before = msgspec.to_builtins(checkpoint.status.conditions)
        now = rfc3339(self._clock())
        after = set_condition(before, READY, "False", reason=reason, message=message, now=now)
        generation = checkpoint.metadata.generation
        if before == after and checkpoint.status.observed_generation == generation:
            return
        change = {
            "metadata": {"resourceVersion": checkpoint.metadata.resource_version},
            "status": {"conditions": after, "observedGeneration": generation},
        }
        with suppress(NotFound):
            await self._client.patch(VirtualMachineCheckpoint, key, change, subresource="status")

    def _checkpoint_changed(
        self, _old: VirtualMachineCheckpoint | None, new: VirtualMachineCheckpoint | None
    ) -> None:
        if new is not None and not new.is_final:
            self.queue.add(new.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        if old is not None and new is not None and old.status.node_name == new.status.node_name:
            return
        if (vmi := new or old) is not None:
            for checkpoint in self._checkpoints.indexed(by_source, str(vmi.key)):
                self.queue.add(checkpoint.key)


def missing_source(
    checkpoint: VirtualMachineCheckpoint, source: VMI | None
) -> tuple[str, str] | None:
    """Return the reason and message for a source that is on no node; None if a node reports.

    A checkpoint that has been begun is reported by the node that has begun it.
    """
    if checkpoint.status.source_uid:
        return None
    name = checkpoint.spec.source.name
    if source is None:
        return "SourceNotFound", f"there is no VirtualMachineInstance {name} in this namespace"
    if not source.status.node_name:
        return "SourceNotScheduled", f"VirtualMachineInstance {name} is on no node yet"
    return None
