"""The populator's controller: populates claims, a few at a time, and reports on the claim."""

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
from corral.api.volume_binding import claim_index, is_finished, storage_of
from corral.failures import describe
from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.images.image import Image
from corral.node.images.progress import Progress
from corral.node.images.reference import refers_to
from corral.node.images.store import ImageStore
from corral.node.storage.population import job as jobs
from corral.node.storage.population.error import NotReady, PopulationError
from corral.node.storage.population.job import Job
from corral.node.storage.population.other_storages import OtherStorages
from corral.node.storage.population.sources import Sources
from corral.node.storage.population.upload import Uploads
from corral.node.storage.provision_plan import handle_in
from corral.node.storage.storage import Storage
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.objects import annotations_of, is_being_deleted, key_of, uid_of
from corral.reconcile.workqueue import WorkQueue

MAX_CONCURRENT = 4
"""Claims that are populated concurrently; those that wait for uploads do not count."""
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 10.0, 300.0
"""Between attempts: doubled each time, as a kubelet restarts CDI's importer pods."""
RETRY_SECONDS = 60.0
"""Between checks of a precondition: no event announces that QEMU has closed a disk."""
PROGRESS_SECONDS = 1.0

Claim = PersistentVolumeClaim
log = structlog.get_logger()


class Populator:
    """Populates the claims whose volumes lie in a storage.

    needed: False for hollow machines, which never read their disks: nothing is downloaded then.
    destinations: the addresses that a URL of a tenant may lead to.
    others: copies claims whose volumes lie in other storages.
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
        others: OtherStorages | None = None,
    ) -> None:
        self.queue = WorkQueue[Key]()
        self.claims = context.informers.of(Claim)
        self.volumes = context.informers.of(PersistentVolume)
        self.pods = context.informers.of(Pod)
        self._client = context.client
        self._storage = storage
        self._needed = needed
        self._sources = Sources(
            context.client,
            storage,
            images,
            uploads,
            self,
            destinations=destinations,
            others=others or OtherStorages(),
        )
        self._tasks: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        """By uid of the claim."""
        self._changed: dict[str, asyncio.Event] = {}
        """By uid of the claim: set when the claim that it copies has changed."""
        self._imported: dict[str, asyncio.Event] = {}
        """By uid of the claim: set when the image of its source was imported."""
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._background: Background | None = None
        self.pods.index(claim_index)
        self.claims.handle(self._claim_changed)
        self.volumes.handle(self._volume_changed)
        self.pods.handle(self._pod_changed)
        images.handle(self._image_imported)

    async def run(self) -> None:
        """Populate claims until cancelled; a later run resumes what was interrupted."""
        controller = Controller(
            self.name,
            self._reconcile,
            queue=self.queue,
            sources=(self.claims, self.volumes, self.pods),
        )
        async with Background() as tasks:
            self._background = tasks
            await controller.run()

    # ------------------------------------------------------------------ lister

    def claim(self, key: Key) -> Claim | None:
        """Return the cached claim, if any."""
        return self.claims.get(key)

    def volume_of(self, claim: Claim) -> PersistentVolume | None:
        """Return the PersistentVolume that a claim is bound to, if any."""
        bound = claim.status is not None and claim.status.phase == BOUND
        name = claim.spec.volumeName if claim.spec else None
        return self.volumes.get(Key("", name)) if bound and name else None

    def handle_of(self, claim: Claim) -> str | None:
        """Return the handle of a claim's volume, if it lies in this storage."""
        volume = self.volume_of(claim)
        return (volume and handle_in(volume, self._storage.id)) or None

    def place_of(self, claim: Claim) -> tuple[str, str] | None:
        """Return the storage of a claim's volume, by its id, and the volume's handle there."""
        if (volume := self.volume_of(claim)) is None:
            return None
        storage = storage_of(volume) or self._storage.id
        handle = handle_in(volume, storage)
        return (storage, handle) if handle else None

    def users_of(self, key: Key) -> list[Pod]:
        """Return the pods that use a claim and have not ended."""
        return [pod for pod in self.pods.indexed(claim_index, str(key)) if not is_finished(pod)]

    # -------------------------------------------------------------------- work

    async def _reconcile(self, key: Key) -> None:
        """Start populating a claim, or cancel that for a claim that was deleted or populated."""
        claim = self.claims.get(key)
        uid = uid_of(claim) if claim is not None else ""
        desired = (
            claim is not None and not is_being_deleted(claim) and not population.is_populated(claim)
        )
        for other, (job, task) in list(self._tasks.items()):
            if job.key == key and not (desired and other == uid):
                task.cancel()
        if claim is None or not desired or uid in self._tasks:
            return
        if annotations_of(claim).get(population.PHASE) == population.FAILED:
            return
        handle = self.handle_of(claim)
        stored = await asyncio.to_thread(self._storage.find, handle) if handle else None
        if handle is None or stored is None:
            return
        try:
            request = population.populate_request(claim)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            message = f"{population.POPULATE} cannot be read: {error}"
            change = {population.PHASE: population.FAILED, population.MESSAGE: message}
            await self._client.patch(Claim, key, {"metadata": {"annotations": change}})
            return
        if request is None:
            return
        restarts = annotations_of(claim).get(population.RESTARTS, "")
        job = Job(
            key=key,
            uid=uid,
            handle=handle,
            capacity=stored.capacity_bytes,
            source=request.source,
            restarts=int(restarts) if restarts.isdecimal() and len(restarts) < 10 else 0,
        )
        self._start(job)

    def _start(self, job: Job) -> None:
        if self._background is None or job.uid in self._tasks:
            return
        task = self._background.start(self._populate(job), name=f"populate-{job.key}")
        self._tasks[job.uid] = (job, task)

        def ended(_: object) -> None:
            self._tasks.pop(job.uid, None)
            self._changed.pop(job.uid, None)
            self._imported.pop(job.uid, None)

        task.add_done_callback(ended)

    async def _populate(self, job: Job) -> None:
        """Populate a claim, with retries."""
        imported = self._imported[job.uid] = asyncio.Event()
        try:
            restarts = job.restarts
            while not await self._attempt(job, restarts):
                pause = MIN_BACKOFF_SECONDS * 2 ** min(restarts, 10)
                restarts += 1
                await wait_at_most(imported, min(pause, MAX_BACKOFF_SECONDS))
                imported.clear()
        except (NotFound, Conflict):
            self.queue.add(job.key)  # the claim was deleted, maybe created anew
        except Exception:
            # A defect in one job must not end the others.
            log.exception("population failed", claim=str(job.key))
            self.queue.add_after(job.key, MIN_BACKOFF_SECONDS)

    async def _attempt(self, job: Job, restarts: int) -> bool:
        """Try once, waiting for preconditions; return whether the claim is populated."""
        changed = self._changed[job.uid] = asyncio.Event()
        while True:
            changed.clear()  # before the check, so that a change meanwhile is not missed
            try:
                await self._try_source(job)
            except NotReady as error:
                await self.report(job, jobs.pending(job, error.reason, str(error)))
                await wait_at_most(changed, RETRY_SECONDS)
            except PopulationError as error:
                log.warning("population failed", claim=str(job.key), error=str(error))
                await self.report(job, jobs.failed(job, restarts + 1, error.reason, str(error)))
                return False
            else:
                await self.report(job, jobs.succeeded(job))
                log.info("populated", claim=str(job.key))
                return True

    async def _try_source(self, job: Job) -> None:
        stored = await asyncio.to_thread(self._storage.find, job.handle)
        if stored is not None and stored.populated:
            return  # an earlier run was killed before it reported this
        if job.source.upload is not None:
            await self.report(job, jobs.pending(job, "", ""))
            await self._run_source(job)
            return
        self._sources.check(job)
        if not self._needed:
            return
        if self._slots.locked():
            await self.report(job, jobs.pending(job, "", ""))
        async with self._slots:
            await self.report(job, jobs.running(job))
            await self._run_source(job)

    async def _run_source(self, job: Job) -> None:
        progress = _ProgressReporter(self, job)
        reporting = asyncio.ensure_future(progress.run())
        ready = partial(self.report, job, jobs.running(job, ready=True))
        try:
            await self._sources.populate(job, progress, ready)
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})

    async def report(self, job: Job, change: Document) -> None:
        """Patch a job's claim, with retries.  Raises NotFound and Conflict if it was replaced."""
        pause = PROGRESS_SECONDS
        while True:
            try:
                await self._client.patch(Claim, job.key, change)
            except (NotFound, Conflict):
                raise
            except (ApiError, TimeoutError) as error:
                log.warning("cannot patch the claim", claim=str(job.key), error=describe(error))
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
        """Retry at once the jobs that failed because their image was missing."""
        for uid, imported in self._imported.items():
            source = self._tasks[uid][0].source.registry
            if source is not None and refers_to(source.image, image.reference):
                imported.set()

    def _wake(self, key: Key) -> None:
        """Let the jobs that copy a claim check it again."""
        for uid, changed in self._changed.items():
            if uid in self._tasks and _is_copied(key, self._tasks[uid][0]):
                changed.set()


def _is_copied(key: Key, job: Job) -> bool:
    """Report whether a job copies the claim of that name."""
    source = job.source.pvc
    return source is not None and key == Key(source.namespace or job.key.namespace, source.name)


class _ProgressReporter:
    """Writes progress to the claim, at most once a second and only when it has changed."""

    def __init__(self, populator: Populator, job: Job) -> None:
        self._populator = populator
        self._job = job
        self._latest: str | None = None
        self._changed = asyncio.Event()

    def __call__(self, progress: Progress) -> None:
        latest = jobs.percent(progress) if progress.stage == "download" else None
        if latest is not None and latest != self._latest:
            self._latest = latest
            self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            change = jobs.annotate(self._job, **{population.PROGRESS: self._latest})
            with suppress(NotFound, Conflict):
                await self._populator.report(self._job, change)
            await asyncio.sleep(PROGRESS_SECONDS)
