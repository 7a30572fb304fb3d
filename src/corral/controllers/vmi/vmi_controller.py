"""Controller of VMIs: creates and deletes launcher pods, writes phases, removes the finalizer."""

from collections.abc import Sequence
from functools import partial

from lightkube.models.core_v1 import Node, PersistentVolumeClaim, Pod

from corral.api.errors import AlreadyExists, ApiError
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.core.machine_nodes import ANYWHERE, Placement
from corral.api.kinds.core.node_addresses import kubelet_port
from corral.api.kinds.corral.warm_pool import WARM_POOL_LABEL
from corral.api.kinds.kubevirt.installation import CPU_RATIO
from corral.api.kinds.kubevirt.virtualmachine import VirtualMachine
from corral.api.kinds.vmi.live_update import MIGRATION_REQUIRED, has_condition
from corral.api.kinds.vmi.vmi import FINALIZER, GROUP, VirtualMachineInstance
from corral.api.kinds.vmi.volumes import claims_of
from corral.api.object import Document, Key
from corral.controllers.vmi import lifecycle, resize
from corral.controllers.vmi.launcher_pod import beside_checkpoint, relabelled
from corral.controllers.vmi.launcher_template import LauncherTemplate
from corral.controllers.vmi.required_claims import Claims
from corral.reconcile.batch import for_each
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.deletion import remove
from corral.reconcile.expectations import Expectations
from corral.reconcile.indexes import by_controller
from corral.reconcile.objects import (
    Owner,
    controller_of,
    controller_uid,
    is_being_deleted,
    key_of,
    uid_of,
)
from corral.reconcile.workqueue import WorkQueue

VMI = VirtualMachineInstance

COMPONENT = "virtualmachine-controller"
WORKERS = 64
"""VMIs that are synced at once: most of that time is waiting for durable writes."""
MIN_VISIBLE_SECONDS = 5.0
"""Minimum time that a finished VMI stays visible, even if its replica set deletes it at once:
clients that poll see whether it succeeded or failed."""
NAMED_MIN_VISIBLE_SECONDS = 1.5
"""The same for VMIs of VirtualMachines, whose next VMI waits for the name."""


def controller(
    context: ControllerContext,
    *,
    cpu_ratio: int = CPU_RATIO,
    placement: Placement = ANYWHERE,
) -> Controller[Key]:
    """Return the controller of VMIs.

    ``cpu_ratio`` applies unless the KubeVirt object sets another.
    """
    loop = VMIs(context, cpu_ratio, placement)
    return Controller(
        "vmi",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.vmis, loop.pods, loop.nodes, *loop.template.informers),
        workers=WORKERS,
    )


