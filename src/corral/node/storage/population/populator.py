"""The loop that fills claims: which ones, a few at a time, and what is told of it on the claim."""

import asyncio
from contextlib import suppress
from functools import partial

import msgspec
import structlog
from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod

from corral.aio import Background, wait_at_most
from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.kinds.cdi import population
from corral.api.kinds.storage.common import BOUND
from corral.api.object import Document, Key
from corral.api.volume_binding import USED_BY, claim_index, is_finished
from corral.failures import describe
from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.images.image import Image
from corral.node.images.progress import Progress
from corral.node.images.reference import means
from corral.node.images.store import ImageStore
from corral.node.storage.population import job as jobs
from corral.node.storage.population.error import NotFilled, Waits
from corral.node.storage.population.job import Job
from corral.node.storage.population.sources import Ways
from corral.node.storage.population.upload import Uploads
from corral.node.storage.provision_plan import handle_in
from corral.node.storage.storage import Storage
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

AT_ONCE = 4
"""Claims that are filled at the same time; those that wait for uploads do not count."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
"""Between two attempts: doubled each time, as a kubelet does with CDI's importers."""
PATIENCE_SECONDS = 60.0
"""A claim that waits for another looks again after so long: that no QEMU has the disk any more is
told by nobody."""
TELL_SECONDS = 1.0

Claim = PersistentVolumeClaim
log = structlog.get_logger()


