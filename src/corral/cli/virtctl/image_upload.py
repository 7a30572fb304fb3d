"""``corral image-upload``: uploads a local disk into a DataVolume or a claim."""

import asyncio
import os
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

import click
from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import NotFound
from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.cdiconfig import NAME, CDIConfig
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.kinds.cdi.uploadtoken import UploadTokenRequest
from corral.api.object import Key
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.output import ProgressLine, size as format_size
from corral.cli.session import Session
from corral.cli.virtctl.upload_options import UploadOptions, document_for, read
from corral.client import upload
from corral.client.client import Client
from corral.client.decoding import Bookmark, WatchEvent
from corral.reconcile.objects import annotations_of

_PROCESSING_SECONDS: Final = 24 * 3600.0
_RETRY_SECONDS: Final = 0.05
_BAR: Final = 30

Claim = PersistentVolumeClaim


@click.command(
    "image-upload",
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral image-upload dv fedora --size=10Gi --image-path=fedora.qcow2\n"
    "  corral image-upload pvc fedora --no-create --image-path=fedora.qcow2",
)
@click.argument("arguments", metavar="dv|pvc NAME", nargs=-1)
@click.option("--image-path", type=click.Path(path_type=Path), help="The local disk.")
@click.option("--archive-path", default="", help="Not supported: machines have disks.")
@click.option("--size", default="", help="Size of what is created (10Gi, 500Mi).")
@click.option("--storage-class", default="", help="Storage class.  [default: the default class]")
@click.option("--access-mode", default="", help="ReadWriteOnce or ReadWriteMany.")
@click.option("--volume-mode", default="", help="block or filesystem.")
@click.option("--block-volume", is_flag=True, help="The same as --volume-mode block.")
@click.option("--no-create", is_flag=True, help="Upload into what is there already.")
@click.option("--force-bind", is_flag=True, help="Bind the claim before a machine uses it.")
@click.option("--uploadproxy-url", default="", help="Where to upload.  [default: CDIConfig's]")
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
@click.option(
    "--wait-secs", type=click.IntRange(0), metavar="SECONDS", default=300, show_default=True,
    help="Seconds to wait until uploads are taken.",
)  # fmt: skip
@click.option(
    "--retry",
    type=click.IntRange(1),
    metavar="NUMBER",
    default=5,
    show_default=True,
    help="Attempts at the upload.",
)
@click.option("--datasource", is_flag=True, help="Create a DataSource of the same name, too.")
@click.option("--default-instancetype", default="", help="Instance type for machines of it.")
@click.option("--default-instancetype-kind", default="", help="Kind of that instance type.")
@click.option("--default-preference", default="", help="Preference for machines of it.")
@click.option("--default-preference-kind", default="", help="Kind of that preference.")
@click.option("--pvc-name", default="", help="Deprecated: write pvc NAME.")
@options.session
def image_upload(*, session: Session, arguments: tuple[str, ...], **flags: Any) -> None:
    """Upload a disk into a DataVolume or a PersistentVolumeClaim.

    Raw and qcow2 are taken, compressed with gzip, xz, zstd or bzip2, or not.
    """
    request = read(arguments, flags)
    image = request.image
    try:
        file = image.open("rb")
    except OSError as error:
        raise Problem(f"failed to open image file: {image}: {error.strerror}") from error
    with file, session.api_errors():
        asyncio.run(_upload(session, request, flags, file))


async def _upload(
    session: Session, request: UploadOptions, flags: dict[str, Any], file: BinaryIO
) -> None:
    key = Key(session.namespace, request.name)
    async with session.client() as client:
        await _ensure_target(client, key, request, create=not flags["no_create"])
        claim = await _wait_ready(client, key, request, flags["wait_secs"])
        url = flags["uploadproxy_url"] or await _proxy_url(client)
        url = url if "://" in url else f"https://{url}"
        click.echo(f"Uploading data to {url}")
        tls = _tls(session, url, insecure=flags["insecure"])
        try:
            await _send(partial(_target, client, key, url, tls), file, flags["retry"])
        except Problem as problem:
            hint = _hint(request.kind, key, problem.message)
            raise Problem(problem.message, hint) from problem
        if flags["datasource"]:
            await _ensure_data_source(client, key)
        click.echo(
            "Uploading data completed successfully, waiting for processing to complete, you can "
            "hit ctrl-c without interrupting the progress"
        )
        failures = annotations_of(claim).get(population.RESTARTS, "0")
        await _wait_processed(client, key, request.kind, failures)
        click.echo(f"Uploading {request.image} completed successfully")


