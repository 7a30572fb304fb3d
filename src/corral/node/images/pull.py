"""Pulls one disk: manifest, layers, and the file in them."""

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
from corral.node.images.blob import Blob, Busy
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
    """What to pull, and where to.

    path: a containerDisk's ``path``.
    blobs: the directory of layers on their way in.
    target: the file that becomes the disk.
    known: the manifests of disks that are here already.
    destinations: where a registry, and whom it refers to, may be.
    """

    reference: Reference
    path: str
    credentials: Sequence[Credential]
    blobs: Path
    target: Path
    known: Collection[str]
    limits: Limits
    destinations: Destinations

    async def run(self, report: Report) -> tuple[str, Access]:
        """Fetch the disk; answer the manifest's digest, and to whom the registry gives it.

        When that is among the known, nothing was fetched and there is no target.
        """
        report(Progress("download", 0, 0))
        fitting = secrets.matching(self.credentials, self.reference) or (None,)
        try:
            async with asyncio.timeout(self.limits.pull_seconds):
                for credential in fitting[:-1]:
                    with contextlib.suppress(Denied):
                        return await self._as(credential, report)
                return await self._as(fitting[-1], report)
        except TimeoutError as error:
            raise pull_failed(
                f"failed to pull image {str(self.reference)!r}: it took longer than "
                f"{self.limits.pull_seconds} seconds",
                "what has arrived is kept: the next attempt goes on from there",
            ) from error

    async def _as(self, credential: Credential | None, report: Report) -> tuple[str, Access]:
        async with self._registry(credential) as registry:
            digest, manifest = await registry.manifest()
            if digest not in self.known:
                await self._fetch(registry, manifest, report)
            return digest, Access() if registry.is_open else Access.by(credential)

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
            for digest, layer in sorted(unique.items()):  # pulls that share some cannot deadlock
                blob = await _open(stack, paths[digest], layer.size)
                meter.advance(blob.received)
                await registry.layer(layer, blob, meter)
            try:
                await self._unpack([paths[layer.digest] for layer in layers], report)
            except asyncio.CancelledError:
                raise  # the layers are whole: whoever takes over has them
            except BaseException:
                _discard(paths.values())
                raise
            _discard(paths.values())

    def _blob_name(self, digest: str) -> str:
        """A layer is found by those alone who may fetch from the repository that it came from."""
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
    """The layer's file, when whoever else fetches it has ended; the pull's deadline holds."""
    while True:
        try:
            return stack.enter_context(Blob(path, size))
        except Busy:
            # There is no event for a lock that another process gives back.
            await asyncio.sleep(_BUSY_SECONDS)


def _discard(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
