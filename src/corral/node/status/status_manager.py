"""Tells the API what has become of machines: in their pods and their instances, in that order."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from lightkube.models.core_v1 import Pod

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.node.machine.lifecycle import Machine
from corral.node.state.facts import Facts, State
from corral.node.state.machine_record import Stage
from corral.node.status.pod_status import differs, pod_status
from corral.node.status.vmi_status import instance_status
from corral.node.storage.saved_memory_claims import SavedMemoryClaims
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import is_being_deleted, key_of, version_of

_QUIET = frozenset({State.PREPARING, State.STARTING})
"""States that last for moments: they are not worth a write unless there is trouble in them."""
_SETTLED = frozenset({Stage.STARTED, Stage.ENDED})
"""Stages in which a machine's memory is not on its way."""


@dataclass(slots=True)
class _Told:
    """Versions of a machine's objects that were found to tell its facts: no need to look again."""

    facts: Facts
    pod: Pod | None = None
    vmi: VirtualMachineInstance | None = None


class Reports:
    """Writes what is new.  ``address``: the node's; ``saved_memories``: annotates their claims."""

    def __init__(
        self, context: ControllerContext, address: str, saved_memories: SavedMemoryClaims | None
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._address = address
        self._saved_memories = saved_memories
        self._marked: WeakKeyDictionary[Machine, Stage] = WeakKeyDictionary()
        self._told: WeakKeyDictionary[Machine, _Told] = WeakKeyDictionary()

    async def of_machine(
        self, machine: Machine, pod: Pod, vmi: VirtualMachineInstance | None
    ) -> None:
        """Write what a machine's objects do not say yet."""
        facts = machine.facts
        # nor is it worth one that a guest is about to end
        passing = facts.state in _QUIET or (facts.outcome is not None and not facts.ended)
        if passing and facts.trouble is None:
            return
        await self._mark(machine)
        now = rfc3339(self._clock())
        told = self._told.get(machine)
        if told is None or told.facts is not facts:
            told = self._told[machine] = _Told(facts)
        if not facts.ended and told.pod is not pod:
            changed = await self.of_pod(pod, facts)
            told.pod, pod = pod if changed is None else None, changed or pod
        if vmi is not None and told.vmi is not vmi:
            if changes := instance_status(facts, vmi, pod, now):
                version = {"resourceVersion": vmi.metadata.resource_version}
                document = {"metadata": version, "status": changes}
                told.vmi = await self._client.patch(VirtualMachineInstance, vmi.key, document)
            else:
                told.vmi = vmi
        if facts.ended and vmi is not None and not is_being_deleted(vmi):
            # The instance first: who sees the pod end concludes how the instance ended.  The pod
            # of one that goes is taken away right after this, so nothing is told of it.
            await self.of_pod(pod, facts)

    async def of_pod(self, pod: Pod, facts: Facts) -> Pod | None:
        """Let the pod show the facts: as it is then, or None where it did already."""
        status = pod_status(facts, pod, self._address, rfc3339(self._clock()))
        if not differs(status, pod):
            return None
        version = {"resourceVersion": version_of(pod)}
        document = {"metadata": version, "status": status}
        return await self._client.patch(Pod, key_of(pod), document, subresource="status")

    async def _mark(self, machine: Machine) -> None:
        """Let the claim of its memory tell what became of that; before anybody hears of the end."""
        record = machine.record
        settled = record.stage in _SETTLED and self._marked.get(machine) is not record.stage
        if record.claim and settled and self._saved_memories is not None:
            await self._saved_memories.annotate(Key(record.namespace, record.claim))
            self._marked[machine] = record.stage
