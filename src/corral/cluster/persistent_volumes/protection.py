"""Keeps claims that pods use, and volumes that claims have, until they are used no more.

What is deleted meanwhile stays Terminating: a machine's disk must not go from under it.  The claims
of disks that are plugged in while a machine runs are in no pod (KubeVirt makes one for each): they
are looked for in the machines.
"""

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

from corral.api.errors import NotFound
from corral.api.kinds.storage.common import BOUND, CLAIM_PROTECTION, VOLUME_PROTECTION
from corral.api.kinds.vmi.hotplug import hotplug_disks
from corral.api.kinds.vmi.vmi import FINAL_PHASES, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import claims_of as claims_in
from corral.api.object import Document, Key
from corral.api.volume_binding import USED_BY, claim_index, claims_of, is_finished, node_of
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import finalizers_of, is_being_deleted, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

Claim = PersistentVolumeClaim
Volume = PersistentVolume
Machine = VirtualMachineInstance


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that lets claims and volumes go."""
    loop = Protection(context)
    return Controller(
        "claim-protection",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.claims, loop.volumes, loop.pods, loop.machines),
    )


class Protection:
    """Claims and volumes, and who uses them.  Keys without a namespace are volumes'."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(Volume)
        self.pods = context.informers.of(Pod)
        self.machines = context.informers.of(Machine)
        self._client = context.client
        self.pods.index(USED_BY, claim_index)
        self.machines.index("plugged", lambda vmi: map(str, plugged(vmi)))
        self.claims.handle(self._changed)
        self.volumes.handle(self._changed)
        self.pods.handle(self._pod_changed)
        self.machines.handle(self._machine_changed)

    async def reconcile(self, key: Key) -> None:
        """Hold one object back from going, or let it go."""
        if key.namespace:
            claim = self.claims.get(key)
            if claim is None:
                return
            held = not is_being_deleted(claim) or await self._is_used(key)
            if (patch := finalizers(claim, CLAIM_PROTECTION, held=held)) is not None:
                await self._client.patch(Claim, key, patch)
        elif (volume := self.volumes.get(key)) is not None:
            held = not is_being_deleted(volume) or (volume.status and volume.status.phase) == BOUND
            if (patch := finalizers(volume, VOLUME_PROTECTION, held=held)) is not None:
                await self._client.patch(Volume, key, patch)

    async def _is_used(self, key: Key) -> bool:
        """Whether a pod that has a node uses a claim: one without waits, and would not get it."""
        pods = self.pods.indexed(USED_BY, str(key))
        if any(node_of(pod) and not is_finished(pod) for pod in pods):
            return True
        if self.machines.indexed("plugged", str(key)):
            return True
        # Of a pod that had no node a moment ago, the server knows whether it has one by now.
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

    def _machine_changed(self, old: Machine | None, new: Machine | None) -> None:
        before = plugged(old) if old is not None else set()
        if before:
            for key in before.difference(plugged(new) if new is not None else ()):
                self.queue.add(key)


def plugged(vmi: Machine) -> set[Key]:
    """The claims of disks that are plugged into a machine, or on their way in or out."""
    if not vmi.status.node_name or vmi.status.phase in FINAL_PHASES:
        return set()
    told = (
        each.persistent_volume_claim_info
        for each in vmi.status.volume_status
        if each.hotplug_volume is not None
    )
    names = {info.claim_name for info in told if info is not None}
    if claims_in(vmi.spec.volumes):
        names.update(plug.claim for plug in hotplug_disks(vmi.spec).values())
    return {Key(vmi.metadata.namespace, name) for name in names}


def finalizers(view: Claim | Volume, name: str, *, held: bool) -> Document | None:
    """The patch by which an object is held back under a name, or no more; None where it is so."""
    present = finalizers_of(view)
    if held is (name in present) or (held and is_being_deleted(view)):
        return None  # nothing can be added to what is going
    wanted = [*present, name] if held else [each for each in present if each != name]
    return {"metadata": {"resourceVersion": version_of(view), "finalizers": wanted or None}}
