"""Saves the memory of VirtualMachines on scale-in, and restores it on scale-out.

The node of the VMI writes it and marks the claim; see ``api.kinds.vmi.saved_memory``.
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
    SAVE_TIMEOUT_SECONDS,
    ClaimStep,
    SaveStep,
    claim_for,
    claim_name,
    claim_step,
    save_step,
    vm_name,
)
from corral.controllers.pool.scale_plan import scale_in_preservation
from corral.controllers.pool.status import Failure
from corral.reconcile.context import ControllerContext
from corral.reconcile.indexes import by_controller
from corral.reconcile.objects import controller_uid, is_being_deleted, key_of, uid_of

if TYPE_CHECKING:
    from corral.reconcile.informer import Informer

Claim = PersistentVolumeClaim


class MemorySnapshots:
    """The claims for memory of all pools."""

    def __init__(self, context: ControllerContext, tools: Tools) -> None:
        self.claims: Informer[Claim] = context.informers.of(Claim)
        self._client = context.client
        self._monotonic = context.monotonic
        self._requested_at: dict[str, float] = {}
        """Since when VMIs, by uid, have a request to save their memory, as far as known."""
        self._tools = tools
        self.claims.index(by_controller)

    async def save(
        self, pool: VirtualMachinePool, vm: VirtualMachine, vmi: VirtualMachineInstance | None
    ) -> float:
        """Advance saving the memory of a VirtualMachine to delete.

        Returns how long to wait for it; 0 when the VirtualMachine may be deleted. Raises Failure.
        """
        claim = self.claims.get(_key(vm.key))
        waited = self._waited(vmi)
        step = save_step(vmi, claim, waited)
        if step is SaveStep.DONE or vmi is None:
            return 0.0
        try:
            if step is SaveStep.GIVE_UP:
                await self._give_up(pool, vm, vmi)
                return 0.0
            if step is SaveStep.CREATE_CLAIM:
                document = claim_for(pool, vm, vmi.status.node_name)
                await self._client.create(Claim, document)
            elif step is SaveStep.REQUEST:
                change = {"metadata": {"annotations": {SAVE_TO: claim_name(vm.metadata.name)}}}
                await self._client.patch(VirtualMachineInstance, vmi.key, change)
                self._requested_at[vmi.metadata.uid] = self._monotonic()
        except (AlreadyExists, NotFound):
            pass  # the cache lags; its next event enqueues the pool
        except ApiError as error:
            text = f"Error preserving state of VM {vm.key}: {error}"
            self._tools.warn(pool, "FailedUpdate", text)
            raise Failure("FailedScaleIn", "during scale in", error) from error
        return max(SAVE_TIMEOUT_SECONDS - waited, 1.0)

    def forget(self, vmi: VirtualMachineInstance) -> None:
        """Drop what is remembered of a VMI that is gone."""
        self._requested_at.pop(vmi.metadata.uid, None)

    async def restore_annotations(self, pool: VirtualMachinePool, name: str) -> Mapping[str, str]:
        """Return the annotations that restore a new VirtualMachine from an earlier one's memory.

        The claim is read from the API: a cache might not show that it was saved a moment ago.
        """
        cached = self.claims.indexed(by_controller, pool.metadata.uid)
        if not cached and scale_in_preservation(pool) != "Online":
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

    async def clean_up(
        self,
        pool: VirtualMachinePool,
        vms: Callable[[Key], VirtualMachine | None],
        vmis: Callable[[Key], VirtualMachineInstance | None],
    ) -> None:
        """Delete claims that nothing will be restored from, and references to restored ones."""
        for cached in self.claims.indexed(by_controller, pool.metadata.uid):
            key = Key(pool.metadata.namespace, vm_name(key_of(cached).name))
            if claim_step(pool, cached, vms(key), vmis(key)) is ClaimStep.KEEP or is_being_deleted(
                cached
            ):
                continue
            try:
                claim = await self._client.get(Claim, key_of(cached).name, key.namespace)
                await self._execute(claim_step(pool, claim, vms(key), vmis(key)), claim, key)
            except NotFound:
                continue

    async def _execute(self, step: ClaimStep, claim: Claim, key: Key) -> None:
        if step is ClaimStep.UNSET:
            annotations = {RESTORE_FROM: None}
            change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            await self._client.patch(VirtualMachine, key, change)
        elif step is ClaimStep.DELETE:
            await self._client.delete(Claim, key_of(claim), uid=uid_of(claim))

    async def _give_up(
        self, pool: VirtualMachinePool, vm: VirtualMachine, vmi: VirtualMachineInstance
    ) -> None:
        """Record that memory is lost, unless only the cache does not show that it was saved."""
        key = _key(vm.key)
        try:
            claim = await self._client.get(Claim, key.name, key.namespace)
        except NotFound:
            cause = f"claim {key.name} is gone"
        else:
            if mark_of(claim) is not None:
                return
            phase = (claim.status and claim.status.phase) or "Pending"
            cause = f"not saved within {SAVE_TIMEOUT_SECONDS:.0f} seconds"
            if vmi.is_final or is_being_deleted(vmi):
                cause = "the VMI ended before it was saved"
            cause = f"{cause} (claim {key.name} is {phase})"
        message = f"Error preserving state of VM {vm.key}: {cause}: deleting it without its memory"
        self._tools.warn(pool, "FailedUpdate", message)

    def _waited(self, vmi: VirtualMachineInstance | None) -> float:
        """Return for how long this process knows of the request to save the memory of a VMI.

        After a restart of the manager the node gets the full time again.
        """
        if vmi is None or not saves_to(vmi):
            return 0.0
        now = self._monotonic()
        return now - self._requested_at.setdefault(vmi.metadata.uid, now)


def _key(vm: Key) -> Key:
    return Key(vm.namespace, claim_name(vm.name))
