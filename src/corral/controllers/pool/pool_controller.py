"""The loop of pools: watches, acts on the plans, tells how far each pool is."""

from functools import partial
from random import Random
from typing import Any

import msgspec
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.kinds.kubevirt.pool import FINALIZER, REVISION_LABEL, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key, Object
from corral.api.selectors import LabelSelector
from corral.controllers.pool import autohealing, rollout, scale_plan
from corral.controllers.pool.availability import is_available, is_ready
from corral.controllers.pool.context import Tools
from corral.controllers.pool.memory_plan import names_claim
from corral.controllers.pool.memory_snapshots import Memories
from corral.controllers.pool.release import COMPONENT, pool_of
from corral.controllers.pool.revision_cache import Archive
from corral.controllers.pool.revisions import History
from corral.controllers.pool.scale_in import delete, finish, let_go, remove
from corral.controllers.pool.scale_out import create
from corral.controllers.pool.scale_plan import is_leaving
from corral.controllers.pool.status import Failure, raise_first, report
from corral.controllers.pool.update import take_steps, update_vms
from corral.controllers.pool.vm_names import free_names
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.expectations import Expectations
from corral.reconcile.objects import controller_uid, is_being_deleted, key_of, owners_of
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.selectors import own_selector
from corral.reconcile.workqueue import WorkQueue

Pool = VirtualMachinePool
Machine = VirtualMachineInstance

