"""The loop that brings claims and volumes together, and says how far each of them is."""

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
    USED_BY,
    claim_index,
    claim_of,
    claims_of,
    is_finished,
    is_free,
    node_of,
    reserve,
)
from corral.cluster.persistent_volumes import binding
from corral.cluster.persistent_volumes.binding import Surroundings, Told
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller, Result
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, uid_of, version_of
from corral.reconcile.workqueue import WorkQueue

NAME = "persistentvolume-controller"
PATIENCE_SECONDS = 300.0
"""What a claim waits for is told again after this time: events do not stay for ever."""

Claim = PersistentVolumeClaim
Volume = PersistentVolume


def controller(context: ControllerContext) -> Controller[Key]:
    """The controller that gives claims their volumes."""
    loop = Binder(context)
    return Controller(
        "claims",
        loop.reconcile,
        queue=loop.queue,
        sources=(loop.claims, loop.volumes, loop.classes, loop.pods),
    )


class Binder:
    """Claims, volumes and what decides about them.  Keys without a namespace are volumes'."""

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
        self._told: dict[Key, tuple[str, Told, float]] = {}
        """By claim or volume: its uid, the last event about it, and when it was told."""
        self.claims.index("volume", lambda claim: filter(None, (_volume_of(claim),)))
        self.claims.index("unbound", _unbound_index)
        self.volumes.index("class", lambda volume: (class_name(volume) or "",))
        self.volumes.index("claim", lambda volume: map(str, _claim_keys(volume)))
        self.pods.index(USED_BY, claim_index)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.classes.handle(self._class_changed)
        self.pods.handle(self._pod_changed)

    async def reconcile(self, key: Key) -> Result | None:
        """Bring a claim, or a volume, one step further."""
        if not key.namespace:
            await self._settle_volume(key)
            return None
        claim = self.claims.get(key)
        if claim is None or (
            is_being_deleted(claim) and BIND_COMPLETED not in annotations_of(claim)
        ):
            self._told.pop(key, None)
            return None
        return await self._settle_claim(claim)

    # ---------------------------------------------------------------- claims

    async def _settle_claim(self, claim: Claim) -> Result | None:
        key = key_of(claim)
        plan = binding.plan_claim(claim, self._surroundings(claim))
        if plan.storage_class:
            version = {"resourceVersion": version_of(claim)}
            given = {"storageClassName": plan.storage_class}
            await self._client.patch(Claim, key, {"metadata": version, "spec": given})
            return None  # the change is what the next look is for
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
        if plan.told is None:
            self._told.pop(key, None)
            return None
        return Result(requeue_after=self._tell(claim, plan.told))

    def _surroundings(self, claim: Claim) -> Surroundings:
        key, name = str(key_of(claim)), class_name(claim) or ""
        return Surroundings(
            named=self.volumes.get(Key("", _volume_of(claim))),
            candidates=chain(
                self.volumes.indexed("claim", key), self.volumes.indexed("class", name)
            ),
            storage_class=self.classes.get(Key("", name)),
            default_class=self._default_class(),
            consumers=[
                key_of(pod).name
                for pod in self.pods.indexed(USED_BY, key)
                if not (node_of(pod) or is_finished(pod))
            ],
        )

    async def _bind(self, claim: Claim, volume: Volume) -> Claim:
        """Let both name each other; every step may have been done before."""
        if (patch := reserve(volume, claim)) is not None:
            volume = await self._client.patch(Volume, key_of(volume), patch)
        if (patch := binding.take(claim, volume)) is not None:
            claim = await self._client.patch(Claim, key_of(claim), patch)
        return claim

    def _default_class(self) -> str:
        found = default_class(self.classes.items())
        return "" if found is None else key_of(found).name

    # --------------------------------------------------------------- volumes

    async def _settle_volume(self, key: Key) -> None:
        volume = self.volumes.get(key)
        if volume is None:
            self._told.pop(key, None)
            return
        claim = next(map(self.claims.get, _claim_keys(volume)), None)
        plan = binding.plan_volume(volume, claim)
        if plan.phase not in (AVAILABLE, BOUND) and claim is None and await self._exists(volume):
            return  # the cache has yet to show the claim
        if plan.unbind:
            volume = await self._client.patch(Volume, key, binding.unreserve(volume))
        why = plan.told.message if plan.told is not None else _message(volume, plan.phase)
        status = binding.volume_status(volume, plan.phase, self._clock(), why)
        if status is not None:
            volume = await self._client.patch(Volume, key, status, subresource="status")
        if plan.told is not None:
            self._tell(volume, plan.told)

    async def _exists(self, volume: Volume) -> bool:
        """Whether the claim of a volume is there, as the server knows it."""
        (key,) = _claim_keys(volume)
        try:
            claim = await self._client.get(Claim, key.name, key.namespace)
        except NotFound:
            return False
        named = claim_of(volume)
        return named is not None and named.uid == uid_of(claim)

    # --------------------------------------------------------------- telling

    def _tell(self, about: Claim | Volume, told: Told) -> float:
        """Tell what is news; answers the seconds after which it is told again."""
        key, now = key_of(about), self._monotonic()
        uid, last, since = self._told.get(key, ("", None, now))
        if (uid, last) != (uid_of(about), told) or now - since >= PATIENCE_SECONDS:
            self._recorder.event(about, *told)
            self._told[key] = (uid_of(about), told, now)
            return PATIENCE_SECONDS
        return PATIENCE_SECONDS - (now - since)

    # --------------------------------------------------------------- changes

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        self.queue.add(key)
        for volume in self.volumes.indexed("claim", str(key)):
            self.queue.add(key_of(volume))

    def _volume_changed(self, old: Volume | None, new: Volume | None) -> None:
        changed = new or old
        assert changed is not None
        key = key_of(changed)
        self.queue.add(key)
        for claim in self.claims.indexed("volume", key.name):
            self.queue.add(key_of(claim))
        for each in filter(None, (old, new)):
            for claimed in _claim_keys(each):
                self.queue.add(claimed)
        if new is not None and is_free(new) and not (old is not None and is_free(old)):
            self._wake(class_name(new) or "")

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        changed = new or old
        assert changed is not None
        self._wake(key_of(changed).name)
        if new is not None and is_default(annotations_of(new)):
            self._wake("")

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if old is not None and new is not None and node_of(old) == node_of(new):
            return
        for key in claims_of(pod):
            claim = self.claims.get(key)
            if claim is not None and BIND_COMPLETED not in annotations_of(claim):
                self.queue.add(key)

    def _wake(self, name: str) -> None:
        for claim in self.claims.indexed("unbound", name):
            self.queue.add(key_of(claim))


def _volume_of(claim: Claim) -> str:
    return (claim.spec and claim.spec.volumeName) or ""


def _claim_keys(volume: Volume) -> Iterator[Key]:
    """The claim that a volume names, if it does."""
    named = claim_of(volume)
    if named is not None and named.name:
        yield Key(named.namespace or "", named.name)


def _unbound_index(claim: Claim) -> Iterable[str]:
    """Claims that wait for a volume, by their class."""
    return () if BIND_COMPLETED in annotations_of(claim) else (class_name(claim) or "",)


def _message(volume: Volume, phase: str) -> str:
    """What a volume says of itself; it stays for as long as its phase."""
    status = volume.status
    return (status.message or "") if status is not None and status.phase == phase else ""
