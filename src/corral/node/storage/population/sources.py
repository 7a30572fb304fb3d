"""The sources of a DataVolume: http, registry, pvc, upload and blank."""

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from lightkube.models.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret

from corral.aio import own_thread
from corral.api.errors import NotFound
from corral.api.images import pull_policy
from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datavolume import ClaimCopy, HttpSource, RegistrySource
from corral.api.object import Key
from corral.client.client import Client
from corral.node.host.destinations import Destinations
from corral.node.images import Credential, ImageError, SecretName
from corral.node.images.authorization import basic
from corral.node.images.image import Image
from corral.node.images.progress import Progress, Report
from corral.node.images.reference import parse
from corral.node.images.store import ImageStore
from corral.node.storage.error import InUse, StorageError
from corral.node.storage.population import http_download
from corral.node.storage.population.content import (
    from_image_error,
    from_os_error,
    make_disk,
    max_bytes,
)
from corral.node.storage.population.error import NO_SPACE, ImageTooLarge, NotReady, PopulationError
from corral.node.storage.population.job import Job
from corral.node.storage.population.other_storages import OtherStorages
from corral.node.storage.population.partial_content import PartialContent, write_sparse
from corral.node.storage.population.upload import Uploads
from corral.node.storage.reflink import reflink
from corral.node.storage.storage import Storage
from corral.node.storage.volume import Format
from corral.reconcile.objects import key_of, uid_of

_USER, _PASSWORD = "accessKeyId", "secretKey"
"""Keys of a Secret with a user and a password (CDI)."""
_COPY_BYTES = 1 << 22
_INTERVAL_SECONDS = 0.1


class ClaimLister(Protocol):
    """Cached claims, with their volumes and pods."""

    def claim(self, key: Key) -> PersistentVolumeClaim | None: ...
    def place_of(self, claim: PersistentVolumeClaim) -> tuple[str, str] | None: ...
    def users_of(self, key: Key) -> list[Pod]: ...


