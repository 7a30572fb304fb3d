"""How content comes into a volume: one way for each source of a DataVolume."""

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from lightkube.models.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret

from corral.aio import apart
from corral.api.errors import NotFound
from corral.api.images import pull_policy
from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datavolume import ClaimCopy, HttpSource, RegistrySource
from corral.api.object import Key
from corral.client.client import Client
from corral.node.host.destinations import Destinations
from corral.node.images import Credential, ImageError, SecretName
from corral.node.images.image import Image
from corral.node.images.progress import Progress, Report
from corral.node.images.reference import parse
from corral.node.images.store import ImageStore
from corral.node.storage.error import InUse, StorageError
from corral.node.storage.population import http_download
from corral.node.storage.population.content import make_disk, most_bytes, of_disk, of_image
from corral.node.storage.population.error import NO_ROOM, NotFilled, TooLarge, Waits
from corral.node.storage.population.job import Job
from corral.node.storage.population.partial_content import Part, write_sparse
from corral.node.storage.population.upload import Uploads
from corral.node.storage.reflink import reflink
from corral.node.storage.storage import Storage
from corral.node.storage.volume import Format
from corral.reconcile.objects import key_of, uid_of

_USER, _PASSWORD = "accessKeyId", "secretKey"
"""Keys of a Secret with a name and a password (CDI)."""
_COPIED = 1 << 22
_INTERVAL_SECONDS = 0.1


class Present(Protocol):
    """What is known of the cluster's objects at the moment."""

    def claim(self, key: Key) -> PersistentVolumeClaim | None: ...
    def handle_of(self, claim: PersistentVolumeClaim) -> str | None: ...
    def users_of(self, key: Key) -> list[Pod]: ...


class Ways:
    """Fills volumes.

    Every way may be cut and taken again, and raises NotFilled; ``ready`` is called when an upload
    is waited for.
    """

    def __init__(
        self,
        client: Client,
        storage: Storage,
        images: ImageStore,
        uploads: Uploads,
        present: Present,
        *,
        destinations: Destinations,
    ) -> None:
        self._client = client
        self._destinations = destinations
        self._storage = storage
        self._images = images
        self._uploads = uploads
        self._present = present

    async def fill(self, job: Job, report: Report, ready: Callable[[], Awaitable[None]]) -> None:
        """Give a volume its content."""
        source = job.wish.source
        try:
            if source.http is not None:
                await self._http(job, source.http, report)
            elif source.registry is not None:
                await self._registry(job, source.registry, report)
            elif source.pvc is not None:
                await self._copy(job, source.pvc)
            elif source.upload is not None:
                await self._upload(job, report, ready)
            elif source.blank is None:
                raise NotFilled("the source of the content is not supported by this version")
        except InUse as error:
            raise Waits(str(error), reason="InUse") from error
        except StorageError as error:
            raise NotFilled(str(error)) from error
        except ImageError as error:
            raise of_image(error) from error
        except OSError as error:
            raise of_disk(error) from error

    # ----------------------------------------------------------------- sources

    async def _http(self, job: Job, source: HttpSource, report: Report) -> None:
        namespace = job.key.namespace
        headers = [_header(text) for text in source.extra_headers]
        for name in source.secret_extra_headers:
            secret = await self._secret(namespace, name)
            headers += [_header(value.decode(errors="replace")) for value in secret.values()]
        if source.secret_ref:
            headers.append(
                http_download.basic(*_pair(await self._secret(namespace, source.secret_ref)))
            )
        authorities = ""
        if source.cert_config_map:
            config = await self._config_map(namespace, source.cert_config_map)
            authorities = http_download.authorities_of(config)
        request = http_download.Request(
            url=source.url,
            headers=headers,
            authorities=authorities,
            destinations=self._destinations,
        )
        work = await asyncio.to_thread(self._storage.workplace, job.handle)
        most = most_bytes(job.capacity)
        content = await asyncio.to_thread(partial(Part, work, checksum=source.checksum, most=most))
        if content.record.origin != source.url or not content.record.whole:
            await _fetched(request, content, report)
        await self._adopt(job, content, "the image", report)

    async def _registry(self, job: Job, source: RegistrySource, report: Report) -> None:
        credentials = []
        if source.secret_ref:
            secret = await self._stored_secret(job.key.namespace, source.secret_ref)
            name = SecretName(job.key.namespace, source.secret_ref, uid_of(secret))
            registry = parse(source.image).registry
            credentials.append(Credential(registry, *_pair(_content(secret)), name))
        image = await self._images.ensure(
            source.image,
            policy=pull_policy(source.image),
            credentials=credentials,
            progress=report,
        )
        if image.virtual_size > job.capacity:
            raise TooLarge(image.virtual_size, job.capacity)
        work = await asyncio.to_thread(self._storage.workplace, job.handle)
        target = work / "copied"
        shared = await asyncio.to_thread(_copy, image, target)
        format_ = _format(image.format)
        await asyncio.to_thread(
            self._storage.adopt, job.handle, target, format_, shares_blocks=shared
        )

    def check(self, job: Job) -> None:
        """Raises Waits where filling cannot begin yet: a claim to copy must be there, at rest."""
        if job.wish.source.pvc is not None:
            self._copied(job, job.wish.source.pvc)

    async def _copy(self, job: Job, source: ClaimCopy) -> None:
        await asyncio.to_thread(self._storage.clone, self._copied(job, source), job.handle)

    def _copied(self, job: Job, source: ClaimCopy) -> str:
        """The handle of the volume to copy."""
        key = Key(source.namespace or job.key.namespace, source.name)
        claim = self._present.claim(key)
        if claim is None:
            raise Waits(f"The source pvc {key.name} doesn't exist", reason="CloneWithoutSource")
        for pod in self._present.users_of(key):
            raise Waits(
                f"pod {key_of(pod)} using PersistentVolumeClaim {key.name}",
                reason="CloneSourceInUse",
            )
        handle = self._present.handle_of(claim)
        if handle is None or not population.is_populated(claim):
            raise Waits("The source PVC is not fully imported", reason="ImportPVCNotReady")
        return handle

    async def _upload(self, job: Job, report: Report, ready: Callable[[], Awaitable[None]]) -> None:
        work = await asyncio.to_thread(self._storage.workplace, job.handle)
        content = await asyncio.to_thread(partial(Part, work, most=most_bytes(job.capacity)))
        if content.record.whole:
            await self._adopt_upload(job, content, report)
            return
        async with self._uploads.waiting(job.uid, content) as slot:
            await ready()
            await slot.arrived.wait()
            await self._adopt_upload(job, content, report)
            slot.outcome.set_result("")

    # ------------------------------------------------------------------- parts

    async def _adopt_upload(self, job: Job, content: Part, report: Report) -> None:
        """Adopt it; its client was told what comes of it, so that nothing is kept for later."""
        try:
            await self._adopt(job, content, "the upload", report)
        except NotFilled:
            await asyncio.to_thread(content.discard)
            raise

    async def _adopt(self, job: Job, content: Part, name: str, report: Report) -> None:
        """Make what has arrived the volume's disk.

        What is no disk is forgotten: the next try fetches it again, which may be mended by then.
        """
        try:
            disk, format_ = await make_disk(content.path, job.capacity, name, report)
        except NotFilled as error:
            if error.reason != NO_ROOM and not isinstance(error, TooLarge):
                await asyncio.to_thread(content.discard)
            raise
        try:
            await asyncio.to_thread(self._storage.adopt, job.handle, disk, format_)
        except StorageError as error:
            raise NotFilled(str(error)) from error

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return _content(await self._stored_secret(namespace, name))

    async def _stored_secret(self, namespace: str, name: str) -> Secret:
        try:
            return await self._client.get(Secret, name, namespace)
        except NotFound:
            raise NotFilled(f'Secret "{name}" not found', reason="SecretNotFound") from None

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        try:
            config = await self._client.get(ConfigMap, name, namespace)
        except NotFound:
            raise NotFilled(f'ConfigMap "{name}" not found', reason="ConfigMapNotFound") from None
        return {key: value.encode() for key, value in (config.data or {}).items()}


