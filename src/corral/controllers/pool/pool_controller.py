"""Controller of pools: acts on the plans of this package, writes status and events."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.kubevirt.pool import FINALIZER, REVISION_LABEL, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine, generation
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key, Object
from corral.api.selectors import LabelSelector
from corral.controllers.pool import autohealing, rollout, scale_plan
from corral.controllers.pool.availability import is_available, is_ready
from corral.controllers.pool.context import Tools
from corral.controllers.pool.memory_plan import restores_memory
from corral.controllers.pool.memory_snapshots import MemorySnapshots
from corral.controllers.pool.release import COMPONENT, pool_of
from corral.controllers.pool.revision_cache import RevisionCache
from corral.controllers.pool.revisions import History, has_restart_required, is_growing
from corral.controllers.pool.scale_in import delete, release, release_deleted, remove
from corral.controllers.pool.scale_out import create
from corral.controllers.pool.scale_plan import is_leaving
from corral.controllers.pool.status import Failure, raise_first, status_update
from corral.controllers.pool.update import update_vmis, update_vms
from corral.controllers.pool.vm_names import free_names
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_controller
from corral.reconcile.objects import controller_uid, is_being_deleted, key_of, owners_of
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.selectors import own_selector
from corral.reconcile.workqueue import WorkQueue

Pool = VirtualMachinePool
VMI = VirtualMachineInstance

BATCH_SECONDS = 0.05
"""Delay of events of a pool's VirtualMachines, so that they are handled together."""
_FOREGROUND = "foregroundDeletion"
"""Finalizer of a pool whose VirtualMachines the garbage collector deletes first."""


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Pools(context)
    return Controller("pool", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Pools:
    """Caches and state of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        retry_on_quota_increase(context, self.queue)
        self.pools = context.informers.of(Pool)
        self.vms = context.informers.of(VirtualMachine)
        self.vmis = context.informers.of(VMI)
        self._revisions = RevisionCache(context)
        self._client = context.client
        self._clock = context.clock
        self._rng = Random()  # noqa: S311 - shuffles VirtualMachines, guards no secret
        self._expectations = Expectations[str](context.monotonic)
        self._tools = Tools(context.client, context.recorder(COMPONENT), self._expectations)
        self._memories = MemorySnapshots(context, self._tools)
        self.sources = (
            self.pools,
            self.vms,
            self.vmis,
            self._revisions.revisions,
            self._memories.claims,
        )
        self.vms.index(by_controller)
        self.pools.handle(self._pool_changed)
        self.vms.handle(self._vm_changed)
        self.vmis.handle(self._vmi_changed)
        self._revisions.revisions.handle(self._revision_changed)
        self._memories.claims.handle(self._claim_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one pool (KubeVirt's pool.go, execute)."""
        pool = self.pools.get(key)
        if pool is None:
            return None
        if is_being_deleted(pool):
            await self._finalize(pool)
            return None
        selector = selector_of(pool)
        if FINALIZER not in pool.metadata.finalizers:
            await self._add_finalizer(pool)
            return None
        owned = await self._claim(pool, selector)
        failure, wait = None, 0.0
        try:
            await release_deleted(self._tools, pool, [vm for vm in owned if is_being_deleted(vm)])
            wait = self._expectations.unmet_seconds(pool.metadata.uid)
            if not wait and not pool.spec.paused:
                wait = await self._sync(pool, owned)
        except Failure as refused:
            failure = refused
        await self._update_status(pool, owned, selector, failure)
        if failure is not None:
            raise failure.error
        return Result(wait) if wait else None

    # -- ownership --------------------------------------------------------------------------

    async def _add_finalizer(self, pool: Pool) -> None:
        """Add our finalizer: the pool must not vanish before its VirtualMachines are released."""
        await self._set_finalizers(pool, [*pool.metadata.finalizers, FINALIZER])

    async def _finalize(self, pool: Pool) -> None:
        """Release the VirtualMachines of a pool that is being deleted, then the pool.

        Those marked for scale-in are deleted as decided then, but without waiting for their memory.
        The deletion policy says what happens to the others; the garbage collector does it.
        """
        finalized = self._with_finalizer(pool)
        chosen = [vm for vm in finalized if scale_plan.is_marked(vm) and not is_being_deleted(vm)]
        try:
            await delete(self._tools, pool, chosen)
        except Failure as failure:
            raise failure.error from failure
        # With foreground deletion the garbage collector deletes them, else only users do.
        by_users = _FOREGROUND not in pool.metadata.finalizers

        async def release_one(vm: VirtualMachine) -> None:
            await release(
                self._tools, vm, scale_plan.preservation_of(pool, vm) if by_users else None
            )

        if refused := await for_each(
            [vm for vm in finalized if is_being_deleted(vm) or not scale_plan.is_marked(vm)],
            release_one,
        ):
            raise refused[0]
        if self._with_finalizer(pool):
            return  # the VM controller has yet to release them
        if FINALIZER in pool.metadata.finalizers:
            preservation_of = [name for name in pool.metadata.finalizers if name != FINALIZER]
            await self._set_finalizers(pool, preservation_of)

    def _with_finalizer(self, pool: Pool) -> list[VirtualMachine]:
        owned = self.vms.indexed(by_controller, pool.metadata.uid)
        return [vm for vm in owned if FINALIZER in vm.metadata.finalizers]

    async def _set_finalizers(self, pool: Pool, finalizers: list[str]) -> None:
        guard = {"uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version}
        change = {"metadata": {**guard, "finalizers": finalizers}}
        await self._client.patch(Pool, pool.key, change)

    async def _claim(self, pool: Pool, selector: LabelSelector) -> list[VirtualMachine]:
        """Return the VirtualMachines of the pool; release those that its selector does not match.

        A pool adopts nothing, as in KubeVirt.
        """
        owned = self.vms.indexed(by_controller, pool.metadata.uid)
        unmatched = [
            vm
            for vm in owned
            if not is_being_deleted(vm) and not selector.matches(vm.metadata.labels)
        ]
        release_one = partial(release, self._tools, owner=pool.metadata.uid)
        if refused := await for_each(unmatched, release_one):
            raise refused[0]
        gone = {vm.metadata.uid for vm in unmatched}
        return [vm for vm in owned if vm.metadata.uid not in gone]

    # -- acting -----------------------------------------------------------------------------

    async def _sync(self, pool: Pool, owned: list[VirtualMachine]) -> float:
        """Do the next due thing; return after how many seconds to sync again."""
        due, wait = await self._save_memories(pool, owned)
        if due:
            await delete(self._tools, pool, due)
            return wait
        healed = autohealing.plan(pool, owned, self._clock())
        if healed.failed:
            await remove(self._tools, pool, healed.failed)
            return wait
        vmis = self._vmis_of(owned)
        used = {_revision(one) for one in (*owned, *vmis.values())}
        history = await self._revisions.history(pool, used)
        scaled = scale_plan.plan(pool, owned, self._rng)
        if scaled.create:
            names = free_names(pool.metadata.name, scaled.create, self._is_used(pool))
            annotations = partial(self._memories.restore_annotations, pool)
            await create(self._tools, pool, names, history, restore_annotations=annotations)
        elif scaled.remove:
            await remove(self._tools, pool, scaled.remove)
        else:
            await self._update(pool, owned, vmis, history)
        return min((each for each in (wait, healed.seconds) if each), default=0.0)

    async def _save_memories(
        self, pool: Pool, owned: list[VirtualMachine]
    ) -> tuple[list[VirtualMachine], float]:
        """Of VirtualMachines to delete: return those that are due, and the delay of others."""
        due, waits = [], []
        for vm in owned:
            if not scale_plan.is_leaving(vm) or is_being_deleted(vm):
                continue
            wait = 0.0
            if scale_plan.preservation_of(pool, vm) == "Online":
                wait = await self._memories.save(pool, vm, self.vmis.get(vm.key))
            if wait:
                waits.append(wait)
            else:
                due.append(vm)
        return due, min(waits, default=0.0)

    def _is_used(self, pool: Pool) -> Callable[[str], bool]:
        return lambda name: self.vms.get(Key(pool.metadata.namespace, name)) is not None

    def _vmis_of(self, owned: list[VirtualMachine]) -> dict[str, VMI]:
        found = {vm.metadata.name: self.vmis.get(vm.key) for vm in owned}
        return {name: vmi for name, vmi in found.items() if vmi is not None}

    async def _update(
        self,
        pool: Pool,
        owned: list[VirtualMachine],
        vmis: dict[str, VMI],
        history: History,
    ) -> None:
        decided = rollout.plan(pool, owned, vmis, history, self._rng)
        if decided.update:
            await update_vms(self._tools, pool, decided.update, history)
        elif decided.steps:
            await update_vmis(self._tools, pool, decided.steps, vmis)
        else:
            await self._memories.clean_up(pool, self.vms.get, self.vmis.get)
            unused = history.unused({_revision(one) for one in (*owned, *vmis.values())})
            refused = await for_each(unused, partial(self._revisions.delete, pool))
            raise_first(refused, "FailedRevisionPruning", "while pruning vmpool revisions")

    async def _update_status(
        self,
        pool: Pool,
        owned: list[VirtualMachine],
        selector: LabelSelector,
        failure: Failure | None,
    ) -> None:
        update = status_update(pool, owned, str(selector), failure, self._clock())
        if update is None:
            return
        await self._client.patch(Pool, pool.key, {"status": update.status}, subresource="status")
        for event_type, reason, message in update.events:
            self._tools.recorder.event(pool, event_type, reason, message)

    # -- event handlers ---------------------------------------------------------------------

    def _pool_changed(self, old: Pool | None, new: Pool | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and old.spec == new.spec:
            self.queue.add_after(changed.key, BATCH_SECONDS)  # most often our own status
        else:
            self.queue.add(changed.key)

    def _vm_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and vm_fingerprint(old) == vm_fingerprint(new):
            return
        owners = {(one.uid, one.name) for vm in (old, new) if vm and (one := pool_of(vm))}
        for uid, name in owners:
            if old is None:
                self._expectations.creation_observed(uid)
            if new is None or is_being_deleted(new):
                self._expectations.deletion_observed(uid, changed.metadata.uid)
            self._enqueue(Key(changed.metadata.namespace, name))

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and vmi_fingerprint(old) == vmi_fingerprint(new):
            return
        if new is None:
            self._memories.forget(changed)
        vm = self.vms.get(changed.key)
        if vm is None or (owner := pool_of(vm)) is None:
            return
        if new is None or is_being_deleted(new):
            self._expectations.deletion_observed(owner.uid, changed.metadata.uid)
        self._enqueue(Key(changed.metadata.namespace, owner.name))

    def _revision_changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        changed = new or old
        assert changed is not None
        key, owner = key_of(changed), controller_uid(changed)
        if new is not None and owner and (old is None or controller_uid(old) != owner):
            self._expectations.creation_observed(owner)
        pool = Key(key.namespace, key.name.rpartition("-")[0])
        if self.pools.get(pool) is not None:  # it may wait until the name is free
            self._enqueue(pool)

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        changed = new or old
        assert changed is not None
        for owner in owners_of(changed):
            if owner.kind == Pool.kind:
                self._enqueue(Key(key_of(changed).namespace, owner.name))

    def _enqueue(self, key: Key) -> None:
        self.queue.add_after(key, BATCH_SECONDS)


def selector_of(pool: Pool) -> LabelSelector:
    """Return the selector of the pool.  Raises TerminalError."""
    labels = pool.spec.virtual_machine_template.metadata.labels
    return own_selector(pool.spec.selector, labels, template="spec.virtualMachineTemplate")


def _revision(one: Object) -> str:
    """Return the name of the revision that an object was created from."""
    return one.metadata.labels.get(REVISION_LABEL, "")


def vm_fingerprint(vm: VirtualMachine) -> tuple[Any, ...]:
    """Return the fields of a VirtualMachine that matter to its pool."""
    return (
        is_being_deleted(vm),
        is_leaving(vm),
        is_ready(vm),
        restores_memory(vm),
        vm.metadata.labels,
        vm.metadata.owner_references,
        vm.metadata.finalizers,
        vm.status.printable_status,
        vm.status.start_failure,
        has_restart_required(vm),
    )


def vmi_fingerprint(vmi: VirtualMachineInstance) -> tuple[Any, ...]:
    """Return the fields of a VMI that matter to the pool of its VirtualMachine."""
    return (
        is_being_deleted(vmi),
        is_available(vmi),
        vmi.is_final,
        vmi.metadata.labels,
        generation(vmi),
        is_growing(vmi),
    )