class VMIs:
    """Caches and state of the controller."""

    def __init__(
        self, context: ControllerContext, cpu_ratio: int, placement: Placement = ANYWHERE
    ) -> None:
        self.queue = WorkQueue[Key]()
        self.vmis = context.informers.of(VMI)
        self.pods = context.informers.of(Pod)
        self.nodes = context.informers.of(Node)
        self.template = LauncherTemplate(context, self.queue, cpu_ratio, placement)
        self._context = context
        self._client = context.client
        self._recorder = context.recorder(COMPONENT)
        self._expectations = Expectations[str](context.monotonic)
        self.pods.index(by_controller)
        self.vmis.index(_claim_index)
        self.vmis.index(_needs_room)
        self._ended: dict[str, float] = {}
        """Times at which VMIs, by uid, ended by themselves, while they exist."""
        self.vmis.handle(self._vmi_changed)
        self.pods.handle(self._pod_changed)
        self.template.claims.handle(self._claim_changed)
        self.template.data_volumes.handle(self._claim_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync one VMI (KubeVirt's lifecycle.go, execute)."""
        vmi = self.vmis.get(key)
        if vmi is None:
            return None
        if unmet := self._expectations.unmet_seconds(vmi.metadata.uid):
            return Result(requeue_after=unmet)
        pods = self.pods.indexed(by_controller, vmi.metadata.uid)
        await self._relabel(vmi, pods)
        now = self._context.clock()
        needed = self.template.required_claims(vmi)
        visible = self._visible_seconds(vmi)
        if await self._resize(vmi, pods):
            return None  # the VMI has changed
        decided = lifecycle.plan(
            vmi, pods, now, needed, keep_visible=visible > 0, label_early=self._is_remote(pods)
        )
        error: ApiError | None = None
        if decided.create_pod:
            try:
                pods = [await self._create_pod(vmi, needed)]
            except ApiError as refusal:
                error = refusal
            text = f"failed to create virtual machine pod: {error}" if error else ""
            now = self._context.clock()  # the create took time, and the age of the pod matters
            decided = lifecycle.plan(vmi, pods, now, needed, create_error=text)
        if decided.delete_pods:
            await self._delete_pods(vmi, decided)
        if decided.patch is not None:
            await self._client.patch(VMI, key, decided.patch)
            if (text := lifecycle.missing_claim(vmi, needed)) and not pods:
                self._recorder.event(vmi, "Normal", lifecycle.CLAIM_MISSING, text)
        if error is not None:
            raise error
        delay = visible or decided.requeue_seconds
        return Result(delay) if delay > 0 else None

    async def _relabel(self, vmi: VMI, pods: Sequence[Pod]) -> None:
        """Have the pods of a VMI that its warm pool has handed out carry its labels."""
        for pod in pods:
            if (patch := relabelled(vmi, pod)) is not None:
                await self._client.patch(Pod, key_of(pod), patch)

    def _is_remote(self, pods: Sequence[Pod]) -> bool:
        """Report whether a pod is bound to a node of another host, which serves its own API."""
        nodes = (self.nodes.get(Key("", lifecycle.node_of(pod))) for pod in pods)
        return any(node is not None and kubelet_port(node) for node in nodes)

    def _visible_seconds(self, vmi: VMI) -> float:
        """Return for how long a finished VMI stays visible."""
        ended = self._ended.get(vmi.metadata.uid)
        if ended is None:
            return 0.0
        owner = controller_of(vmi)
        replaced = owner is not None and owner.kind == VirtualMachine.kind
        seconds = NAMED_MIN_VISIBLE_SECONDS if replaced else MIN_VISIBLE_SECONDS
        return max(0.0, ended + seconds - self._context.monotonic())

    async def _resize(self, vmi: VMI, pods: Sequence[Pod]) -> bool:
        """Have the pod request what its machine shall have; return whether the VMI was written.

        Raises ApiError if that is refused, as by a quota.
        """
        change, pod = resize.change_of(vmi), lifecycle.current(vmi, pods)
        if pod is None:
            return False
        if not change:
            return await self._settle(vmi, pod)
        patch: Document | None = None
        desired = resize.without_release(vmi, pod, self.template.resources(vmi))
        if (resized := resize.resized(pod, desired)) is not None:
            name = lifecycle.node_of(pod)
            node = self.nodes.get(Key("", name))
            if lacks := resize.lacking(pod, desired, node, self.pods.items(), name):
                patch = resize.has_no_room(vmi, lacks, self._context.clock())
                return await self._write(vmi, patch)
            try:
                await self._client.patch(Pod, key_of(pod), resized, subresource="resize")
            except ApiError as error:
                text = f"Error resizing pod: {error}"
                patch = resize.refused(vmi, change, text, self._context.clock())
                if await self._write(vmi, patch):
                    self._recorder.event(vmi, "Warning", resize.RESIZE_FAILED, text)
                raise
        return await self._write(vmi, resize.granted(vmi, change, self._context.clock()))

    async def _settle(self, vmi: VMI, pod: Pod) -> bool:
        """Have the pod request no memory that its guest has released, and end refused changes.

        Return whether the VMI was written.
        """
        if resize.may_have_released(vmi):  # most VMIs never do: their resources are not computed
            released = resize.releasable(vmi, pod, self.template.resources(vmi))
            if released is not None and (patch := resize.resized(pod, released)) is not None:
                await self._client.patch(Pod, key_of(pod), patch, subresource="resize")
        return await self._write(vmi, resize.clear_failures(vmi))

    async def _write(self, vmi: VMI, patch: Document | None) -> bool:
        if patch is not None:
            await self._client.patch(VMI, vmi.key, patch)
        return patch is not None

    async def _create_pod(self, vmi: VMI, needed: Claims) -> Pod:
        self._expectations.expect(vmi.metadata.uid, creations=1)
        document = beside_checkpoint(self.template.pod(vmi, needed), vmi)
        try:
            pod = await self._client.create(Pod, document)
        except AlreadyExists:
            # An earlier create succeeded but its response was lost, or the old pod still exists.
            self._expectations.creation_observed(vmi.metadata.uid)
            pod = await self._client.get(Pod, document["metadata"]["name"], vmi.key.namespace)
            if controller_uid(pod) != vmi.metadata.uid or is_being_deleted(pod):
                raise
        except ApiError as error:
            self._expectations.creation_observed(vmi.metadata.uid)
            text = f"Error creating pod: {error}"
            self._recorder.event(vmi, "Warning", lifecycle.FAILED_CREATE, text)
            raise
        text = f"Created virtual machine pod {key_of(pod).name}"
        self._recorder.event(vmi, "Normal", "SuccessfulCreate", text)
        return pod

    async def _delete_pods(self, vmi: VMI, decided: lifecycle.Plan) -> None:
        grace_seconds = 0 if decided.force else None
        refused = await for_each(
            decided.delete_pods, partial(self._delete_pod, vmi, grace_seconds=grace_seconds)
        )
        if refused:
            raise refused[0]

    async def _delete_pod(self, vmi: VMI, pod: Pod, *, grace_seconds: int | None) -> None:
        key = key_of(pod)
        try:
            deleted = await remove(self._client, Pod, key, uid_of(pod), grace_seconds=grace_seconds)
        except ApiError as error:
            text = f"Error deleting pod: {error}"
            self._recorder.event(vmi, "Warning", "FailedDelete", text)
            raise
        if deleted:
            text = f"Deleted virtual machine pod {key.name}"
            self._recorder.event(vmi, "Normal", "SuccessfulDelete", text)

    def _vmi_changed(self, old: VMI | None, new: VMI | None) -> None:
        self._record_end(old, new)
        if new is not None and (old is None or _needs_sync(old, new)):
            self.queue.add(new.key)

    def _record_end(self, old: VMI | None, new: VMI | None) -> None:
        """Record when a VMI ended by itself; the end of a deleted one interests nobody."""
        if old is None:
            return
        if new is None:
            self._ended.pop(old.metadata.uid, None)
        elif new.is_final and not old.is_final and not is_being_deleted(new):
            self._ended[new.metadata.uid] = self._context.monotonic()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or lifecycle.has_ended(new)):
            for vmi in self.vmis.indexed(_needs_room, lifecycle.node_of(old)):
                self.queue.add(vmi.key)
        found = (owner for pod in (new, old) if pod and (owner := _owner_of(pod)))
        owner = next(found, None)
        if owner is None:
            return
        if old is None:
            self._expectations.creation_observed(owner.uid)
        changed = new or old
        assert changed is not None
        self.queue.add(Key(key_of(changed).namespace, owner.name))

    def _claim_changed(
        self,
        old: PersistentVolumeClaim | DataVolume | None,
        new: PersistentVolumeClaim | DataVolume | None,
    ) -> None:
        """Enqueue the VMIs of a claim, or of a DataVolume, which has the name of its claim."""
        changed = new or old
        assert changed is not None
        for vmi in self.vmis.indexed(_claim_index, str(key_of(changed))):
            self.queue.add(vmi.key)


def _claim_index(vmi: VMI) -> list[str]:
    """Return the claims that a VMI uses."""
    names = claims_of(vmi.spec.volumes).values()
    return [str(Key(vmi.metadata.namespace, name)) for name in names]


def _needs_room(vmi: VMI) -> Sequence[str]:
    """Return the node that has no room for what is to be plugged into a VMI."""
    return (vmi.status.node_name,) if has_condition(vmi, MIGRATION_REQUIRED) else ()


def _owner_of(pod: Pod) -> Owner | None:
    """Return the owner reference to the VMI of a launcher pod."""
    owner = controller_of(pod)
    if owner is None:
        return None
    is_vmi = (owner.api_version.partition("/")[0], owner.kind) == (GROUP, VMI.kind)
    return owner if is_vmi else None


def _needs_sync(old: VMI, new: VMI) -> bool:
    """Report whether a change of a VMI requires a sync."""
    return (
        old.status.phase != new.status.phase
        or old.metadata.generation != new.metadata.generation
        or old.status.conditions != new.status.conditions
        or old.status.volume_status != new.status.volume_status
        or old.status.evacuation_node_name != new.status.evacuation_node_name
        or old.status.migration_state != new.status.migration_state
        or old.status.node_name != new.status.node_name
        or is_being_deleted(old) is not is_being_deleted(new)
        or (WARM_POOL_LABEL in old.metadata.labels and WARM_POOL_LABEL not in new.metadata.labels)
        or (FINALIZER in old.metadata.finalizers) is not (FINALIZER in new.metadata.finalizers)
    )