async def _ensure_target(client: Client, key: Key, request: UploadOptions, *, create: bool) -> None:
    """Find or create the claim to upload into.  Raises Problem with virtctl's messages."""
    try:
        claim = await client.get(Claim, key.name, key.namespace)
    except NotFound as error:
        click.echo(f"PVC {key} not found")
        if not create:
            raise Problem(str(error)) from error
        if not request.size:
            raise Problem(
                "when creating a resource, the size must be specified", "Name it with --size."
            ) from error
        await _create(client, key, request)
        return
    await _check(client, key, claim, request, create=create)
    if population.UPLOAD_TARGET not in annotations_of(claim):
        change = {"metadata": {"annotations": {population.UPLOAD_TARGET: ""}}}
        await client.patch(Claim, key, change)
    click.echo(f"Using existing PVC {key}")


async def _create(client: Client, key: Key, request: UploadOptions) -> None:
    document = document_for(request)
    document["metadata"]["namespace"] = key.namespace
    await client.create(Claim if request.claim_only else DataVolume, document)
    kind = "PersistentVolumeClaim" if request.claim_only else "DataVolume"
    click.echo(f"{kind} {key} created")


async def _check(
    client: Client, key: Key, claim: Claim, request: UploadOptions, *, create: bool
) -> None:
    """Raises Problem if an existing claim does not accept an upload."""
    annotations = annotations_of(claim)
    if not request.claim_only:
        try:
            await client.get(DataVolume, key.name, key.namespace)
        except NotFound:
            message = f"No DataVolume is associated with the existing PVC {key}"
            raise Problem(message, "Write pvc in place of dv.") from None
    if annotations.get(population.PHASE) == population.SUCCEEDED:
        raise Problem(f"PVC {key.name} already successfully imported/cloned/updated")
    if create and population.UPLOAD_TARGET not in annotations:
        raise Problem(
            f"PVC {key.name} not available for upload",
            "To upload into it all the same: --no-create",
        )


async def _wait_ready(client: Client, key: Key, request: UploadOptions, seconds: int) -> Claim:
    """Wait until the claim accepts an upload."""
    waited = False

    async def is_ready(claim: Claim) -> bool:
        nonlocal waited
        if annotations_of(claim).get(population.READY) == "true":
            return True
        if not waited:
            click.echo(f"Waiting for PVC {key.name} upload pod to be ready...")
            waited = True
        return False

    try:
        async with asyncio.timeout(seconds):
            claim = await _until(client, key, is_ready)
    except TimeoutError:
        raise Problem(
            f"timed out after {seconds} s waiting for PVC {key.name} to take an upload",
            f"kubectl describe {request.kind} {key.name} -n {key.namespace} says why.",
        ) from None
    if waited:
        click.echo("Pod now ready")
    return claim


def _hint(kind: str, key: Key, message: str) -> str:
    """Return the hint for a rejected upload; ``kind`` is dv or pvc."""
    again = f"kubectl delete {kind} {key.name} -n {key.namespace}, and upload again with"
    if too_large := re.search(r"Virtual image size (\d+) is larger", message):
        return f"{again} --size={-(-int(too_large[1]) // 2**20)}Mi or more."
    if "more than the claim can hold" in message:
        return f"{again} a larger --size."
    return "Correct that, and upload again with --no-create."


