"""The provisioner: creates, resizes and deletes the volumes of claims.

It does the work of external-provisioner and external-resizer for the one storage of its process.
Files are created before their PersistentVolume and removed before it, so that a PersistentVolume
always has its files.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import AlreadyExists, NotFound
from corral.api.kinds.cdi.population import is_populated
from corral.api.kinds.storage.common import (
    BOUND,
    SELECTED_NODE,
    SHARED_LABEL,
    STORAGE,
    class_name,
)
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.api.volume_binding import is_delayed, is_finished
from corral.failures import describe
from corral.node.hypervisor import GuestError, NoMachineError
from corral.node.storage import provision_plan
from corral.node.storage.claim_placement import ClaimPlacement, HostNodes, select
from corral.node.storage.error import InsufficientSpace, InUse, StorageError
from corral.node.storage.provision_plan import (
    FINALIZER,
    Backend,
    ProvisionError,
    ProvisionRequest,
)
from corral.node.storage.storage import Storage
from corral.node.storage.volume import StoredVolume
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import (
    annotations_of,
    finalizers_of,
    key_of,
    labels_of,
    uid_of,
    version_of,
)
from corral.reconcile.workqueue import WorkQueue

RETRY_SECONDS = 60.0
"""Between attempts: no event announces that space on the host became free."""
RESCHEDULE_SECONDS = 5.0
"""After which a claim that does not fit is given back to the scheduler, which knows better then."""

Claim = PersistentVolumeClaim
Volume = PersistentVolume
Grow = Callable[[Key, int], Awaitable[None]]
"""Grows the disk of a claim in the machine that writes it.

