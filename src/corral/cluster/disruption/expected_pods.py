"""How many pods of a kind there should be: what shares and ``maxUnavailable`` are reckoned from.

Kubernetes asks the owner of each pod for its scale, and a machine, which owns its pod, has none.
Here the way goes on upwards: to the set of the machine, to its VirtualMachine and to the pool of
that.  What stands by itself counts once, and so does each VirtualMachine of a pool that leaves it
to others which of them run.  Sets, pools and VirtualMachines that should have such pods count also
while they have none, between the end of one machine and the start of the next.
"""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from lightkube.models.core_v1 import Pod

from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import ALWAYS, START, VirtualMachine
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key, Struct
from corral.api.selectors import LabelSelector
from corral.reconcile.context import ControllerContext
from corral.reconcile.informer import Informer
from corral.reconcile.objects import (
    Owner,
    controller_of,
    is_being_deleted,
    key_of,
    labels_of,
    owners_of,
    uid_of,
)

LAUNCHER = {"kubevirt.io": "virt-launcher"}
"""The label that every machine's pod has beside its machine's."""

Scaled = VirtualMachineInstanceReplicaSet | VirtualMachinePool
Maker = (
    VirtualMachineInstanceReplicaSet | VirtualMachinePool | VirtualMachine | VirtualMachineInstance
)
"""What machines, and so their pods, come from."""


class Makers:
    """What pods come from, as the caches know it."""

    def __init__(self, context: ControllerContext) -> None:
        informers = context.informers
        self.sets = informers.of(VirtualMachineInstanceReplicaSet)
        self.pools = informers.of(VirtualMachinePool)
        self.vms = informers.of(VirtualMachine)
        self._by_kind: dict[tuple[str, str], Informer[Any]] = {}
        for view in get_args(Maker):
            informer = informers.of(view)
            informer.index("namespace", _namespace)
            self._by_kind[view.api_version.partition("/")[0], view.kind] = informer

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return tuple(self._by_kind.values())

    def expected(
        self, pods: Sequence[Pod], namespace: str, selector: LabelSelector
    ) -> tuple[int, list[str]]:
        """How many pods there should be, and the names of pods that nobody made.

        Raises LookupError for a pod whose maker is not known.
        """
        unmanaged = []
        counted: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                unmanaged.append(key_of(pod).name)
                continue
            top = self._top(owner, namespace)
            if top is None:
                raise LookupError(f'found no controllers for pod "{key_of(pod).name}"')
            counted[uid_of(top)] = _count(top)
        for maker in self._with_such_pods(namespace, selector):
            counted[maker.metadata.uid] = _count(maker)
        return sum(counted.values()), unmanaged

    def _top(self, owner: Owner, namespace: str) -> Maker | None:
        """The uppermost of the makers, or nothing where one on the way is not known."""
        informer = self._by_kind.get((owner.api_version.partition("/")[0], owner.kind))
        found: Maker | None = None
        if informer is not None:
            found = informer.get(Key(namespace, owner.name))
        if found is None or uid_of(found) != owner.uid:
            return None
        above = None if isinstance(found, Scaled) else controller_of(found)
        if above is None:
            return found
        top = self._top(above, namespace)
        return found if top is not None and not _keeps_all(top) else top

    def _with_such_pods(self, namespace: str, selector: LabelSelector) -> Iterator[Maker]:
        """The uppermost makers that should have pods which are selected."""
        makers: list[tuple[Maker, Struct]] = [
            *((one, one.spec.template) for one in self.sets.indexed("namespace", namespace)),
            *(
                (one, one.spec.virtual_machine_template.spec.template)
                for one in self.pools.indexed("namespace", namespace)
                if _keeps_all(one)
            ),
            *(
                (one, one.spec.template)
                for one in self.vms.indexed("namespace", namespace)
                if _should_run(one) and self._is_counted(one)
            ),
        ]
        for maker, template in makers:
            if not is_being_deleted(maker) and selector.matches(
                {**labels_of(template), **LAUNCHER}
            ):
                yield maker

    def _is_counted(self, vm: VirtualMachine) -> bool:
        """Whether it counts by itself, not as one of its pool."""
        above = controller_of(vm)
        top = None if above is None else self._top(above, vm.metadata.namespace)
        return above is None or (top is not None and not _keeps_all(top))


def facts(maker: Maker) -> tuple[object, ...]:
    """What of a maker the number of its pods depends on."""
    told: tuple[object, ...] = (uid_of(maker), is_being_deleted(maker), owners_of(maker))
    match maker:
        case VirtualMachineInstanceReplicaSet():
            return (*told, maker.spec.replicas, maker.spec.template.metadata.labels)
        case VirtualMachinePool():
            template = maker.spec.virtual_machine_template.spec.template
            return (*told, maker.spec.replicas, _keeps_all(maker), template.metadata.labels)
        case VirtualMachine():
            return (*told, _should_run(maker), maker.spec.template.metadata.labels)
        case _:
            return told


def _namespace(maker: Maker) -> tuple[str]:
    return (maker.metadata.namespace,)


def _keeps_all(maker: Maker) -> bool:
    """Whether it keeps as many machines running as it is told; else those that run are meant to."""
    if isinstance(maker, VirtualMachinePool):
        return maker.spec.virtual_machine_template.spec.strategy == ALWAYS
    return True


def _should_run(vm: VirtualMachine) -> bool:
    """Whether it should have a machine, one that failed and is begun anew among them."""
    requests = vm.status.state_change_requests
    return vm.spec.strategy == ALWAYS or any(each.action == START for each in requests)


def _count(maker: Maker) -> int:
    if not isinstance(maker, Scaled):
        return 1
    return 1 if maker.spec.replicas is None else maker.spec.replicas
