"""Controller that removes the pool's finalizer from VirtualMachines without a pool.

A VirtualMachine that left its pool, or lost it, still has the pool's finalizer and could never be
deleted. This one controller removes it, whatever the reason.
"""

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.pool import FINALIZER, GROUP, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.object import Key, OwnerReference
from corral.controllers.pool.context import Tools
from corral.controllers.pool.scale_in import release
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.expectations import Expectations
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "virtualmachinepool-controller"


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that removes the finalizer."""
    loop = PoolFinalizers(context)
    return Controller(
        "pool-finalizer", loop.reconcile, queue=loop.queue, sources=(loop.vms, loop.pools)
    )


class PoolFinalizers:
    """Caches of the controller."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.pools = context.informers.of(VirtualMachinePool)
        self.vms = context.informers.of(VirtualMachine)
        self._tools = Tools(
            context.client, context.recorder(COMPONENT), Expectations[str](context.monotonic)
        )
        self.vms.index(_namespace_if_finalized)
        self.vms.handle(self._vm_changed)
        self.pools.handle(self._pool_changed)

    async def reconcile(self, key: Key) -> None:
        """Remove the finalizer from one VirtualMachine that has it and belongs to no pool."""
        vm = self.vms.get(key)
        if vm is None or not _has_finalizer(vm):
            return
        owner = pool_of(vm)
        if owner is None or not await self._exists(Key(key.namespace, owner.name), owner.uid):
            await release(self._tools, vm)

    async def _exists(self, key: Key, uid: str) -> bool:
        pool = self.pools.get(key)
        if pool is not None and pool.metadata.uid == uid:
            return True
        try:  # the cache may not show a new one yet
            pool = await self._tools.client.get(VirtualMachinePool, key.name, key.namespace)
        except NotFound:
            return False
        return pool.metadata.uid == uid

    def _vm_changed(self, _old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        if new is None or not _has_finalizer(new):
            return
        owner = pool_of(new)
        cached = self.pools.get(Key(new.metadata.namespace, owner.name)) if owner else None
        if owner is None or cached is None or cached.metadata.uid != owner.uid:
            self.queue.add(new.key)

    def _pool_changed(self, old: VirtualMachinePool | None, new: VirtualMachinePool | None) -> None:
        if new is None and old is not None:
            for vm in self.vms.indexed(_namespace_if_finalized, old.metadata.namespace):
                self.queue.add(vm.key)


def pool_of(vm: VirtualMachine) -> OwnerReference | None:
    """Return the owner reference to the pool that controls a VirtualMachine."""
    for owner in vm.metadata.owner_references:
        group = owner.api_version.partition("/")[0]
        if owner.controller and (group, owner.kind) == (GROUP, VirtualMachinePool.kind):
            return owner
    return None


def _has_finalizer(vm: VirtualMachine) -> bool:
    return FINALIZER in vm.metadata.finalizers


def _namespace_if_finalized(vm: VirtualMachine) -> tuple[str, ...]:
    return (vm.metadata.namespace,) if _has_finalizer(vm) else ()
