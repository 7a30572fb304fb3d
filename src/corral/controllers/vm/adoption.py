"""Takes over objects that belong to nobody."""

from typing import TypeVar

import msgspec

from corral.api.errors import Conflict
from corral.api.kinds.virtualmachine import VirtualMachine
from corral.api.object import Object
from corral.client.client import Client
from corral.reconcile.objects import is_going, owner_reference

T = TypeVar("T", bound=Object)


async def adopt(client: Client, vm: VirtualMachine, orphan: T) -> T:
    """Make a VirtualMachine the manager of an object that has none.

    Raises Conflict where one of the two is not any more as the cache showed it.
    """
    # The cache may not know yet that the VirtualMachine goes, or that it is another one by now.
    fresh = await client.get(VirtualMachine, vm.metadata.name, vm.metadata.namespace)
    if fresh.metadata.uid != vm.metadata.uid or is_going(fresh):
        raise Conflict(f"{vm.key} has been deleted or replaced: it adopts nothing")
    owners = [*msgspec.to_builtins(orphan.metadata.owner_references), owner_reference(vm)]
    guard = {"resourceVersion": orphan.metadata.resource_version}
    change = {"metadata": {**guard, "ownerReferences": owners}}
    return await client.patch(type(orphan), orphan.key, change)
