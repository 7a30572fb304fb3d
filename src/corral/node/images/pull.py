"""Pulls one disk: the manifest, its layers, and the disk file in them."""

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.node.host.destinations import Destinations
from corral.node.images import credentials as secrets, manifest as manifests
from corral.node.images.access import Access
from corral.node.images.blob import Blob, BlobInUse
from corral.node.images.credentials import Credential
from corral.node.images.error import pull_failed
from corral.node.images.layers import find_disk
from corral.node.images.limits import Limits
from corral.node.images.manifest import Descriptor, Manifest
from corral.node.images.progress import Meter, Progress, Report, in_thread
from corral.node.images.reference import Reference
from corral.node.images.registry import Denied, Registry

_BUSY_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A pull of one disk.

    path: a containerDisk's ``path``.
    blobs: the directory of partial layers.
    target: the file to write the disk to.
    cached: digests of manifests whose disks are stored.
    destinations: allowed addresses of the registry, its token server and redirect targets.
    """

    reference: Reference
    path: str
    credentials: Sequence[Credential]
    blobs: Path
    target: Path
    cached: Collection[str]
    limits: Limits
    destinations: Destinations

    async def run(self, report: Report) -> tuple[str, Access]:
        """Fetch the disk; return the manifest's digest, and the access that the registry granted.

        For a cached digest, nothing is fetched and there is no target.
        """
        report(Progress("download", 0, 0))
        matched = secrets.matching(self.credentials, self.reference) or (None,)
        try:
            async with asyncio.timeout(self.limits.pull_seconds):
                for credential in matched[:-1]:
                    with contextlib.suppress(Denied):
                        return await self._as(credential, report)
                return await self._as(matched[-1], report)
        except TimeoutError as error:
            raise pull_failed(
                f"failed to pull image {str(self.reference)!r}: it took longer than "
                f"{self.limits.pull_seconds} seconds",
                "received layers are kept: the next attempt resumes there",
            ) from error

    async def _as(self, credential: Credential | None, report: Report) -> tuple[str, Access]:
        async with self._registry(credential) as registry:
            digest, manifest = await registry.manifest()
            if digest not in self.cached:
                await self._fetch(registry, manifest, report)
            return digest, Access() if registry.is_anonymous else Access.by(credential)

    def _registry(self, credential: Credential | None) -> Registry:
        return Registry(
            self.reference, credential, limits=self.limits, destinations=self.destinations
        )

    async def _fetch(self, registry: Registry, manifest: Manifest, report: Report) -> None:
        layers = manifests.check_layers(manifest, str(self.reference), self.limits)
        unique = {layer.digest: layer for layer in layers}
        self._check_space(unique.values())
        paths = {digest: self.blobs / self._blob_name(digest) for digest in unique}
        meter = Meter(report, "download", sum(layer.size for layer in unique.values()))
        with contextlib.ExitStack() as stack:
            for digest, layer in sorted(unique.items()):  # lock order: pulls may share layers
                blob = await _open(stack, paths[digest], layer.size)
                meter.advance(blob.received)
                await registry.layer(layer, blob, meter)
            try:
                await self._unpack([paths[layer.digest] for layer in layers], report)
            except asyncio.CancelledError:
                raise  # keep the complete layers for another waiter of this pull
            except BaseException:
                _discard(paths.values())
                raise
            _discard(paths.values())

    def _blob_name(self, digest: str) -> str:
        """Return a layer's file name, with its repository: others may have no access to it."""
        home = f"{self.reference.registry}/{self.reference.repository}"
        return f"{hashlib.sha256(home.encode()).hexdigest()[:16]}-{digest.replace(':', '-')}"

    async def _unpack(self, layers: Sequence[Path], report: Report) -> None:
        meter = Meter(report, "unpack", sum(layer.stat().st_size for layer in layers))
        await in_thread(find_disk, meter, layers, self.path, self.target, self.limits)

    def _check_space(self, layers: Iterable[Descriptor]) -> None:
        total = sum(layer.size for layer in layers)
        free = shutil.disk_usage(self.blobs).free
        if total > free:
            raise pull_failed(
                f"failed to pull image {str(self.reference)!r}: its layers have {total} bytes, "
                f"and {free} are free in {self.blobs}",
                "free some space: corral image ls, corral image rm",
            )


async def _open(stack: contextlib.ExitStack, path: Path, size: int) -> Blob:
    """Open a layer's file, after other pulls of it; the pull's deadline bounds the wait."""
    while True:
        try:
            return stack.enter_context(Blob(path, size))
        except BlobInUse:
            # No event announces that another process releases an flock.
            await asyncio.sleep(_BUSY_SECONDS)


def _discard(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
