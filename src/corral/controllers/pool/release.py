"""Lets go of VirtualMachines that are no pool's any more.

Whoever is taken out of a pool, or left behind by one, still has the pool's finalizer, and could
never be deleted.  One loop takes it off, whatever the reason.
"""

from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.pool import FINALIZER, GROUP, VirtualMachinePool
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.object import Key, OwnerReference
from corral.controllers.pool.context import Tools
from corral.controllers.pool.scale_in import let_go
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.expectations import Expectations
from corral.reconcile.workqueue import WorkQueue

COMPONENT = "virtualmachinepool-controller"


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that lets go."""
    loop = LettingGo(context)
    return Controller(
        "pool-letting-go", loop.reconcile, queue=loop.queue, sources=(loop.vms, loop.pools)
    )


class LettingGo:
    """The loop's caches."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.pools = context.informers.of(VirtualMachinePool)
        self.vms = context.informers.of(VirtualMachine)
        self._tools = Tools(
            context.client, context.recorder(COMPONENT), Expectations[str](context.monotonic)
        )
        self.vms.index("held-by-pool", lambda vm: (vm.metadata.namespace,) if _is_held(vm) else ())
        self.vms.handle(self._vm_changed)
        self.pools.handle(self._pool_changed)

    async def reconcile(self, key: Key) -> None:
        """Take the finalizer off one VirtualMachine that has it and belongs to no pool."""
        vm = self.vms.get(key)
        if vm is None or not _is_held(vm):
            return
        owner = pool_of(vm)
        if owner is None or not await self._is_there(Key(key.namespace, owner.name), owner.uid):
            await let_go(self._tools, vm)

    async def _is_there(self, key: Key, uid: str) -> bool:
        pool = self.pools.get(key)
        if pool is not None and pool.metadata.uid == uid:
            return True
        try:  # the cache may not know a new one yet
            pool = await self._tools.client.get(VirtualMachinePool, key.name, key.namespace)
        except NotFound:
            return False
        return pool.metadata.uid == uid

    def _vm_changed(self, _old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        if new is None or not _is_held(new):
            return
        owner = pool_of(new)
        known = self.pools.get(Key(new.metadata.namespace, owner.name)) if owner else None
        if owner is None or known is None or known.metadata.uid != owner.uid:
            self.queue.add(new.key)

    def _pool_changed(self, old: VirtualMachinePool | None, new: VirtualMachinePool | None) -> None:
        if new is None and old is not None:
            for vm in self.vms.indexed("held-by-pool", old.metadata.namespace):
                self.queue.add(vm.key)


def pool_of(vm: VirtualMachine) -> OwnerReference | None:
    """The pool that manages a VirtualMachine."""
    for owner in vm.metadata.owner_references:
        group = owner.api_version.partition("/")[0]
        if owner.controller and (group, owner.kind) == (GROUP, VirtualMachinePool.kind):
            return owner
    return None


def _is_held(vm: VirtualMachine) -> bool:
    return FINALIZER in vm.metadata.finalizers
