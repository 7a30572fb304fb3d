"""Controller that follows claims: the state of their machines, and their expiry.

A machine goes with its claim, by its owner reference; the garbage collector deletes it.  Nothing
here ever hands out a machine: see ``corral.controllers.claim.binder``.
"""

from corral.api.errors import NotFound
from corral.api.kinds.corral.claim import (
    CLAIM_LABEL,
    FAILURES,
    READY,
    RETAIN,
    ClaimedMachine,
    VirtualMachineClaim,
)
from corral.api.kinds.vmi.user_data import NOT_FOUND as NO_USER_DATA
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.controllers.claim import status
from corral.controllers.claim.machines import index_machines, machines_of, patch_status
from corral.controllers.claim.plan import Expiry, expiry
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.objects import is_being_deleted
from corral.reconcile.workqueue import WorkQueue

Claim = VirtualMachineClaim
VMI = VirtualMachineInstance

COMPONENT = "virtualmachineclaim-controller"


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Claims(context)
    return Controller("claim", loop.reconcile, queue=loop.queue, sources=(loop.claims, loop.vmis))


class Claims:
    """Caches of the controller; the keys are those of claims."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.vmis = context.informers.of(VMI)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        index_machines(self.vmis)
        self.claims.handle(self._claim_changed)
        self.vmis.handle(self._vmi_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Report the state of a claim's machine, and end the claim when it expires."""
        claim = self.claims.get(key)
        if claim is None or is_being_deleted(claim):
            return None
        when = expiry(claim)
        seconds = 0.0 if when is None else self._seconds_until(when)
        if claim.is_expired or (when is not None and seconds <= 0):
            await self._expire(claim, when)
            return None
        if claim.status.vmi is not None:
            await self._follow(claim)
        return Result(seconds) if when is not None else None

    def _seconds_until(self, when: Expiry) -> float:
        return (when.moment - self._context.clock()).total_seconds()

    async def _follow(self, claim: Claim) -> None:
        """Write what has become of the machine; delete others that the claim owns.

        There are others if the response to a write was lost, and the cache lacked what it did.
        """
        assert claim.status.vmi is not None
        machine: VMI | None = None
        for owned in machines_of(self.vmis, claim):
            if owned.metadata.uid == claim.status.vmi.uid:
                machine = owned
            else:
                await self._remove(claim, owned, "the claim has another one")
        if machine is None:
            machine = await self._uncached(claim.status.vmi, claim.metadata.namespace)
        new = status.followed(claim, machine, self._context.clock())
        await patch_status(self._client, claim, new)
        self._report_end(claim, status.readiness(claim, machine))

    async def _uncached(self, machine: ClaimedMachine, namespace: str) -> VMI | None:
        """Return a machine that the cache lacks; None if it is gone.

        The cache may be older than the hand-out, and what is reported as deleted is given up.
        """
        try:
            found = await self._client.get(VMI, machine.name, namespace)
        except NotFound:
            return None
        return found if found.metadata.uid == machine.uid else None

    def _report_end(self, claim: Claim, now: status.State) -> None:
        """Record an event when the machine becomes unusable, or ready."""
        before = next((each for each in claim.status.conditions if each.type == READY), None)
        if before is not None and before.reason == now.reason:
            return
        if now.status == "True":
            ran = ", and its guest has run the user data" if claim.spec.user_data else ""
            self._recorder.event(claim, "Normal", now.reason, f"The machine is ready{ran}")
        elif now.reason in (*FAILURES, NO_USER_DATA):
            self._recorder.event(claim, "Warning", now.reason, now.message)

    async def _expire(self, claim: Claim, when: Expiry | None) -> None:
        if claim.is_expired:
            new = status.observed(claim, self._context.clock())
            await patch_status(self._client, claim, new)
        elif when is not None:
            new = status.expired(claim, when, self._context.clock())
            await patch_status(self._client, claim, new)
            text = f"The claim has expired: {status.WHY_EXPIRED[when.reason]}"
            self._recorder.event(claim, "Normal", "Expired", text)
        if claim.spec.shutdown_policy == RETAIN:
            for machine in machines_of(self.vmis, claim):
                await self._remove(claim, machine, "the claim has expired")
        else:
            await remove(self._client, Claim, claim.key, claim.metadata.uid)

    async def _remove(self, claim: Claim, machine: VMI, why: str) -> None:
        """Delete a machine.  Raises ApiError: Conflict if it has changed since it was cached."""
        if is_being_deleted(machine):
            return
        name, version = machine.metadata.name, machine.metadata.resource_version
        # By version: the cache may not show yet that it is deleted already.
        if await remove(self._client, VMI, machine.key, machine.metadata.uid, version=version):
            text = f"Deleted virtual machine instance {name}: {why}"
            self._recorder.event(claim, "Normal", "SuccessfulDelete", text)

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if new is not None and (old is None or old.spec != new.spec or _state(old) != _state(new)):
            self.queue.add(new.key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        changed = new or old
        assert changed is not None
        name = changed.metadata.labels.get(CLAIM_LABEL)
        if name is None or (old is not None and new is not None and not _concerns(old, new)):
            return
        self.queue.add(Key(changed.metadata.namespace, name))


def _state(claim: Claim) -> tuple[bool, bool]:
    return claim.status.vmi is not None, claim.is_expired


def _concerns(old: VMI, new: VMI) -> bool:
    """Report whether a change of a VMI may change the status of its claim."""
    return (
        old.status.phase != new.status.phase
        or old.status.conditions != new.status.conditions
        or old.status.interfaces != new.status.interfaces
        or old.status.node_name != new.status.node_name
        or old.metadata.labels != new.metadata.labels
        or is_being_deleted(old) is not is_being_deleted(new)
    )
