"""Expected pods of a budget, from which percentages and ``maxUnavailable`` are computed.

Kubernetes reads the scale of each pod's controller, and a VMI, which controls its pod, has none.
Here owners are followed further up: to the replica set of the VMI, to its VirtualMachine and the
pool of that. A VMI without an owner counts once, and so does each VirtualMachine of a pool whose
users decide which of them run. Replica sets, pools and VirtualMachines count also while they have
no pods, between the end of one VMI and the start of the next.
"""

from collections.abc import Iterator, Sequence

from lightkube.models.core_v1 import Pod

from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool
from corral.api.kinds.kubevirt.pool import VirtualMachinePool
from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.kubevirt.virtualmachine import ALWAYS, START, VirtualMachine
from corral.api.object import Struct
from corral.api.selectors import LabelSelector
from corral.reconcile.context import ControllerContext
from corral.reconcile.indexes import by_namespace
from corral.reconcile.objects import (
    controller_of,
    is_being_deleted,
    key_of,
    labels_of,
    owners_of,
    uid_of,
)
from corral.reconcile.pod_owners import PodOwner, PodOwners, Scaled, keeps_running

LAUNCHER = {"kubevirt.io": "virt-launcher"}
"""Label that every launcher pod has beside its VMI's."""


class ExpectedPods(PodOwners):
    """Owners of pods, and how many pods they are to have."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        informers = context.informers
        self.sets = informers.of(VirtualMachineInstanceReplicaSet)
        self.pools = informers.of(VirtualMachinePool)
        self.vms = informers.of(VirtualMachine)
        for informer in self.informers:
            informer.index(by_namespace)

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
            top = self.top(owner, namespace)
            if top is None:
                raise LookupError(f'found no controllers for pod "{key_of(pod).name}"')
            counted[uid_of(top)] = _count(top)
        for pod_owner in self._selected_owners(namespace, selector):
            counted[pod_owner.metadata.uid] = _count(pod_owner)
        return sum(counted.values()), unmanaged

    def _selected_owners(self, namespace: str, selector: LabelSelector) -> Iterator[PodOwner]:
        """Yield the topmost owners whose pods are selected."""
        for pod_owner, template in self._templates(namespace):
            if not is_being_deleted(pod_owner) and selector.matches(
                {**labels_of(template), **LAUNCHER}
            ):
                yield pod_owner

    def _templates(self, namespace: str) -> Iterator[tuple[PodOwner, Struct]]:
        """Yield the topmost owners that keep VMIs running, and the templates of these."""
        for one in self.sets.indexed(by_namespace, namespace):
            yield one, one.spec.template
        for pool in self.pools.indexed(by_namespace, namespace):
            if keeps_running(pool):
                yield pool, pool.spec.virtual_machine_template.spec.template
        for vm in self.vms.indexed(by_namespace, namespace):
            if _should_run(vm) and self._is_counted(vm):
                yield vm, vm.spec.template

    def _is_counted(self, vm: VirtualMachine) -> bool:
        """Report whether a VirtualMachine counts by itself, not as part of its pool."""
        parent = controller_of(vm)
        top = None if parent is None else self.top(parent, vm.metadata.namespace)
        return parent is None or (top is not None and not keeps_running(top))


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
                keeps_running(pod_owner),
                template.metadata.labels,
            )
        case VirtualMachineWarmPool():
            return (*common, pod_owner.spec.replicas)
        case VirtualMachine():
            return (*common, _should_run(pod_owner), pod_owner.spec.template.metadata.labels)
        case _:
            return common


def _should_run(vm: VirtualMachine) -> bool:
    """Report whether a VirtualMachine should have a VMI, or restarts one that failed."""
    requests = vm.status.state_change_requests
    return vm.spec.strategy == ALWAYS or any(each.action == START for each in requests)


def _count(pod_owner: PodOwner) -> int:
    if not isinstance(pod_owner, Scaled):
        return 1
    return 1 if pod_owner.spec.replicas is None else pod_owner.spec.replicas