def _content(secret: Secret) -> Mapping[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}


def _pair(secret: Mapping[str, bytes]) -> tuple[str, str]:
    """A name and a password; what a Secret does not hold is empty."""
    return (
        secret.get(_USER, b"").decode(errors="replace"),
        secret.get(_PASSWORD, b"").decode(errors="replace"),
    )


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.strip().partition(":")
    if not mark or not name or any(letter in text.strip() for letter in "\r\n\0"):
        raise NotFilled('an extra header is not of the form "Name: value"')
    return name.strip(), value.strip()


def _format(text: str) -> Format:
    return "qcow2" if text == "qcow2" else "raw"


async def _fetched(request: http_download.Request, content: Part, report: Report) -> None:
    """Fetch in a thread; who is cancelled waits until that has let go of the part."""
    loop = asyncio.get_running_loop()
    stop = http_download.Stop()
    last = 0.0

    def told(done: int, total: int) -> None:
        nonlocal last
        now = loop.time()
        if done == total or now - last >= _INTERVAL_SECONDS:
            last = now
            loop.call_soon_threadsafe(report, Progress("download", done, total))

    # A thread of its own: a slow server would keep one from all who need one for a moment.
    task = apart(http_download.fetch, request, content, told, stop)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait({task})
        raise


def _copy(image: Image, target: Path) -> bool:
    """Copy an image's disk; answers whether they share blocks, as where the file system can."""
    target.unlink(missing_ok=True)
    if reflink(image.path, target):
        return True
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with image.path.open("rb") as from_, os.fdopen(os.open(target, flags, 0o600), "wb") as to:
        position, buffer = 0, bytearray(_COPIED)
        while count := from_.readinto(buffer):
            write_sparse(to.fileno(), memoryview(buffer)[:count], position)
            position += count
        to.truncate(position)
    return False