Raises NoMachineError if that is none of this host, and GuestError.
"""


def _nothing() -> None:
    """Ignore changed volumes."""


def controller(
    storage: Storage,
    grow: Grow,
    host: HostNodes | None = None,
    changed: Callable[[], None] = _nothing,
    *,
    backend: Backend | None = None,
) -> Callable[[ControllerContext], Controller[Key]]:
    """Return a factory of the controller of a storage.

    host: the nodes that use the storage; without it there is no other host.
    changed: called when the space for new volumes has changed.
    backend: how the API names the storage, if it is not a host's own.
    """

    def make(context: ControllerContext) -> Controller[Key]:
        loop = Provisioner(context, storage, grow, host or HostNodes(), changed, backend=backend)
        sources = (loop.claims, loop.volumes, loop.classes, loop.pods, loop.nodes)
        name = "storage" if backend is None else "shared-storage"
        return Controller(name, loop.reconcile, queue=loop.queue, sources=sources)

    return make


class Provisioner:
    """Reconciles claims and volumes.  Keys without a namespace are those of volumes."""

    def __init__(
        self,
        context: ControllerContext,
        storage: Storage,
        grow: Grow,
        host: HostNodes,
        changed: Callable[[], None],
        *,
        backend: Backend | None = None,
    ) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(Volume)
        self.classes = context.informers.of(StorageClass)
        self.pods = context.informers.of(Pod)
        self.nodes = context.informers.of(Node)
        self._client = context.client
        self._clock = context.clock
        self._backend = backend or Backend(storage.id)
        self._recorder = context.recorder(self._backend.provisioner)
        self._storage = storage
        self._id = storage.id
        self._grow = grow
        self._changed = changed
        self._placement = ClaimPlacement(
            host, self._id, claims=self.claims, volumes=self.volumes, nodes=self.nodes
        )
        self.claims.index(_handle)
        for volume in storage.volumes():  # an earlier process may have died before its object
            self.queue.add(Key("", volume.handle))
        self._waiting: set[Key] = set()
        """Claims that could not be provisioned or resized: retried when something changes."""
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.classes.handle(self._class_changed)
        self.pods.handle(self._pod_changed)
        self.nodes.handle(self._node_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync a claim or a volume."""
        if not key.namespace:
            return await self._reconcile_volume(key)
        was_waiting = key in self._waiting
        self._waiting.discard(key)
        claim = self.claims.get(key)
        if claim is None:
            return None
        storage_class = self.classes.get(Key("", class_name(claim) or ""))
        try:
            await self._sync(claim, storage_class)
        except _OnAnotherHost:
            self._waiting.add(key)
            return Result(requeue_after=RETRY_SECONDS)
        except _Waiting as waiting:
            if was_waiting and waiting.is_elsewhere and is_delayed(storage_class):
                await self._client.patch(PersistentVolumeClaim, key, select(claim, None))
                return None
            self._recorder.event(claim, "Warning", waiting.reason, str(waiting))
            self._waiting.add(key)
            return Result(
                requeue_after=RESCHEDULE_SECONDS if waiting.is_elsewhere else RETRY_SECONDS
            )
        return None

    async def _sync(self, claim: Claim, storage_class: StorageClass | None) -> None:
        """Provision or expand the volume of a claim.  Raises _Waiting and _OnAnotherHost."""
        if (volume := self._volume_of(claim)) is not None:
            await self._expand(claim, volume, storage_class)
            return
        if not self._placement.serves(claim) and not self._placement.selection(claim):
            return  # of another host
        if (request := self._request(claim, storage_class)) is None:
            return
        if (selection := self._placement.selection(claim)) is not None:
            await self._client.patch(Claim, key_of(claim), selection)
            return
        assert storage_class is not None
        await self._provision(claim, storage_class, request)

    # ---------------------------------------------------------- provisioning

    def _request(self, claim: Claim, storage_class: StorageClass | None) -> ProvisionRequest | None:
        """Return the volume to create for a claim, if any.  Raises _Waiting."""
        try:
            return provision_plan.provision_request(claim, storage_class, self._backend.provisioner)
        except ProvisionError as error:
            assert storage_class is not None
            raise _failed(storage_class, error) from error

    async def _provision(
        self, claim: Claim, storage_class: StorageClass, request: ProvisionRequest
    ) -> None:
        if self.volumes.get(Key("", request.handle)) is not None:
            return  # provisioned already; the persistent volume binder does the rest
        message = f'External provisioner is provisioning volume for claim "{key_of(claim)}"'
        self._recorder.event(claim, "Normal", "Provisioning", message)
        try:
            created = await self._create(claim, request)
        except InUse as error:
            raise _Waiting("CloneSourceInUse", self._users(claim, request, error)) from error
        except InsufficientSpace as error:
            raise _failed(storage_class, error, is_elsewhere=self._has_others()) from error
        except (StorageError, ProvisionError, OSError) as error:
            raise _failed(storage_class, error) from error
        self._changed()
        document = provision_plan.volume_document(
            claim, storage_class, created.capacity_bytes, self._backend
        )
        with suppress(AlreadyExists):
            await self._client.create(Volume, document)
        message = f"Successfully provisioned volume {created.handle}"
        self._recorder.event(claim, "Normal", "ProvisioningSucceeded", message)

    async def _create(self, claim: Claim, request: ProvisionRequest) -> StoredVolume:
        """Create the files of a volume.  Raises StorageError, ProvisionError and OSError."""
        source = self._source_handle(claim, request.source) if request.source else ""
        created = await asyncio.to_thread(
            self._storage.provision,
            request.handle,
            request.capacity_bytes,
            request.volume_mode,
            shareable=request.shareable,
            overcommit_percent=request.overcommit_percent,
        )
        if source and not created.populated:
            created = await asyncio.to_thread(
                self._storage.clone,
                source,
                request.handle,
                overcommit_percent=request.overcommit_percent,
            )
        return created

    def _source_handle(self, claim: Claim, name: str) -> str:
        """Return the handle of the volume to clone.  Raises ProvisionError."""
        namespace = key_of(claim).namespace
        source = self.claims.get(Key(namespace, name))
        if source is None:
            raise ProvisionError(
                f'the source, claim "{name}", is not found in namespace {namespace}'
            )
        volume = self._volume_of(source)
        if volume is None:
            raise ProvisionError(f'the source, claim "{name}", is not bound')
        if not is_populated(source):
            raise ProvisionError(f'the source, claim "{name}", is not populated yet')
        if not (handle := provision_plan.handle_in(volume, self._id)):
            raise ProvisionError(f'the source, claim "{name}", lies on another host')
        return handle

    def _users(self, claim: Claim, request: ProvisionRequest, error: InUse) -> str:
        """Return the pods that use the source of a clone, as CDI's event lists them."""
        namespace = key_of(claim).namespace
        names = [
            f"pod {key_of(pod)} using {provision_plan.CLAIM_KIND} {request.source}"
            for pod in self.pods.items()
            if key_of(pod).namespace == namespace and _uses(pod, request.source)
        ]
        return "; ".join(sorted(names)) or str(error)

    def _has_others(self) -> bool:
        """Report whether there are nodes with another storage."""
        return any(
            labels_of(each).get(self._backend.label, self._id) != self._id
            for each in self.nodes.items()
        )

    # -------------------------------------------------------------- resizing

    async def _expand(
        self, claim: Claim, volume: Volume, storage_class: StorageClass | None
    ) -> None:
        """Grow a claim's volume to the requested size."""
        size = provision_plan.expansion(claim, volume)
        handle = provision_plan.handle_in(volume, self._id)
        if not size or not handle:
            return
        name = key_of(volume).name
        if not provision_plan.is_pending_on_node(claim):
            message = f"External resizer is resizing volume {name}"
            self._recorder.event(claim, "Normal", "Resizing", message)
        try:
            overcommit = provision_plan.overcommit(storage_class)
            resized = await self._resize(claim, handle, size, overcommit)
        except _OnAnotherHost as pending:
            await self._leave_to_node(claim, volume, pending.capacity_bytes)
            raise
        except (StorageError, ProvisionError, GuestError, OSError) as error:
            message = f'resize volume "{name}" by resizer "{self._backend.provisioner}" failed'
            raise _Waiting("VolumeResizeFailed", f"{message}: {describe(error)}") from error
        await self._set_capacity(claim, volume, resized)
        status = provision_plan.grown_status(claim, resized)
        await self._client.patch(Claim, key_of(claim), status, subresource="status")
        self._recorder.event(claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _set_capacity(self, claim: Claim, volume: Volume, size: int) -> None:
        self._changed()
        capacity = {STORAGE: provision_plan.capacity_text(claim, size)}
        await self._client.patch(Volume, key_of(volume), {"spec": {"capacity": capacity}})

    async def _leave_to_node(self, claim: Claim, volume: Volume, size: int) -> None:
        """Let the machine's host grow a disk that is open there (``shared_volume_expansion``)."""
        if provision_plan.is_pending_on_node(claim):
            if provision_plan.capacity_bytes(volume) < size:  # it has grown meanwhile
                await self._set_capacity(claim, volume, size)
            return
        await self._set_capacity(claim, volume, size)
        status = provision_plan.pending_status(claim, rfc3339(self._clock()))
        await self._client.patch(Claim, key_of(claim), status, subresource="status")
        message = "Require file system resize of volume on node"
        self._recorder.event(claim, "Normal", "FileSystemResizeRequired", message)

    async def _resize(self, claim: Claim, handle: str, size: int, overcommit: int) -> int:
        """Grow a volume, through its machine if that runs, and return the new size.

        Raises _OnAnotherHost if that is a machine of another host.
        """
        try:
            resized = await asyncio.to_thread(
                self._storage.resize, handle, size, overcommit_percent=overcommit
            )
        except InUse as busy:
            # resize has reserved the new capacity
            resized = await asyncio.to_thread(self._storage.get, handle)
            try:
                await self._grow(key_of(claim), resized.capacity_bytes)
            except NoMachineError as error:
                if self._backend.label != SHARED_LABEL:
                    raise GuestError(f"{error}; {busy}") from error
                raise _OnAnotherHost(resized.capacity_bytes) from error
            except GuestError as error:
                raise GuestError(f"{error}; {busy}") from error
        return resized.capacity_bytes

    def _volume_of(self, claim: Claim) -> Volume | None:
        name = claim.spec and claim.spec.volumeName
        return self.volumes.get(Key("", name)) if name else None

    # -------------------------------------------------------------- removing

    async def _reconcile_volume(self, key: Key) -> Result | None:
        volume = self.volumes.get(key)
        if volume is None:
            await self._remove_orphan(key)
            return None
        if not (handle := provision_plan.handle_in(volume, self._id)):
            return None
        if provision_plan.is_to_be_deleted(volume, self._backend.provisioner):
            try:
                await asyncio.to_thread(self._storage.remove, handle)
            except (StorageError, OSError) as error:
                self._recorder.event(volume, "Warning", "VolumeFailedDelete", describe(error))
                return Result(requeue_after=RETRY_SECONDS)
            self._changed()
            self._retry_waiting()
            with suppress(NotFound):
                await self._client.delete(Volume, key, uid=uid_of(volume))
        elif not provision_plan.awaits_finalizer(volume) or not provision_plan.is_retained(volume):
            return None
        await self._remove_finalizer(key)
        return None

    async def _remove_orphan(self, key: Key) -> None:
        """Remove a volume whose claim was deleted before its PersistentVolume was created.

        Retained volumes have no PersistentVolume either, so only a blank one is removed.
        """
        found = await asyncio.to_thread(self._storage.find, key.name)
        if found is None or self.claims.indexed(_handle, key.name):
            return
        try:
            await self._client.get(Volume, key.name)
        except NotFound:
            if await asyncio.to_thread(self._storage.is_blank, key.name):
                with suppress(InUse):
                    await asyncio.to_thread(self._storage.remove, key.name)
                    self._retry_waiting()

    async def _remove_finalizer(self, key: Key) -> None:
        """Remove our finalizer from a volume that is being deleted."""
        with suppress(NotFound):
            volume = await self._client.get(Volume, key.name)
            if not provision_plan.awaits_finalizer(volume):
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
        if _can_be_cloned(new) and not _can_be_cloned(old):  # it may be the source of a waiting one
            self._retry_waiting()

    def _volume_changed(self, _old: Volume | None, new: Volume | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _class_changed(self, _old: StorageClass | None, new: StorageClass | None) -> None:
        if new is not None:
            for claim in self.claims.items():
                if class_name(claim) == key_of(new).name:
                    self.queue.add(key_of(claim))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        """Sync unbound claims whose selected node appeared or was deleted."""
        if old is not None and new is not None:
            return
        name = key_of(new or old or Node()).name
        for claim in self.claims.items():
            if annotations_of(claim).get(SELECTED_NODE) == name and self._volume_of(claim) is None:
                self.queue.add(key_of(claim))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Retry when a pod has ended: its volumes can be cloned then."""
        if self._waiting and (new is None or is_finished(new)) and old is not None:
            self._retry_waiting()

    def _retry_waiting(self) -> None:
        for key in self._waiting:
            self.queue.add(key)


class _Waiting(Exception):
    """A claim cannot be served yet: reason and message of its event.

    is_elsewhere: whether another host may serve it.
    """

    def __init__(self, reason: str, message: str, *, is_elsewhere: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_elsewhere = is_elsewhere


class _OnAnotherHost(Exception):
    """A machine of another host has the disk of a claim open, for which space is reserved."""

    def __init__(self, capacity_bytes: int) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes


def _can_be_cloned(claim: Claim | None) -> bool:
    return (
        claim is not None
        and claim.status is not None
        and claim.status.phase == BOUND
        and is_populated(claim)
    )


def _failed(
    storage_class: StorageClass, error: Exception, *, is_elsewhere: bool = False
) -> _Waiting:
    name = key_of(storage_class).name
    cause = error.strerror if isinstance(error, OSError) else error
    message = f'failed to provision volume with StorageClass "{name}": {cause}'
    return _Waiting("ProvisioningFailed", message, is_elsewhere=is_elsewhere)


def _uses(pod: Pod, claim: str) -> bool:
    """Report whether a pod that has not ended mounts a claim of its namespace."""
    volumes = (pod.spec and pod.spec.volumes) or ()
    return not is_finished(pod) and any(
        each.persistentVolumeClaim is not None and each.persistentVolumeClaim.claimName == claim
        for each in volumes
    )


def _handle(claim: PersistentVolumeClaim) -> tuple[str]:
    return (provision_plan.handle_of(claim),)
