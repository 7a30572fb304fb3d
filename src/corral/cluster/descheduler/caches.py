"""Objects that a cycle reads: nodes, pods, VMIs and their owners, budgets, claims, namespaces."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache

from lightkube.models.core_v1 import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.policy_v1 import PodDisruptionBudget
from lightkube.models.scheduling_v1 import PriorityClass

from corral.api import node_fit
from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt, eviction_strategy
from corral.api.kinds.pod_disruption_budget import selector_of
from corral.api.kinds.storage.common import class_name
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Key
from corral.api.selectors import LabelSelector
from corral.api.volume_binding import claims_of
from corral.cluster.descheduler.arguments import DefaultEvictorArgs
from corral.cluster.descheduler.default_evictor import EvictorInputs
from corral.cluster.descheduler.policy import InvalidPolicy
from corral.cluster.descheduler.snapshot import Lookups
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Source
from corral.reconcile.objects import controller_of, key_of, labels_of
from corral.reconcile.pod_owners import PodOwner, PodOwners

VMI = VirtualMachineInstance


class Caches:
    """The informers; all of them are those of other controllers."""

    def __init__(self, context: ControllerContext) -> None:
        informers = context.informers
        self.nodes = informers.of(Node)
        self.pods = informers.of(Pod)
        self.vmis = informers.of(VMI)
        self._claims = informers.of(PersistentVolumeClaim)
        self._volumes = informers.of(PersistentVolume)
        self._budgets = informers.of(PodDisruptionBudget)
        self._installations = informers.of(KubeVirt)
        self._owners = PodOwners(context)
        self._client = context.client

    @property
    def sources(self) -> Iterable[Source]:
        return (
            self.nodes,
            self.pods,
            *(self._claims, self._volumes, self._budgets, self._installations),
            *self._owners.informers,
        )

    def lookups(self) -> Lookups:
        return Lookups(
            vmi=self._vmi,
            owner=self._owner,
            reaches_volumes=self._reaches_volumes,
            eviction_strategy=eviction_strategy(self._installations.get(KEY)),
        )

    async def inputs(
        self, args: DefaultEvictorArgs, nodes: tuple[str, ...], now: datetime
    ) -> EvictorInputs:
        """Return what the arguments of a profile ask about.  Raises InvalidPolicy and ApiError."""
        return EvictorInputs(
            now=now,
            nodes=nodes,
            threshold=await self._threshold(args),
            namespaces=await self._namespaces(args),
            has_budget=_matcher(self._budgets.items()),
            storage_classes=self._storage_classes,
        )

    async def _threshold(self, args: DefaultEvictorArgs) -> int | None:
        threshold = args.priority_threshold
        if not threshold.name:
            return threshold.value
        try:
            return (await self._client.get(PriorityClass, threshold.name)).value
        except NotFound:
            text = f'DefaultEvictor: priorityThreshold.name: no PriorityClass is "{threshold.name}"'
            raise InvalidPolicy(text) from None

    async def _namespaces(self, args: DefaultEvictorArgs) -> Mapping[str, Mapping[str, str]]:
        if not args.namespace_label_selector.parsed():
            return {}
        listed = await self._client.list(Namespace)
        return {key_of(each).name: labels_of(each) for each in listed.items}

    def _vmi(self, pod: Pod) -> VMI | None:
        owner = controller_of(pod)
        found = None if owner is None else self._owners.get(owner, key_of(pod).namespace)
        return found if isinstance(found, VMI) else None

    def _owner(self, pod: Pod) -> PodOwner | None:
        owner = controller_of(pod)
        return None if owner is None else self._owners.top(owner, key_of(pod).namespace)

    def _reaches_volumes(self, pod: Pod, node: Node) -> bool:
        """Return whether a node reaches the bound volumes of a pod."""
        for key in claims_of(pod):
            claim = self._claims.get(key)
            name = claim.spec.volumeName if claim is not None and claim.spec is not None else None
            volume = self._volumes.get(Key("", name)) if name else None
            if volume is not None and not node_fit.reaches(volume, node):
                return False
        return True

    def _storage_classes(self, pod: Pod) -> frozenset[str]:
        """Return the StorageClasses of a pod's claims; "" for a claim without one."""
        claims = (self._claims.get(key) for key in claims_of(pod))
        return frozenset((claim and class_name(claim)) or "" for claim in claims)


def _matcher(budgets: Iterable[PodDisruptionBudget]) -> Callable[[Pod], bool]:
    """Return whether one of the budgets selects a pod."""
    listed = list(budgets)

    @cache
    def selectors(namespace: str) -> list[LabelSelector]:
        return [selector_of(each) for each in listed if key_of(each).namespace == namespace]

    return lambda pod: any(
        each.matches(labels_of(pod)) for each in selectors(key_of(pod).namespace)
    )
