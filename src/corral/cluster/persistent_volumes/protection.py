"""PVC and PV protection: finalizers on claims that pods use, and on bound volumes.

Hot-plugged claims of a running VMI are in no pod here (KubeVirt creates an attachment pod for
each): they are looked up in the VMIs.
"""

from collections.abc import Iterable

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

from corral.api.errors import NotFound
from corral.api.kinds.storage.common import BOUND, CLAIM_PROTECTION, VOLUME_PROTECTION
from corral.api.kinds.vmi.hotplug import hotplug_disks
from corral.api.kinds.vmi.vmi import FINAL_PHASES, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import claims_of as claims_in
from corral.api.object import Document, Key
from corral.api.volume_binding import claim_index, claims_of, is_finished, node_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import finalizers_of, is_being_deleted, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

Claim = PersistentVolumeClaim
Volume = PersistentVolume
VMI = VirtualMachineInstance


def controller(context: ControllerContext) -> Controller[Key]:
    """Return the controller that adds and removes the finalizers."""
    loop = Protection(context)
    return Controller(
        "claim-protection",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.claims, loop.volumes, loop.pods, loop.vmis),
    )


class Protection:
    """Caches of the controller. Keys without a namespace are those of volumes."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(Volume)
        self.pods = context.informers.of(Pod)
        self.vmis = context.informers.of(VMI)
        self._client = context.client
        self.pods.index(claim_index)
        self.vmis.index(_plugged)
        self.claims.handle(self._changed)
        self.volumes.handle(self._changed)
        self.pods.handle(self._pod_changed)
        self.vmis.handle(self._vmi_changed)

    async def reconcile(self, key: Key) -> None:
        """Add or remove the finalizer of a claim or a volume."""
        if key.namespace:
            claim = self.claims.get(key)
            if claim is None:
                return
            protect = not is_being_deleted(claim) or await self._is_used(key)
            if (patch := finalizers(claim, CLAIM_PROTECTION, protect=protect)) is not None:
                await self._client.patch(Claim, key, patch)
        elif (volume := self.volumes.get(key)) is not None:
            protect = (
                not is_being_deleted(volume) or (volume.status and volume.status.phase) == BOUND
            )
            if (patch := finalizers(volume, VOLUME_PROTECTION, protect=protect)) is not None:
                await self._client.patch(Volume, key, patch)

    async def _is_used(self, key: Key) -> bool:
        """Report whether a scheduled pod uses a claim: others would not start with it."""
        pods = self.pods.indexed(claim_index, str(key))
        if any(node_of(pod) and not is_finished(pod) for pod in pods):
            return True
        if self.vmis.indexed(_plugged, str(key)):
            return True
        # The cache may lag: read pods that had no node from the API.
        return any([await self._has_started(pod) for pod in pods if not node_of(pod)])

    async def _has_started(self, pod: Pod) -> bool:
        key = key_of(pod)
        try:
            now = await self._client.get(Pod, key.name, key.namespace)
        except NotFound:
            return False
        return uid_of(now) == uid_of(pod) and bool(node_of(now)) and not is_finished(now)

    def _changed(self, _old: Claim | Volume | None, new: Claim | Volume | None) -> None:
        name = CLAIM_PROTECTION if isinstance(new, Claim) else VOLUME_PROTECTION
        if new is not None and is_being_deleted(new) is (name in finalizers_of(new)):
            self.queue.add(key_of(new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or is_finished(new):
            for key in claims_of(pod):
                self.queue.add(key)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        before = plugged(old) if old is not None else set()
        if before:
            for key in before.difference(plugged(new) if new is not None else ()):
                self.queue.add(key)


def plugged(vmi: VMI) -> set[Key]:
    """Return the claims of disks that are plugged into a VMI, or being plugged or unplugged."""
    if not vmi.status.node_name or vmi.status.phase in FINAL_PHASES:
        return set()
    infos = (
        each.persistent_volume_claim_info
        for each in vmi.status.volume_status
        if each.hotplug_volume is not None
    )
    names = {info.claim_name for info in infos if info is not None}
    if claims_in(vmi.spec.volumes):
        names.update(plug.claim for plug in hotplug_disks(vmi.spec).values())
    return {Key(vmi.metadata.namespace, name) for name in names}


def finalizers(view: Claim | Volume, name: str, *, protect: bool) -> Document | None:
    """Return the patch that adds or removes a finalizer; None if nothing changes."""
    present = finalizers_of(view)
    if protect is (name in present) or (protect and is_being_deleted(view)):
        return None  # the API rejects new finalizers on an object that is being deleted
    desired = [*present, name] if protect else [each for each in present if each != name]
    return {"metadata": {"resourceVersion": version_of(view), "finalizers": desired or None}}


def _plugged(vmi: VirtualMachineInstance) -> Iterable[str]:
    return map(str, plugged(vmi))