class Fillings:
    """Fills the claims whose volumes a storage keeps.  ``run`` works until cancelled.

    ``needed``: whether machines read their disks at all; what they do not is not fetched.
    ``destinations``: where servers may be that tenants name.
    """

    name = "filling"

    def __init__(
        self,
        context: ControllerContext,
        storage: Storage,
        images: ImageStore,
        uploads: Uploads,
        *,
        needed: bool = True,
        destinations: Destinations = FOR_TENANTS,
    ) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(PersistentVolume)
        self.pods = context.informers.of(Pod)
        self._client = context.client
        self._storage = storage
        self._needed = needed
        self._ways = Ways(context.client, storage, images, uploads, self, destinations=destinations)
        self._tasks: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        """By the claim's uid."""
        self._changed: dict[str, asyncio.Event] = {}
        """By the uid of a claim that is filled: set when the one that it copies has changed."""
        self._imported: dict[str, asyncio.Event] = {}
        """By the same: set when the image that it is filled from has been imported."""
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._background: Background | None = None
        self.pods.index(USED_BY, claim_index)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.pods.handle(self._pod_changed)
        images.handle(self._image_imported)

    async def run(self) -> None:
        """Fill claims until cancelled; what is cut then goes on the next time."""
        controller = Controller(
            self.name,
            self._reconcile,
            queue=self.queue,
            sources=(self.claims, self.volumes, self.pods),
        )
        async with Background() as tasks:
            self._background = tasks
            await controller.run()

    # ----------------------------------------------------------------- present

    def claim(self, key: Key) -> Claim | None:
        """The claim of a name."""
        return self.claims.get(key)

    def volume_of(self, claim: Claim) -> PersistentVolume | None:
        """The volume that a claim is bound to."""
        bound = claim.status is not None and claim.status.phase == BOUND
        name = claim.spec.volumeName if claim.spec else None
        return self.volumes.get(Key("", name)) if bound and name else None

    def handle_of(self, claim: Claim) -> str | None:
        """The handle of a claim's volume, where this storage keeps it."""
        volume = self.volume_of(claim)
        return (volume and handle_in(volume, self._storage.id)) or None

    def users_of(self, key: Key) -> list[Pod]:
        """Pods that have a claim and have not ended."""
        return [pod for pod in self.pods.indexed(USED_BY, str(key)) if not is_finished(pod)]

    # -------------------------------------------------------------------- work

    async def _reconcile(self, key: Key) -> None:
        """Begin to fill a claim that wants it, or break it off where it is wanted no more."""
        claim = self.claims.get(key)
        uid = uid_of(claim) if claim is not None else ""
        wanted = (
            claim is not None and not is_being_deleted(claim) and not population.is_populated(claim)
        )
        for other, (job, task) in list(self._tasks.items()):
            if job.key == key and not (wanted and other == uid):
                task.cancel()
        if claim is None or not wanted or uid in self._tasks:
            return
        if annotations_of(claim).get(population.PHASE) == population.FAILED:
            return
        handle = self.handle_of(claim)
        stored = await asyncio.to_thread(self._storage.find, handle) if handle else None
        if handle is None or stored is None:
            return
        try:
            wish = population.wish_of(claim)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            message = f"{population.WISH} cannot be read: {error}"
            change = {population.PHASE: population.FAILED, population.MESSAGE: message}
            await self._client.patch(Claim, key, {"metadata": {"annotations": change}})
            return
        if wish is None:
            return
        restarts = annotations_of(claim).get(population.RESTARTS, "")
        job = Job(
            key=key,
            uid=uid,
            handle=handle,
            capacity=stored.capacity_bytes,
            wish=wish,
            restarts=int(restarts) if restarts.isdecimal() and len(restarts) < 10 else 0,
        )
        self._start(job)

    def _start(self, job: Job) -> None:
        if self._background is None or job.uid in self._tasks:
            return
        task = self._background.start(self._fill(job), name=f"filling-{job.key}")
        self._tasks[job.uid] = (job, task)

        def ended(_: object) -> None:
            self._tasks.pop(job.uid, None)
            self._changed.pop(job.uid, None)
            self._imported.pop(job.uid, None)

        task.add_done_callback(ended)

    async def _fill(self, job: Job) -> None:
        """Fill one claim, however often it takes."""
        imported = self._imported[job.uid] = asyncio.Event()
        try:
            restarts = job.restarts
            while not await self._attempt(job, restarts):
                pause = FIRST_PAUSE_SECONDS * 2 ** min(restarts, 10)
                restarts += 1
                await wait_at_most(imported, min(pause, LONGEST_PAUSE_SECONDS))
                imported.clear()
        except (NotFound, Conflict):
            self.queue.add(job.key)  # the claim is gone, or another one
        except Exception:
            # The one door: what was not foreseen must not end the other fillings.
            log.exception("filling failed", claim=str(job.key))
            self.queue.add_after(job.key, FIRST_PAUSE_SECONDS)

    async def _attempt(self, job: Job, restarts: int) -> bool:
        """Whether the claim has its content now."""
        changed = self._changed[job.uid] = asyncio.Event()
        while True:
            changed.clear()  # before it is looked, lest what changes meanwhile be missed
            try:
                await self._once(job)
            except Waits as error:
                await self.tell(job, jobs.waiting(job, error.reason, str(error)))
                await wait_at_most(changed, PATIENCE_SECONDS)
            except NotFilled as error:
                log.warning("not filled", claim=str(job.key), error=str(error))
                await self.tell(job, jobs.failed(job, restarts + 1, error.reason, str(error)))
                return False
            else:
                await self.tell(job, jobs.done(job))
                log.info("filled", claim=str(job.key))
                return True

    async def _once(self, job: Job) -> None:
        stored = await asyncio.to_thread(self._storage.find, job.handle)
        if stored is not None and stored.filled:
            return  # the last one was cut before it could say so
        if job.wish.source.upload is not None:
            await self.tell(job, jobs.waiting(job, "", ""))
            await self._work(job)
            return
        self._ways.check(job)
        if not self._needed:
            return
        if self._slots.locked():
            await self.tell(job, jobs.waiting(job, "", ""))
        async with self._slots:
            await self.tell(job, jobs.going(job))
            await self._work(job)

    async def _work(self, job: Job) -> None:
        teller = _Teller(self, job)
        telling = asyncio.ensure_future(teller.run())
        try:
            await self._ways.fill(job, teller, partial(self.tell, job, jobs.going(job, ready=True)))
        finally:
            telling.cancel()
            await asyncio.wait({telling})

    async def tell(self, job: Job, change: Document) -> None:
        """Say something on a claim; raises NotFound and Conflict where it is that one no more."""
        pause = TELL_SECONDS
        while True:
            try:
                await self._client.patch(Claim, job.key, change)
            except (NotFound, Conflict):
                raise
            except (ApiError, TimeoutError) as error:
                log.warning("cannot tell", claim=str(job.key), error=describe(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)
            else:
                return

    # ----------------------------------------------------------------- changes

    def _claim_changed(self, old: Claim | None, new: Claim | None) -> None:
        claim = new or old
        if claim is not None:
            self.queue.add(key_of(claim))
            self._wake(key_of(claim))

    def _volume_changed(self, _old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        bound = new.spec.claimRef if new is not None and new.spec else None
        if bound is not None and bound.name:
            self.queue.add(Key(bound.namespace or "", bound.name))
            self._wake(Key(bound.namespace or "", bound.name))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None:
            for name in claim_index(pod):
                namespace, _, claim = name.partition("/")
                self._wake(Key(namespace, claim))

    def _image_imported(self, image: Image) -> None:
        """Let those try again at once that have failed for want of an image."""
        for uid, imported in self._imported.items():
            source = self._tasks[uid][0].wish.source.registry
            if source is not None and means(source.image, image.reference):
                imported.set()

    def _wake(self, key: Key) -> None:
        """Let those look again that wait for a claim to be copied."""
        for uid, changed in self._changed.items():
            if uid in self._tasks and _is_copied(key, self._tasks[uid][0]):
                changed.set()


def _is_copied(key: Key, job: Job) -> bool:
    """Whether a job copies the claim of that name."""
    source = job.wish.source.pvc
    return source is not None and key == Key(source.namespace or job.key.namespace, source.name)


class _Teller:
    """Tells progress on the claim, at most once a second and only when it has changed."""

    def __init__(self, loop: Fillings, job: Job) -> None:
        self._loop = loop
        self._job = job
        self._latest: str | None = None
        self._news = asyncio.Event()

    def __call__(self, progress: Progress) -> None:
        latest = jobs.percent(progress) if progress.stage == "download" else None
        if latest is not None and latest != self._latest:
            self._latest = latest
            self._news.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            change = jobs.told(self._job, **{population.PROGRESS: self._latest})
            with suppress(NotFound, Conflict):
                await self._loop.tell(self._job, change)
            await asyncio.sleep(TELL_SECONDS)