BATCH_SECONDS = 0.05
"""News of a pool's VirtualMachines waits so long for more of the kind."""
_FOREGROUND = "foregroundDeletion"
"""Finalizer of a pool whose VirtualMachines the garbage collector deletes before it."""


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller of pools."""
    loop = Pools(context)
    return Controller("pool", loop.reconcile, queue=loop.queue, sources=loop.sources)


class Pools:
    """The loop's caches and what it remembers between two looks at a pool."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        retry_on_quota_increase(context, self.queue)
        self.pools = context.informers.of(Pool)
        self.vms = context.informers.of(VirtualMachine)
        self.machines = context.informers.of(Machine)
        self._archive = Archive(context)
        self._client = context.client
        self._clock = context.clock
        self._dice = Random()  # noqa: S311 - shuffles VirtualMachines, guards no secret
        self._expectations = Expectations[str](context.monotonic)
        self._tools = Tools(context.client, context.recorder(COMPONENT), self._expectations)
        self._memories = Memories(context, self._tools)
        self.sources = (
            self.pools,
            self.vms,
            self.machines,
            self._archive.revisions,
            self._memories.claims,
        )
        self.vms.index("pool", lambda vm: (controller_uid(vm),))
        self.pools.handle(self._pool_changed)
        self.vms.handle(self._vm_changed)
        self.machines.handle(self._machine_changed)
        self._archive.revisions.handle(self._revision_changed)
        self._memories.claims.handle(self._claim_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring one pool nearer to what it asks for (KubeVirt's pool.go, execute)."""
        pool = self.pools.get(key)
        if pool is None:
            return None
        if is_being_deleted(pool):
            await self._dissolve(pool)
            return None
        selector = selector_of(pool)
        if FINALIZER not in pool.metadata.finalizers:
            await self._hold(pool)
            return None
        owned = await self._claim(pool, selector)
        failure, wait = None, 0.0
        try:
            await finish(self._tools, pool, [vm for vm in owned if is_being_deleted(vm)])
            wait = self._expectations.unmet_seconds(pool.metadata.uid)
            if not wait and not pool.spec.paused:
                wait = await self._act(pool, owned)
        except Failure as refused:
            failure = refused
        await self._tell(pool, owned, selector, failure)
        if failure is not None:
            raise failure.error
        return Result(wait) if wait else None

    # -- what belongs to the pool -----------------------------------------------------------

    async def _hold(self, pool: Pool) -> None:
        """Keep the pool from going before its VirtualMachines are let go of."""
        await self._set_finalizers(pool, [*pool.metadata.finalizers, FINALIZER])

    async def _dissolve(self, pool: Pool) -> None:
        """Let go of the VirtualMachines of a pool that goes, then of the pool.

        Those that it had chosen go as was settled, but nobody waits for their memory.  What becomes
        of the others is said by how the pool was deleted, and done by the garbage collector.
        """
        held = self._held(pool)
        chosen = [vm for vm in held if scale_plan.is_marked(vm) and not is_being_deleted(vm)]
        try:
            await delete(self._tools, pool, chosen)
        except Failure as failure:
            raise failure.error from failure
        # In the foreground the collector deletes them; before that only users do.
        by_users = _FOREGROUND not in pool.metadata.finalizers

        async def release(vm: VirtualMachine) -> None:
            await let_go(self._tools, vm, scale_plan.kept(pool, vm) if by_users else None)

        if refused := await for_each(
            [vm for vm in held if is_being_deleted(vm) or not scale_plan.is_marked(vm)], release
        ):
            raise refused[0]
        if self._held(pool):
            return  # until their own loop is done with them
        if FINALIZER in pool.metadata.finalizers:
            kept = [name for name in pool.metadata.finalizers if name != FINALIZER]
            await self._set_finalizers(pool, kept)

    def _held(self, pool: Pool) -> list[VirtualMachine]:
        owned = self.vms.indexed("pool", pool.metadata.uid)
        return [vm for vm in owned if FINALIZER in vm.metadata.finalizers]

    async def _set_finalizers(self, pool: Pool, finalizers: list[str]) -> None:
        guard = {"uid": pool.metadata.uid, "resourceVersion": pool.metadata.resource_version}
        change = {"metadata": {**guard, "finalizers": finalizers}}
        await self._client.patch(Pool, pool.key, change)

    async def _claim(self, pool: Pool, selector: LabelSelector) -> list[VirtualMachine]:
        """The VirtualMachines of the pool; one whose labels do not match is released.

        A pool adopts nobody.
        """
        owned = self.vms.indexed("pool", pool.metadata.uid)
        strays = [
            vm
            for vm in owned
            if not is_being_deleted(vm) and not selector.matches(vm.metadata.labels)
        ]
        release = partial(let_go, self._tools, owner=pool.metadata.uid)
        if refused := await for_each(strays, release):
            raise refused[0]
        gone = {vm.metadata.uid for vm in strays}
        return [vm for vm in owned if vm.metadata.uid not in gone]

    # -- acting -----------------------------------------------------------------------------

    async def _act(self, pool: Pool, owned: list[VirtualMachine]) -> float:
        """Do the one thing that is due next; answers after how many seconds to look again."""
        due, wait = await self._save_memories(pool, owned)
        if due:
            await delete(self._tools, pool, due)
            return wait
        healed = autohealing.plan(pool, owned, self._clock())
        if healed.sick:
            await remove(self._tools, pool, healed.sick)
            return wait
        machines = self._machines_of(owned)
        used = {_revision(one) for one in (*owned, *machines.values())}
        history = await self._archive.history(pool, used)
        scaled = scale_plan.plan(pool, owned, self._dice)
        if scaled.create:
            names = free_names(pool.metadata.name, scaled.create, self._is_taken(pool))
            resuming = partial(self._memories.resuming, pool)
            await create(self._tools, pool, names, history, resuming=resuming)
        elif scaled.remove:
            await remove(self._tools, pool, scaled.remove)
        else:
            await self._update(pool, owned, machines, history)
        return min((each for each in (wait, healed.seconds) if each), default=0.0)

    async def _save_memories(
        self, pool: Pool, owned: list[VirtualMachine]
    ) -> tuple[list[VirtualMachine], float]:
        """Of those that were chosen to go: who may, and how long to wait for the others."""
        due, waits = [], []
        for vm in owned:
            if not scale_plan.is_leaving(vm) or is_being_deleted(vm):
                continue
            wait = 0.0
            if scale_plan.kept(pool, vm) == "Online":
                wait = await self._memories.save(pool, vm, self.machines.get(vm.key))
            if wait:
                waits.append(wait)
            else:
                due.append(vm)
        return due, min(waits, default=0.0)

    def _is_taken(self, pool: Pool) -> Any:
        return lambda name: self.vms.get(Key(pool.metadata.namespace, name)) is not None

    def _machines_of(self, owned: list[VirtualMachine]) -> dict[str, Machine]:
        found = {vm.metadata.name: self.machines.get(vm.key) for vm in owned}
        return {name: machine for name, machine in found.items() if machine is not None}

    async def _update(
        self,
        pool: Pool,
        owned: list[VirtualMachine],
        machines: dict[str, Machine],
        history: History,
    ) -> None:
        decided = rollout.plan(pool, owned, machines, history, self._dice)
        if decided.update:
            await update_vms(self._tools, pool, decided.update, history)
        elif decided.steps:
            await take_steps(self._tools, pool, decided.steps, machines)
        else:
            await self._memories.tidy(pool, self.vms.get, self.machines.get)
            unused = history.unused({_revision(one) for one in (*owned, *machines.values())})
            refused = await for_each(unused, partial(self._archive.drop, pool))
            raise_first(refused, "FailedRevisionPruning", "while pruning vmpool revisions")

    async def _tell(
        self,
        pool: Pool,
        owned: list[VirtualMachine],
        selector: LabelSelector,
        failure: Failure | None,
    ) -> None:
        told = report(pool, owned, str(selector), failure, self._clock())
        if told is None:
            return
        await self._client.patch(Pool, pool.key, {"status": told.status}, subresource="status")
        for event_type, reason, message in told.events:
            self._tools.recorder.event(pool, event_type, reason, message)

    # -- what changed -----------------------------------------------------------------------

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
        if old is not None and new is not None and vm_news(old) == vm_news(new):
            return
        owners = {(one.uid, one.name) for vm in (old, new) if vm and (one := pool_of(vm))}
        for uid, name in owners:
            if old is None:
                self._expectations.creation_observed(uid)
            if new is None or is_being_deleted(new):
                self._expectations.deletion_observed(uid, changed.metadata.uid)
            self._soon(Key(changed.metadata.namespace, name))

    def _machine_changed(self, old: Machine | None, new: Machine | None) -> None:
        changed = new or old
        assert changed is not None
        if old is not None and new is not None and machine_news(old) == machine_news(new):
            return
        if new is None:
            self._memories.forget(changed)
        vm = self.vms.get(changed.key)
        if vm is None or (owner := pool_of(vm)) is None:
            return
        if new is None or is_being_deleted(new):
            self._expectations.deletion_observed(owner.uid, changed.metadata.uid)
        self._soon(Key(changed.metadata.namespace, owner.name))

    def _revision_changed(self, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        changed = new or old
        assert changed is not None
        key, owner = key_of(changed), controller_uid(changed)
        if new is not None and owner and (old is None or controller_uid(old) != owner):
            self._expectations.creation_observed(owner)
        pool = Key(key.namespace, key.name.rpartition("-")[0])
        if self.pools.get(pool) is not None:  # it may wait for the name
            self._soon(pool)

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        changed = new or old
        assert changed is not None
        for owner in owners_of(changed):
            if owner.kind == Pool.kind:
                self._soon(Key(key_of(changed).namespace, owner.name))

    def _soon(self, key: Key) -> None:
        self.queue.add_after(key, BATCH_SECONDS)


def selector_of(pool: Pool) -> LabelSelector:
    """The pool's selector.  Raises TerminalError."""
    labels = pool.spec.virtual_machine_template.metadata.labels
    return own_selector(pool.spec.selector, labels, template="spec.virtualMachineTemplate")


def _revision(one: Object) -> str:
    """The name of the revision that something was made from."""
    return one.metadata.labels.get(REVISION_LABEL, "")


def vm_news(vm: VirtualMachine) -> tuple[Any, ...]:
    """Two states of a VirtualMachine that answer the same are the same to its pool."""
    return (
        is_being_deleted(vm),
        is_leaving(vm),
        is_ready(vm),
        names_claim(vm),
        vm.metadata.labels,
        vm.metadata.owner_references,
        vm.metadata.finalizers,
        vm.status.printable_status,
        vm.status.start_failure,
    )


def machine_news(machine: VirtualMachineInstance) -> tuple[Any, ...]:
    """Two states of a machine that answer the same are the same to its VirtualMachine's pool."""
    return (
        is_being_deleted(machine),
        is_available(machine),
        machine.is_final,
        machine.metadata.labels,
    )
