"""Has the memory of VirtualMachines that leave saved, and gives it to those that come back.

The node that a machine runs on writes it, and marks the claim; see ``api.kinds.saved_memory``.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import AlreadyExists, ApiError, NotFound
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.saved_memory import (
    RESTORE_FROM,
    SAVE_TO,
    mark_of,
    resume_annotations,
    saves_to,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.controllers.pool.context import Tools
from corral.controllers.pool.memory_plan import (
    LONGEST_SECONDS,
    Care,
    Fate,
    care,
    claim_for,
    claim_name,
    fate,
    vm_name,
)
from corral.controllers.pool.scale_plan import kept_when_removed
from corral.controllers.pool.status import Failure
from corral.reconcile.context import ControllerContext
from corral.reconcile.objects import controller_uid, is_being_deleted, key_of, uid_of

if TYPE_CHECKING:
    from corral.reconcile.informer import Informer

Claim = PersistentVolumeClaim


class Memories:
    """The claims of all pools that hold memories."""

    def __init__(self, context: ControllerContext, tools: Tools) -> None:
        self.claims: Informer[Claim] = context.informers.of(Claim)
        self._client = context.client
        self._monotonic = context.monotonic
        self._asked: dict[str, float] = {}
        """Since when machines, by uid, are known to be asked."""
        self._tools = tools
        self.claims.index("controller", lambda claim: (controller_uid(claim),))

    async def save(
        self, pool: VirtualMachinePool, vm: VirtualMachine, machine: VirtualMachineInstance | None
    ) -> float:
        """Take saving the memory of one that leaves a step further.

        Answers for how long to wait for it; 0 when the VirtualMachine may go.  Raises Failure.
        """
        claim = self.claims.get(_key(vm.key))
        waited = self._waited(machine)
        step = care(machine, claim, waited)
        if step is Care.DONE or machine is None:
            return 0.0
        try:
            if step is Care.GIVEN_UP:
                await self._give_up(pool, vm, machine)
                return 0.0
            if step is Care.CLAIM:
                document = claim_for(pool, vm, machine.status.node_name)
                await self._client.create(Claim, document)
            elif step is Care.ASK:
                change = {"metadata": {"annotations": {SAVE_TO: claim_name(vm.metadata.name)}}}
                await self._client.patch(VirtualMachineInstance, machine.key, change)
                self._asked[machine.metadata.uid] = self._monotonic()
        except (AlreadyExists, NotFound):
            pass  # the cache lags: it will show
        except ApiError as error:
            text = f"Error preserving state of VM {vm.key}: {error}"
            self._tools.warn(pool, "FailedUpdate", text)
            raise Failure("FailedScaleIn", "during scale in", error) from error
        return max(LONGEST_SECONDS - waited, 1.0)

    def forget(self, machine: VirtualMachineInstance) -> None:
        """A machine is gone: nobody waits for its memory."""
        self._asked.pop(machine.metadata.uid, None)

    async def resuming(self, pool: VirtualMachinePool, name: str) -> Mapping[str, str]:
        """By what a new VirtualMachine goes on from the memory of an earlier one of its name.

        It is looked up where it is: a cache might not know that it was saved a moment ago.
        """
        known = self.claims.indexed("controller", pool.metadata.uid)
        if not known and kept_when_removed(pool) != "Online":
            return {}
        try:
            key = _key(Key(pool.metadata.namespace, name))
            claim = await self._client.get(Claim, key.name, key.namespace)
        except NotFound:
            return {}
        mark = mark_of(claim)
        if mark is None or is_being_deleted(claim) or controller_uid(claim) != pool.metadata.uid:
            return {}
        return resume_annotations(key.name, mark)

    async def tidy(
        self,
        pool: VirtualMachinePool,
        vms: Callable[[Key], VirtualMachine | None],
        machines: Callable[[Key], VirtualMachineInstance | None],
    ) -> None:
        """Forget memories that machines have gone on from, and drop those that nobody will."""
        for cached in self.claims.indexed("controller", pool.metadata.uid):
            key = Key(pool.metadata.namespace, vm_name(key_of(cached).name))
            if fate(pool, cached, vms(key), machines(key)) is Fate.KEEP or is_being_deleted(cached):
                continue
            try:
                claim = await self._client.get(Claim, key_of(cached).name, key.namespace)
                await self._settle(fate(pool, claim, vms(key), machines(key)), claim, key)
            except NotFound:
                continue

    async def _settle(self, what: Fate, claim: Claim, key: Key) -> None:
        if what is Fate.FORGET:
            annotations = {RESTORE_FROM: None}
            change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            await self._client.patch(VirtualMachine, key, change)
        elif what is Fate.DROP:
            await self._client.delete(Claim, key_of(claim), uid=uid_of(claim))

    async def _give_up(
        self, pool: VirtualMachinePool, vm: VirtualMachine, machine: VirtualMachineInstance
    ) -> None:
        """Tell that a memory is lost, unless only the cache does not show that it was saved."""
        key = _key(vm.key)
        try:
            claim = await self._client.get(Claim, key.name, key.namespace)
        except NotFound:
            why = f"claim {key.name} is gone"
        else:
            if mark_of(claim) is not None:
                return
            phase = (claim.status and claim.status.phase) or "Pending"
            why = f"not saved within {LONGEST_SECONDS:.0f} seconds"
            if machine.is_final or is_being_deleted(machine):
                why = "the machine ended before it was saved"
            why = f"{why} (claim {key.name} is {phase})"
        message = f"Error preserving state of VM {vm.key}: {why}: it goes without its memory"
        self._tools.warn(pool, "FailedUpdate", message)

    def _waited(self, machine: VirtualMachineInstance | None) -> float:
        """For how long this manager knows that a machine's node is asked for its memory.

        One that was away has not waited: it gives the node as long again.
        """
        if machine is None or not saves_to(machine):
            return 0.0
        now = self._monotonic()
        return now - self._asked.setdefault(machine.metadata.uid, now)


def _key(vm: Key) -> Key:
    return Key(vm.namespace, claim_name(vm.name))