async def _wait_processed(client: Client, key: Key, kind: str, failures: str) -> None:
    """Wait until the claim is populated.  Raises Problem for content that is no valid disk."""

    async def is_processed(claim: Claim) -> bool:
        annotations = annotations_of(claim)
        if annotations.get(population.RESTARTS, "0") not in ("0", failures):
            message = str(annotations.get(population.MESSAGE))
            raise Problem(f"the upload was rejected: {message}", _hint(kind, key, message))
        return annotations.get(population.PHASE) == population.SUCCEEDED

    try:
        async with asyncio.timeout(_PROCESSING_SECONDS):
            await _until(client, key, is_processed)
    except TimeoutError:
        raise Problem(
            f"timed out after {_PROCESSING_SECONDS:.0f} s waiting for PVC {key.name} to be filled",
            f"kubectl describe pvc {key.name} -n {key.namespace} says how far it is.",
        ) from None
    click.echo("Processing completed successfully")


async def _until(client: Client, key: Key, condition: Callable[[Claim], Awaitable[bool]]) -> Claim:
    """Watch a claim until a condition holds."""
    fields = f"metadata.name={key.name}"
    listed = await client.list(Claim, key.namespace, fields=fields)
    for claim in listed.items:
        if await condition(claim):
            return claim
    watch = client.watch(
        Claim, key.namespace, resource_version=listed.resource_version, fields=fields
    )
    async with aclosing(watch) as events:
        async for event in events:
            if not isinstance(event, Bookmark) and event.type == "DELETED":
                raise Problem(f"PVC {key.name} was deleted meanwhile")
            if isinstance(event, WatchEvent) and await condition(event.object):
                return event.object
    return await _until(client, key, condition)


async def _proxy_url(client: Client) -> str:
    config = await client.get(CDIConfig, NAME)
    url = config.spec.upload_proxy_url_override or config.status.upload_proxy_url
    if not url:
        raise Problem("uploadproxy URL not found", "Name it with --uploadproxy-url.")
    return url


def _tls(session: Session, url: str, *, insecure: bool) -> ssl.SSLContext:
    """Return the TLS settings: the cluster's CA is trusted for the API server's address only."""
    if insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if urlsplit(url).netloc == urlsplit(session.config.server).netloc:
        return session.config.tls()
    return ssl.create_default_context()


async def _target(client: Client, key: Key, url: str, tls: ssl.SSLContext) -> upload.Target:
    """Return the upload's URL with a fresh token."""
    request = {
        "metadata": {"name": "token-for-virtctl", "namespace": key.namespace},
        "spec": {"pvcName": key.name},
    }
    response = await client.create(UploadTokenRequest, request)
    return upload.Target(url=url, token=response.status.token, tls=tls)


async def _send(
    target_of: Callable[[], Awaitable[upload.Target]], file: BinaryIO, attempts: int
) -> None:
    size = os.fstat(file.fileno()).st_size
    failures = 0
    while True:
        target = await target_of()
        path = await asyncio.to_thread(upload.upload_path, target)
        file.seek(0)
        bar = _Bar(size)
        try:
            await asyncio.to_thread(upload.send, target, path, file, size, bar.advance)
        except upload.UploadError as error:
            failures += 1
            if failures >= attempts or not error.is_transient:
                message = f"error uploading image after {failures} retries: {error}"
                raise Problem(message) from error
            await asyncio.sleep(failures * _RETRY_SECONDS)
        else:
            return
        finally:
            bar.end()


async def _ensure_data_source(client: Client, key: Key) -> None:
    """Create or update the DataSource of the claim's name."""
    spec = {"source": {"pvc": {"name": key.name, "namespace": key.namespace}}}
    try:
        await client.patch(DataSource, key, {"spec": spec})
    except NotFound:
        metadata = {"name": key.name, "namespace": key.namespace}
        await client.create(DataSource, {"metadata": metadata, "spec": spec})
        click.echo(f"DataSource {key} created")
    else:
        click.echo(f"DataSource {key} updated")


class _Bar:
    """A progress bar on a terminal."""

    def __init__(self, total: int) -> None:
        self._line = ProgressLine()
        self._total = total
        self._done = 0
        self._started = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        part = self._done / self._total if self._total else 1.0
        rate = self._done / max(time.monotonic() - self._started, 0.001)
        filled = int(part * _BAR)
        self._line.show(
            f"{format_size(self._done)} / {format_size(self._total)} "
            f"[{'=' * filled}{'-' * (_BAR - filled)}] {part:.2%} {format_size(rate)}/s"
        )

    def end(self) -> None:
        self._line.clear()
