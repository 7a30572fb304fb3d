"""Launcher pods with what other objects say: claims, quotas, the KubeVirt object."""

from collections.abc import Sequence

from lightkube.models.core_v1 import Namespace, PersistentVolumeClaim
from lightkube.models.storage_v1 import StorageClass

from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.core.machine_nodes import Placement
from corral.api.kinds.kubevirt.installation import KEY, KubeVirt, cpu_allocation_ratio
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import Document, Key, Quantity
from corral.controllers.vmi import required_claims
from corral.controllers.vmi.auto_limits import AutoLimits, auto_limits
from corral.controllers.vmi.launcher_pod import compute_resources, pod_for
from corral.controllers.vmi.required_claims import Claims, Sources
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Source
from corral.reconcile.objects import key_of
from corral.reconcile.quota_retry import retry_on_quota_increase
from corral.reconcile.workqueue import WorkQueue


class LauncherTemplate:
    """The caches that launcher pods are made from.

    Keys of ``queue`` that failed are retried when a quota has room again.  ``cpu_ratio`` applies
    unless the KubeVirt object sets another; ``placement`` is added to each pod.
    """

    def __init__(
        self,
        context: ControllerContext,
        queue: WorkQueue[Key],
        cpu_ratio: int,
        placement: Placement,
    ) -> None:
        self.claims = context.informers.of(PersistentVolumeClaim)
        self.data_volumes = context.informers.of(DataVolume)
        self.installations = context.informers.of(KubeVirt)
        self._classes = context.informers.of(StorageClass)
        self._namespaces = context.informers.of(Namespace)
        self._quotas = retry_on_quota_increase(context, queue)
        self._sources = Sources(self.claims.get, self.data_volumes.get, self._classes.get)
        self._cpu_ratio = cpu_ratio
        self._placement = placement

    @property
    def informers(self) -> Sequence[Source]:
        """The caches that must be filled before a pod is made."""
        return (
            *(self.claims, self.data_volumes, self._classes),
            *(self._namespaces, self._quotas, self.installations),
        )

    def required_claims(self, vmi: VirtualMachineInstance) -> Claims:
        """Return the claims that a VMI needs."""
        return required_claims.resolve(vmi, self._sources)

    def pod(self, vmi: VirtualMachineInstance, claims: Claims) -> Document:
        """Return the launcher pod of a VMI."""
        return pod_for(
            vmi,
            claims,
            cpu_ratio=self._ratio(),
            auto=self._limits(vmi),
            placement=self._placement,
        )

    def resources(self, vmi: VirtualMachineInstance) -> dict[str, dict[str, Quantity]]:
        """Return the resources of a VMI's machine."""
        return compute_resources(vmi, cpu_ratio=self._ratio(), auto=self._limits(vmi))

    def _ratio(self) -> int:
        return cpu_allocation_ratio(self.installations.get(KEY), self._cpu_ratio)

    def _limits(self, vmi: VirtualMachineInstance) -> AutoLimits:
        name = vmi.metadata.namespace
        quotas = [each for each in self._quotas.items() if key_of(each).namespace == name]
        return auto_limits(quotas, self._namespaces.get(Key("", name)))
