"""Writes the status of machines to the API: to their pods and VMIs, in that order."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key
from corral.api.time import rfc3339
from corral.node.machine.lifecycle import Machine
from corral.node.state.facts import Facts
from corral.node.state.machine_record import Stage
from corral.node.status.migration_status import migration_changes
from corral.node.status.pod_status import differs, pod_status
from corral.node.status.vmi_status import instance_status
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import is_being_deleted, key_of, version_of

_FINAL_STAGES = frozenset({Stage.STARTED, Stage.ENDED})
"""Stages in which a machine's memory is neither being saved nor restored."""


@dataclass(slots=True)
class _Written:
    """The versions of a machine's objects that show its facts, so need no comparison again."""

    facts: Facts
    pod: Pod | None = None
    vmi: VirtualMachineInstance | None = None


class StatusManager:
    """Writes changed status.  ``node``: this node, at ``address``.

    ``saved_memories``: annotates claims; ``alone``: machines migrate to no other node.
    """

    def __init__(
        self,
        context: ControllerContext,
        node: str,
        address: str,
        saved_memories: SavedMemoryClaims | None,
        *,
        alone: bool = False,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._node = node
        self._address = address
        self._saved_memories = saved_memories
        self._alone = alone
        self._marked: WeakKeyDictionary[Machine, Stage] = WeakKeyDictionary()
        self._written: WeakKeyDictionary[Machine, _Written] = WeakKeyDictionary()

    async def sync(self, machine: Machine, pod: Pod, vmi: VirtualMachineInstance | None) -> None:
        """Write changed status of a machine's pod and VMI."""
        facts = machine.facts
        if facts.is_passing:
            return
        await self._mark(machine)
        now = rfc3339(self._clock())
        written = self._written.get(machine)
        if written is None or written.facts is not facts:
            written = self._written[machine] = _Written(facts)
        if not facts.ended and written.pod is not pod:
            changed = await self.write_pod(pod, facts)
            written.pod, pod = pod if changed is None else None, changed or pod
        if vmi is not None and written.vmi is not vmi:
            if document := self._changes(machine, vmi, pod, now):
                version = {"resourceVersion": vmi.metadata.resource_version}
                document["metadata"] = document.get("metadata", {}) | version
                written.vmi = await self._client.patch(VirtualMachineInstance, vmi.key, document)
                if NODE_LABEL in document["metadata"].get("labels", ()):
                    written.vmi = None  # now the VMI is this node's, and the rest is written
                    machine.arrival.mark_reported()
            else:
                written.vmi = vmi
        if facts.ended and vmi is not None and not is_being_deleted(vmi):
            # The VMI first: the VMI controller concludes from the end of the pod how the VMI ended.
            # The pod of a VMI that is being deleted is deleted right after this: no write.
            await self.write_pod(pod, facts)

    def _changes(
        self, machine: Machine, vmi: VirtualMachineInstance, pod: Pod, now: str
    ) -> Document:
        """Return the changes of a VMI: those of its migration first, which say whose it is."""
        facts = machine.facts
        migrates = migration_changes(
            machine.record, facts, vmi, node=self._node, address=self._address, now=now
        )
        if migrates or facts.elsewhere:
            return migrates
        changes = instance_status(
            facts,
            vmi,
            pod,
            now,
            alone=self._alone,
            launcher=machine.record.launcher,
            machine_type=machine.record.machine_type,
        )
        return {"status": changes} if changes else {}

    async def write_pod(self, pod: Pod, facts: Facts) -> Pod | None:
        """Write the pod's status; return the written pod, or None if it has not changed."""
        status = pod_status(facts, pod, self._address, rfc3339(self._clock()))
        if not differs(status, pod):
            return None
        version = {"resourceVersion": version_of(pod)}
        document = {"metadata": version, "status": status}
        return await self._client.patch(Pod, key_of(pod), document, subresource="status")

    async def _mark(self, machine: Machine) -> None:
        """Annotate the claim of the machine's memory, before the end of the machine is visible."""
        record = machine.record
        final = record.stage in _FINAL_STAGES and self._marked.get(machine) is not record.stage
        if record.claim and final and self._saved_memories is not None:
            await self._saved_memories.annotate(Key(record.namespace, record.claim))
            self._marked[machine] = record.stage
