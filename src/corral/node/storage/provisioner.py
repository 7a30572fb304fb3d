"""The provisioner: gives claims of this storage's class their volumes, lets them grow, and go.

It plays Kubernetes' external provisioner and external resizer for the one storage of its process.
The volume is made before the object that tells of it, and removed before that object goes, so what
the API shows is always there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import AlreadyExists, NotFound
from corral.api.kinds.cdi.population import is_populated
from corral.api.kinds.storage.common import BOUND, CORRAL_PROVISIONER, STORAGE, class_name
from corral.api.object import Key
from corral.failures import describe
from corral.node.hypervisor import GuestError
from corral.node.storage import provision_plan
from corral.node.storage.error import InUse, StorageError
from corral.node.storage.provision_plan import FINALIZER, Order, Refusal
from corral.node.storage.storage import Storage
from corral.node.storage.volume import Stored
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import finalizers_of, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

PATIENCE_SECONDS = 60.0
"""What could not be done is tried again after this time: space on the host appears untold."""
_HANDLE = "handle"
_FINISHED = frozenset({"Succeeded", "Failed"})

Claim = PersistentVolumeClaim
Volume = PersistentVolume
Grow = Callable[[Key, int], Awaitable[None]]
"""Grows the disk of a claim in the machine that writes it.  Raises GuestError."""


def controller(storage: Storage, grow: Grow) -> Callable[[ControllerContext], Controller[Key]]:
    """Makes the controller of a storage."""

    def make(context: ControllerContext) -> Controller[Key]:
        loop = Provisioner(context, storage, grow)
        sources = (loop.claims, loop.volumes, loop.classes, loop.pods)
        return Controller("storage", loop.reconcile, queue=loop.queue, sources=sources)

    return make


class Provisioner:
    """The claims, the volumes, and the storage.  Keys without a namespace are volumes'."""

    def __init__(self, context: ControllerContext, storage: Storage, grow: Grow) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(Volume)
        self.classes = context.informers.of(StorageClass)
        self.pods = context.informers.of(Pod)
        self._client = context.client
        self._recorder = context.recorder(CORRAL_PROVISIONER)
        self._storage = storage
        self._id = storage.id
        self._grow = grow
        self.claims.index(_HANDLE, lambda claim: (provision_plan.handle_of(claim),))
        for volume in storage.volumes():  # an earlier process may have left one on its way
            self.queue.add(Key("", volume.handle))
        self._waiting: set[Key] = set()
        """Claims that could not be served: looked at again when something changes."""
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.classes.handle(self._class_changed)
        self.pods.handle(self._pod_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring a claim, or a volume, one step further."""
        if not key.namespace:
            return await self._settle_volume(key)
        self._waiting.discard(key)
        claim = self.claims.get(key)
        if claim is None:
            return None
        storage_class = self.classes.get(Key("", class_name(claim) or ""))
        try:
            if (order := _order(claim, storage_class)) is not None:
                assert storage_class is not None
                await self._provision(claim, storage_class, order)
            elif (volume := self._volume_of(claim)) is not None:
                await self._expand(claim, volume, storage_class)
        except _Waiting as waiting:
            self._recorder.event(claim, "Warning", waiting.reason, str(waiting))
            self._waiting.add(key)
            return Result(requeue_after=PATIENCE_SECONDS)
        return None

    # ---------------------------------------------------------------- making

    async def _provision(self, claim: Claim, storage_class: StorageClass, order: Order) -> None:
        if self.volumes.get(Key("", order.handle)) is not None:
            return  # made already; to bind it is another's work
        named = key_of(claim)
        told = f'External provisioner is provisioning volume for claim "{named}"'
        self._recorder.event(claim, "Normal", "Provisioning", told)
        try:
            made = await self._made(claim, order)
        except InUse as error:
            raise _Waiting("CloneSourceInUse", self._users(claim, order, error)) from error
        except (StorageError, Refusal, OSError) as error:
            raise _failed(storage_class, error) from error
        document = provision_plan.volume_document(
            claim, storage_class, made.capacity_bytes, self._id
        )
        with suppress(AlreadyExists):
            await self._client.create(Volume, document)
        told = f"Successfully provisioned volume {made.handle}"
        self._recorder.event(claim, "Normal", "ProvisioningSucceeded", told)

    async def _made(self, claim: Claim, order: Order) -> Stored:
        """The volume of an order.  Raises StorageError, Refusal and OSError."""
        source = self._source_handle(claim, order.source) if order.source else ""
        made = await asyncio.to_thread(
            self._storage.provision,
            order.handle,
            order.capacity_bytes,
            order.volume_mode,
            shareable=order.shareable,
            overcommit_percent=order.overcommit_percent,
        )
        if source and not made.filled:
            made = await asyncio.to_thread(
                self._storage.clone,
                source,
                order.handle,
                overcommit_percent=order.overcommit_percent,
            )
        return made

    def _source_handle(self, claim: Claim, name: str) -> str:
        """The volume of the claim that is to be cloned.  Raises Refusal."""
        namespace = key_of(claim).namespace
        source = self.claims.get(Key(namespace, name))
        if source is None:
            raise Refusal(f'the source, claim "{name}", is not found in namespace {namespace}')
        volume = self._volume_of(source)
        if volume is None:
            raise Refusal(f'the source, claim "{name}", is not bound')
        if not is_populated(source):
            raise Refusal(f'the source, claim "{name}", does not have its content yet')
        if not (handle := provision_plan.handle_in(volume, self._id)):
            raise Refusal(f'the source, claim "{name}", lies in another storage')
        return handle

    def _users(self, claim: Claim, order: Order, error: InUse) -> str:
        """Who uses the source of a clone, in CDI's words."""
        namespace = key_of(claim).namespace
        names = [
            f"pod {key_of(pod)} using {provision_plan.CLAIM_KIND} {order.source}"
            for pod in self.pods.items()
            if key_of(pod).namespace == namespace and _uses(pod, order.source)
        ]
        return "; ".join(sorted(names)) or str(error)

    # --------------------------------------------------------------- growing

    async def _expand(
        self, claim: Claim, volume: Volume, storage_class: StorageClass | None
    ) -> None:
        """Let a claim's volume have the size that it asks for by now."""
        size = provision_plan.growth(claim, volume)
        handle = provision_plan.handle_in(volume, self._id)
        if not size or not handle:
            return
        name = key_of(volume).name
        told = f"External resizer is resizing volume {name}"
        self._recorder.event(claim, "Normal", "Resizing", told)
        try:
            grown = await self._grown(claim, handle, size, provision_plan.overcommit(storage_class))
        except (StorageError, Refusal, GuestError, OSError) as error:
            by = f'resize volume "{name}" by resizer "{CORRAL_PROVISIONER}" failed'
            raise _Waiting("VolumeResizeFailed", f"{by}: {describe(error)}") from error
        capacity = {STORAGE: provision_plan.shown_size(claim, grown)}
        await self._client.patch(Volume, key_of(volume), {"spec": {"capacity": capacity}})
        status = {"status": {"capacity": capacity}}
        await self._client.patch(Claim, key_of(claim), status, subresource="status")
        self._recorder.event(claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _grown(self, claim: Claim, handle: str, size: int, percent: int) -> int:
        """The size that a volume has after it was grown, by whoever has its file."""
        try:
            grown = await asyncio.to_thread(
                self._storage.resize, handle, size, overcommit_percent=percent
            )
        except InUse:
            grown = self._storage.present(handle)  # what it was promised
            await self._grow(key_of(claim), grown.capacity_bytes)
        return grown.capacity_bytes

    def _volume_of(self, claim: Claim) -> Volume | None:
        name = claim.spec and claim.spec.volumeName
        return self.volumes.get(Key("", name)) if name else None

    # -------------------------------------------------------------- removing

    async def _settle_volume(self, key: Key) -> Result | None:
        volume = self.volumes.get(key)
        if volume is None:
            await self._forsake(key)
            return None
        if not (handle := provision_plan.handle_in(volume, self._id)):
            return None
        if provision_plan.is_to_be_deleted(volume):
            try:
                await asyncio.to_thread(self._storage.remove, handle)
            except (StorageError, OSError) as error:
                self._recorder.event(volume, "Warning", "VolumeFailedDelete", describe(error))
                return Result(requeue_after=PATIENCE_SECONDS)
            self._wake()
            with suppress(NotFound):
                await self._client.delete(Volume, key, uid=uid_of(volume))
        elif not provision_plan.holds(volume) or not provision_plan.is_kept(volume):
            return None
        await self._let_go(key)
        return None

    async def _forsake(self, key: Key) -> None:
        """Remove a volume that was made for a claim which went before the API was told of it.

        Others may be kept without being in the API, so only one that nothing was written to goes.
        """
        if self._storage.find(key.name) is None or self.claims.indexed(_HANDLE, key.name):
            return
        try:
            await self._client.get(Volume, key.name)
        except NotFound:
            if await asyncio.to_thread(self._storage.is_blank, key.name):
                with suppress(InUse):
                    await asyncio.to_thread(self._storage.remove, key.name)
                    self._wake()

    async def _let_go(self, key: Key) -> None:
        """Take our finalizer from a volume that goes."""
        with suppress(NotFound):
            volume = await self._client.get(Volume, key.name)
            if not provision_plan.holds(volume):
                return
            rest = [each for each in finalizers_of(volume) if each != FINALIZER]
            metadata = {"finalizers": rest, "resourceVersion": version_of(volume)}
            await self._client.patch(Volume, key, {"metadata": metadata})

    # --------------------------------------------------------------- changes

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))
        else:
            assert old is not None
            self._waiting.discard(key_of(old))
            self.queue.add(Key("", provision_plan.handle_of(old)))
        if _can_be_cloned(new) and not _can_be_cloned(old):  # one of them may have waited for it
            self._wake()

    def _volume_changed(self, _old: Volume | None, new: Volume | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _class_changed(self, _old: StorageClass | None, new: StorageClass | None) -> None:
        if new is not None:
            for claim in self.claims.items():
                if class_name(claim) == key_of(new).name:
                    self.queue.add(key_of(claim))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A machine that has ended leaves its disks to others."""
        if self._waiting and (new is None or _has_finished(new)) and old is not None:
            self._wake()

    def _wake(self) -> None:
        for key in self._waiting:
            self.queue.add(key)


class _Waiting(Exception):
    """A claim has to wait: a reason for its event, and the event's text."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _can_be_cloned(claim: Claim | None) -> bool:
    return (
        claim is not None
        and claim.status is not None
        and claim.status.phase == BOUND
        and is_populated(claim)
    )


def _order(claim: Claim, storage_class: StorageClass | None) -> Order | None:
    """The volume that a claim waits for.  Raises _Waiting for one that cannot be made."""
    try:
        return provision_plan.order(claim, storage_class)
    except Refusal as error:
        assert storage_class is not None
        raise _failed(storage_class, error) from error


def _failed(storage_class: StorageClass, error: Exception) -> _Waiting:
    name = key_of(storage_class).name
    why = error.strerror if isinstance(error, OSError) else error
    text = f'failed to provision volume with StorageClass "{name}": {why}'
    return _Waiting("ProvisioningFailed", text)


def _has_finished(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in _FINISHED


def _uses(pod: Pod, claim: str) -> bool:
    """Whether a pod that has not ended mounts a claim of its namespace."""
    volumes = (pod.spec and pod.spec.volumes) or ()
    return not _has_finished(pod) and any(
        each.persistentVolumeClaim is not None and each.persistentVolumeClaim.claimName == claim
        for each in volumes
    )
