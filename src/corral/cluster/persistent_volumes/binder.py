"""Controller that binds claims to volumes, and writes the phase of both."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.api.errors import NotFound
from corral.api.kinds.storage.common import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND,
    class_name,
    default_class,
    is_default,
)
from corral.api.object import Key
from corral.api.volume_binding import (
    claim_index,
    claim_of,
    claim_patch,
    claims_of,
    is_finished,
    is_free,
    node_of,
)
from corral.cluster.persistent_volumes import binding
from corral.cluster.persistent_volumes.binding import ClaimInputs, Event
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.indexes import by_class
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

NAME = "persistentvolume-controller"
REPEAT_SECONDS = 300.0
"""Interval after which the last event about a claim is repeated: events expire."""

Claim = PersistentVolumeClaim
Volume = PersistentVolume


def controller(context: ControllerContext) -> Controller[Key]:
    loop = Binder(context)
    return Controller(
        "claims",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.claims, loop.volumes, loop.classes, loop.pods),
    )


class Binder:
    """Caches and state of the controller. Keys without a namespace are those of volumes."""

    def __init__(self, context: ControllerContext) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(Volume)
        self.classes = context.informers.of(StorageClass)
        self.pods = context.informers.of(Pod)
        self._client = context.client
        self._clock = context.clock
        self._monotonic: Callable[[], float] = context.monotonic
        self._recorder = context.recorder(NAME)
        self._events: dict[Key, tuple[str, Event, float]] = {}
        """By claim or volume: its uid, the last event about it, and when it was recorded."""
        self.claims.index(_bound_volume)
        self.claims.index(_unbound_index)
        self.volumes.index(by_class)
        self.volumes.index(_claims_of)
        self.pods.index(claim_index)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.classes.handle(self._class_changed)
        self.pods.handle(self._pod_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Sync a claim, or a volume."""
        if not key.namespace:
            await self._sync_volume(key)
            return None
        claim = self.claims.get(key)
        if claim is None or (
            is_being_deleted(claim) and BIND_COMPLETED not in annotations_of(claim)
        ):
            self._events.pop(key, None)
            return None
        return await self._sync_claim(claim)

    # ---------------------------------------------------------------- claims

    async def _sync_claim(self, claim: Claim) -> Result | None:
        key = key_of(claim)
        plan = binding.plan_claim(claim, self._inputs(claim))
        if plan.storage_class:
            version = {"resourceVersion": version_of(claim)}
            spec = {"storageClassName": plan.storage_class}
            await self._client.patch(Claim, key, {"metadata": version, "spec": spec})
            return None  # the change enqueues the claim
        if plan.phase == BOUND and plan.volume is not None:
            claim = await self._bind(claim, plan.volume)
        elif not plan.annotations.items() <= annotations_of(claim).items():
            metadata = {
                "resourceVersion": version_of(claim),
                "annotations": dict(plan.annotations),
            }
            claim = await self._client.patch(Claim, key, {"metadata": metadata})
        if (status := binding.claim_status(claim, plan.phase, plan.volume)) is not None:
            await self._client.patch(Claim, key, status, subresource="status")
        if plan.event is None:
            self._events.pop(key, None)
            return None
        return Result(requeue_after=self._record(claim, plan.event))

    def _inputs(self, claim: Claim) -> ClaimInputs:
        key, name = str(key_of(claim)), class_name(claim) or ""
        return ClaimInputs(
            named=self.volumes.get(Key("", _volume_of(claim))),
            candidates=chain(
                self.volumes.indexed(_claims_of, key), self.volumes.indexed(by_class, name)
            ),
            storage_class=self.classes.get(Key("", name)),
            default_class=self._default_class(),
            consumers=[
                key_of(pod).name
                for pod in self.pods.indexed(claim_index, key)
                if not (node_of(pod) or is_finished(pod))
            ],
        )

    async def _bind(self, claim: Claim, volume: Volume) -> Claim:
        """Make claim and volume refer to each other; each step may have been done before."""
        if (patch := claim_patch(volume, claim)) is not None:
            volume = await self._client.patch(Volume, key_of(volume), patch)
        if (patch := binding.claim_patch(claim, volume)) is not None:
            claim = await self._client.patch(Claim, key_of(claim), patch)
        return claim

    def _default_class(self) -> str:
        found = default_class(self.classes.items())
        return "" if found is None else key_of(found).name

    # --------------------------------------------------------------- volumes

    async def _sync_volume(self, key: Key) -> None:
        volume = self.volumes.get(key)
        if volume is None:
            self._events.pop(key, None)
            return
        claim = next(map(self.claims.get, _claim_keys(volume)), None)
        plan = binding.plan_volume(volume, claim)
        if plan.phase not in (AVAILABLE, BOUND) and claim is None and await self._exists(volume):
            return  # the cache has yet to show the claim
        if plan.unbind:
            volume = await self._client.patch(Volume, key, binding.unreserve(volume))
        message = plan.event.message if plan.event is not None else _message(volume, plan.phase)
        status = binding.volume_status(volume, plan.phase, self._clock(), message)
        if status is not None:
            volume = await self._client.patch(Volume, key, status, subresource="status")
        if plan.event is not None:
            self._record(volume, plan.event)

    async def _exists(self, volume: Volume) -> bool:
        """Report whether the claim of a volume exists, according to the server."""
        (key,) = _claim_keys(volume)
        try:
            claim = await self._client.get(Claim, key.name, key.namespace)
        except NotFound:
            return False
        named = claim_of(volume)
        return named is not None and named.uid == uid_of(claim)

    # ---------------------------------------------------------------- events

    def _record(self, subject: Claim | Volume, event: Event) -> float:
        """Record an event if it is new or old enough; return the seconds until it is repeated."""
        key, now = key_of(subject), self._monotonic()
        uid, last, since = self._events.get(key, ("", None, now))
        if (uid, last) != (uid_of(subject), event) or now - since >= REPEAT_SECONDS:
            self._recorder.event(subject, *event)
            self._events[key] = (uid_of(subject), event, now)
            return REPEAT_SECONDS
        return REPEAT_SECONDS - (now - since)

    # -------------------------------------------------------- event handlers

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        self.queue.add(key)
        for volume in self.volumes.indexed(_claims_of, str(key)):
            self.queue.add(key_of(volume))

    def _volume_changed(self, old: Volume | None, new: Volume | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        self.queue.add(key)
        for claim in self.claims.indexed(_bound_volume, key.name):
            self.queue.add(key_of(claim))
        for each in filter(None, (old, new)):
            for claimed in _claim_keys(each):
                self.queue.add(claimed)
        if new is not None and is_free(new) and not (old is not None and is_free(old)):
            self._enqueue_unbound(class_name(new) or "")

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        changed = new or old
        assert changed is not None
        self._enqueue_unbound(key_of(changed).name)
        if new is not None and is_default(annotations_of(new)):
            self._enqueue_unbound("")

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if old is not None and new is not None and node_of(old) == node_of(new):
            return
        for key in claims_of(pod):
            claim = self.claims.get(key)
            if claim is not None and BIND_COMPLETED not in annotations_of(claim):
                self.queue.add(key)

    def _enqueue_unbound(self, name: str) -> None:
        for claim in self.claims.indexed(_unbound_index, name):
            self.queue.add(key_of(claim))


def _volume_of(claim: Claim) -> str:
    return (claim.spec and claim.spec.volumeName) or ""


def _claim_keys(volume: Volume) -> Iterator[Key]:
    """Yield the claim that a volume refers to, if it does."""
    named = claim_of(volume)
    if named is not None and named.name:
        yield Key(named.namespace or "", named.name)


def _unbound_index(claim: Claim) -> Iterable[str]:
    """Index unbound claims by class."""
    return () if BIND_COMPLETED in annotations_of(claim) else (class_name(claim) or "",)


def _message(volume: Volume, phase: str) -> str:
    """Return the message in a volume's status; it stays as long as its phase."""
    status = volume.status
    return (status.message or "") if status is not None and status.phase == phase else ""


def _claims_of(volume: PersistentVolume) -> Iterable[str]:
    return map(str, _claim_keys(volume))


def _bound_volume(claim: PersistentVolumeClaim) -> Iterable[str]:
    return filter(None, (_volume_of(claim),))