class Sources:
    """Populates volumes from the sources of DataVolumes; each may be interrupted and repeated."""

    def __init__(
        self,
        client: Client,
        storage: Storage,
        images: ImageStore,
        uploads: Uploads,
        lister: ClaimLister,
        *,
        destinations: Destinations,
        others: OtherStorages,
    ) -> None:
        self._client = client
        self._destinations = destinations
        self._storage = storage
        self._images = images
        self._uploads = uploads
        self._lister = lister
        self._others = others

    async def populate(
        self, job: Job, report: Report, ready: Callable[[], Awaitable[None]]
    ) -> None:
        """Populate a job's volume.  Raises PopulationError.

        report: called with progress; ready: called when an upload is accepted.
        """
        source = job.source
        try:
            if source.http is not None:
                await self._http(job, source.http, report)
            elif source.registry is not None:
                await self._registry(job, source.registry, report)
            elif source.pvc is not None:
                await self._copy(job, source.pvc, report)
            elif source.upload is not None:
                await self._upload(job, report, ready)
            elif source.blank is None:
                raise PopulationError("the source of the content is not supported by this version")
        except InUse as error:
            raise NotReady(str(error), reason="InUse") from error
        except StorageError as error:
            raise PopulationError(str(error)) from error
        except ImageError as error:
            raise from_image_error(error) from error
        except OSError as error:
            raise from_os_error(error) from error

    # ----------------------------------------------------------------- sources

    async def _http(self, job: Job, source: HttpSource, report: Report) -> None:
        namespace = job.key.namespace
        headers = [_header(text) for text in source.extra_headers]
        for name in source.secret_extra_headers:
            secret = await self._secret(namespace, name)
            headers += [_header(value.decode(errors="replace")) for value in secret.values()]
        if source.secret_ref:
            secret = await self._secret(namespace, source.secret_ref)
            headers.append(("Authorization", basic(*_user_and_password(secret))))
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
        work = await asyncio.to_thread(self._storage.work_directory, job.handle)
        content = await asyncio.to_thread(
            partial(
                PartialContent,
                work,
                checksum=source.checksum,
                max_bytes=max_bytes(job.capacity),
            )
        )
        if content.record.origin != source.url or not content.record.complete:
            await _download(request, content, report)
        await self._apply(job, content, "the image", report)

    async def _registry(self, job: Job, source: RegistrySource, report: Report) -> None:
        credentials = []
        if source.secret_ref:
            secret = await self._stored_secret(job.key.namespace, source.secret_ref)
            name = SecretName(job.key.namespace, source.secret_ref, uid_of(secret))
            registry = parse(source.image).registry
            credentials.append(Credential(registry, *_user_and_password(_data(secret)), name))
        image = await self._images.ensure(
            source.image,
            policy=pull_policy(source.image),
            credentials=credentials,
            progress=report,
        )
        if image.virtual_size > job.capacity:
            raise ImageTooLarge(image.virtual_size, job.capacity)
        work = await asyncio.to_thread(self._storage.work_directory, job.handle)
        target = work / "copied"
        is_reflink = await asyncio.to_thread(_copy, image, target)
        format_ = _format(image.format)
        await asyncio.to_thread(
            self._storage.populate, job.handle, target, format_, shares_blocks=is_reflink
        )

    def check(self, job: Job) -> None:
        """Raises NotReady if a claim to copy is missing, not populated, or used by a pod."""
        if job.source.pvc is not None:
            self._source(job, job.source.pvc)

    async def _copy(self, job: Job, copied: ClaimCopy, report: Report) -> None:
        source, place = self._source(job, copied)
        storage, handle = place
        if storage == self._storage.id:
            await asyncio.to_thread(self._storage.clone, handle, job.handle)
            return
        work = await asyncio.to_thread(self._storage.work_directory, job.handle)
        file = await self._others.copy(job, source, place, work, report)
        await asyncio.to_thread(self._storage.populate, job.handle, file, "raw")

    def _source(self, job: Job, source: ClaimCopy) -> tuple[Key, tuple[str, str]]:
        """Return the claim to copy, and its place.  Raises NotReady."""
        key = Key(source.namespace or job.key.namespace, source.name)
        claim = self._lister.claim(key)
        if claim is None:
            raise NotReady(f"The source pvc {key.name} doesn't exist", reason="CloneWithoutSource")
        for pod in self._lister.users_of(key):
            raise NotReady(
                f"pod {key_of(pod)} using PersistentVolumeClaim {key.name}",
                reason="CloneSourceInUse",
            )
        place = self._lister.place_of(claim)
        if place is None or not population.is_populated(claim):
            raise NotReady("The source PVC is not fully imported", reason="ImportPVCNotReady")
        return key, place

    async def _upload(self, job: Job, report: Report, ready: Callable[[], Awaitable[None]]) -> None:
        work = await asyncio.to_thread(self._storage.work_directory, job.handle)
        content = await asyncio.to_thread(
            partial(PartialContent, work, max_bytes=max_bytes(job.capacity))
        )
        if content.record.complete:
            await self._apply_upload(job, content, report)
            return
        async with self._uploads.accept(job.uid, content) as upload:
            await ready()
            await upload.received.wait()
            await self._apply_upload(job, content, report)
            upload.failure.set_result("")

    # ------------------------------------------------------------------- parts

    async def _apply_upload(self, job: Job, content: PartialContent, report: Report) -> None:
        """Apply an upload; discard it on any error, which its client gets and may act upon."""
        try:
            await self._apply(job, content, "the upload", report)
        except PopulationError:
            await asyncio.to_thread(content.discard)
            raise

    async def _apply(self, job: Job, content: PartialContent, name: str, report: Report) -> None:
        """Convert complete content to a disk and make it the volume's.

        Invalid content is discarded, so that the next attempt downloads a possibly corrected file.
        """
        try:
            disk, format_ = await make_disk(content.path, job.capacity, name, report)
        except PopulationError as error:
            if error.reason != NO_SPACE and not isinstance(error, ImageTooLarge):
                await asyncio.to_thread(content.discard)
            raise
        try:
            await asyncio.to_thread(self._storage.populate, job.handle, disk, format_)
        except StorageError as error:
            raise PopulationError(str(error)) from error

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return _data(await self._stored_secret(namespace, name))

    async def _stored_secret(self, namespace: str, name: str) -> Secret:
        try:
            return await self._client.get(Secret, name, namespace)
        except NotFound:
            raise PopulationError(f'Secret "{name}" not found', reason="SecretNotFound") from None

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, bytes]:
        try:
            config = await self._client.get(ConfigMap, name, namespace)
        except NotFound:
            raise PopulationError(
                f'ConfigMap "{name}" not found', reason="ConfigMapNotFound"
            ) from None
        return {key: value.encode() for key, value in (config.data or {}).items()}


def _data(secret: Secret) -> Mapping[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}


def _user_and_password(secret: Mapping[str, bytes]) -> tuple[str, str]:
    """Return the user and password of a Secret; a missing one is empty."""
    return (
        secret.get(_USER, b"").decode(errors="replace"),
        secret.get(_PASSWORD, b"").decode(errors="replace"),
    )


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.strip().partition(":")
    if not mark or not name or any(letter in text.strip() for letter in "\r\n\0"):
        raise PopulationError('an extra header is not of the form "Name: value"')
    return name.strip(), value.strip()


def _format(text: str) -> Format:
    return "qcow2" if text == "qcow2" else "raw"


async def _download(
    request: http_download.Request, content: PartialContent, report: Report
) -> None:
    """Download in a thread; on cancellation, wait until the thread has closed the content."""
    loop = asyncio.get_running_loop()
    stop = http_download.Stop()
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = loop.time()
        if done == total or now - last >= _INTERVAL_SECONDS:
            last = now
            loop.call_soon_threadsafe(report, Progress("download", done, total))

    # A thread of its own: a slow server must not occupy one of the shared pool.
    task = own_thread(http_download.fetch, request, content, progress, stop)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait({task})
        raise


def _copy(image: Image, target: Path) -> bool:
    """Copy an image's disk, as a reflink if possible; return whether it is one."""
    target.unlink(missing_ok=True)
    if reflink(image.path, target):
        return True
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with image.path.open("rb") as from_, os.fdopen(os.open(target, flags, 0o600), "wb") as to:
        position, buffer = 0, bytearray(_COPY_BYTES)
        while count := from_.readinto(buffer):
            write_sparse(to.fileno(), memoryview(buffer)[:count], position)
            position += count
        to.truncate(position)
    return False
