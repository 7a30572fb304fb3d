"""Expected pods of a budget, from which percentages and ``maxUnavailable`` are computed.

Kubernetes reads the scale of each pod's controller, and a VMI, which controls its pod, has none.
Here owners are followed further up: to the replica set of the VMI, to its VirtualMachine and the
pool of that. A VMI without an owner counts once, and so does each VirtualMachine of a pool whose
users decide which of them run. Replica sets, pools and VirtualMachines count also while they have
no pods, between the end of one VMI and the start of the next.
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
"""Label that every launcher pod has beside its VMI's."""

Scaled = VirtualMachineInstanceReplicaSet | VirtualMachinePool
PodOwner = (
    VirtualMachineInstanceReplicaSet | VirtualMachinePool | VirtualMachine | VirtualMachineInstance
)
"""Objects that own VMIs, and so their pods."""


class PodOwners:
    """Owners of pods, from the caches."""

    def __init__(self, context: ControllerContext) -> None:
        informers = context.informers
        self.sets = informers.of(VirtualMachineInstanceReplicaSet)
        self.pools = informers.of(VirtualMachinePool)
        self.vms = informers.of(VirtualMachine)
        self._by_kind: dict[tuple[str, str], Informer[Any]] = {}
        for view in get_args(PodOwner):
            informer = informers.of(view)
            informer.index("namespace", _namespace)
            self._by_kind[view.api_version.partition("/")[0], view.kind] = informer

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return tuple(self._by_kind.values())

    def expected(
        self, pods: Sequence[Pod], namespace: str, selector: LabelSelector
    ) -> tuple[int, list[str]]:
        """Return the number of expected pods, and the names of pods without a controller.

        Raises LookupError for a pod whose controller is not found.
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
        for pod_owner in self._selected_owners(namespace, selector):
            counted[pod_owner.metadata.uid] = _count(pod_owner)
        return sum(counted.values()), unmanaged

    def _top(self, owner: Owner, namespace: str) -> PodOwner | None:
        """Return the topmost owner; None where one of the owners is not found."""
        informer = self._by_kind.get((owner.api_version.partition("/")[0], owner.kind))
        found: PodOwner | None = None
        if informer is not None:
            found = informer.get(Key(namespace, owner.name))
        if found is None or uid_of(found) != owner.uid:
            return None
        parent = None if isinstance(found, Scaled) else controller_of(found)
        if parent is None:
            return found
        top = self._top(parent, namespace)
        return found if top is not None and not _keeps_running(top) else top

    def _selected_owners(self, namespace: str, selector: LabelSelector) -> Iterator[PodOwner]:
        """Yield the topmost owners whose pods are selected."""
        pod_owners: list[tuple[PodOwner, Struct]] = [
            *((one, one.spec.template) for one in self.sets.indexed("namespace", namespace)),
            *(
                (one, one.spec.virtual_machine_template.spec.template)
                for one in self.pools.indexed("namespace", namespace)
                if _keeps_running(one)
            ),
            *(
                (one, one.spec.template)
                for one in self.vms.indexed("namespace", namespace)
                if _should_run(one) and self._is_counted(one)
            ),
        ]
        for pod_owner, template in pod_owners:
            if not is_being_deleted(pod_owner) and selector.matches(
                {**labels_of(template), **LAUNCHER}
            ):
                yield pod_owner

    def _is_counted(self, vm: VirtualMachine) -> bool:
        """Report whether a VirtualMachine counts by itself, not as part of its pool."""
        parent = controller_of(vm)
        top = None if parent is None else self._top(parent, vm.metadata.namespace)
        return parent is None or (top is not None and not _keeps_running(top))


def fingerprint(pod_owner: PodOwner) -> tuple[object, ...]:
    """Return the fields of an owner that determine the number of its pods."""
    common: tuple[object, ...] = (
        uid_of(pod_owner),
        is_being_deleted(pod_owner),
        owners_of(pod_owner),
    )
    match pod_owner:
        case VirtualMachineInstanceReplicaSet():
            return (*common, pod_owner.spec.replicas, pod_owner.spec.template.metadata.labels)
        case VirtualMachinePool():
            template = pod_owner.spec.virtual_machine_template.spec.template
            return (
                *common,
                pod_owner.spec.replicas,
                _keeps_running(pod_owner),
                template.metadata.labels,
            )
        case VirtualMachine():
            return (*common, _should_run(pod_owner), pod_owner.spec.template.metadata.labels)
        case _:
            return common


def _namespace(pod_owner: PodOwner) -> tuple[str]:
    return (pod_owner.metadata.namespace,)


def _keeps_running(pod_owner: PodOwner) -> bool:
    """Report whether an owner keeps its desired number of VMIs running."""
    if isinstance(pod_owner, VirtualMachinePool):
        return pod_owner.spec.virtual_machine_template.spec.strategy == ALWAYS
    return True


def _should_run(vm: VirtualMachine) -> bool:
    """Report whether a VirtualMachine should have a VMI, or restarts one that failed."""
    requests = vm.status.state_change_requests
    return vm.spec.strategy == ALWAYS or any(each.action == START for each in requests)


def _count(pod_owner: PodOwner) -> int:
    if not isinstance(pod_owner, Scaled):
        return 1
    return 1 if pod_owner.spec.replicas is None else pod_owner.spec.replicas
