"""The owners of launcher pods: the VMI that controls a pod, and the objects above it.

A VMI controls its pod; a replica set, a warm pool or a VirtualMachine controls the VMI, and a pool
the latter.
"""

from collections.abc import Sequence
from typing import Any, get_args

from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import ALWAYS, VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.reconcile.context import ControllerContext
from corral.reconcile.informer import Informer
from corral.reconcile.objects import Owner, controller_of, uid_of

Scaled = VirtualMachineInstanceReplicaSet | VirtualMachinePool | VirtualMachineWarmPool
PodOwner = Scaled | VirtualMachine | VirtualMachineInstance
"""Objects that own VMIs, and so their pods."""


class PodOwners:
    """Owners of pods, from the caches."""

    def __init__(self, context: ControllerContext) -> None:
        self._by_kind: dict[tuple[str, str], Informer[Any]] = {
            (view.api_version.partition("/")[0], view.kind): context.informers.of(view)
            for view in get_args(PodOwner)
        }

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return tuple(self._by_kind.values())

    def get(self, owner: Owner, namespace: str) -> PodOwner | None:
        """Return the object that an owner reference names; None if there is none with its uid."""
        informer = self._by_kind.get((owner.api_version.partition("/")[0], owner.kind))
        found: PodOwner | None = None
        if informer is not None:
            found = informer.get(Key(namespace, owner.name))
        return found if found is not None and uid_of(found) == owner.uid else None

    def top(self, owner: Owner, namespace: str) -> PodOwner | None:
        """Return the topmost owner; None where one of the owners is not found.

        It is the VirtualMachine, not its pool, where users decide which of the pool's run.
        """
        found = self.get(owner, namespace)
        parent = None if found is None or isinstance(found, Scaled) else controller_of(found)
        if parent is None:
            return found
        top = self.top(parent, namespace)
        return found if top is not None and not keeps_running(top) else top


def keeps_running(pod_owner: PodOwner) -> bool:
    """Report whether an owner keeps its desired number of VMIs running."""
    if isinstance(pod_owner, VirtualMachinePool):
        return pod_owner.spec.virtual_machine_template.spec.strategy == ALWAYS
    return True
