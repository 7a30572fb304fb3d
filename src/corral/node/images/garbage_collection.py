"""Image garbage collection on a nearly full disk: deletes unused images that were pulled.

Imported and built images are never deleted: there may be no other copy.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import structlog

from corral.node.images.error import ImageError
from corral.node.images.image import Image
from corral.node.images.store import ImageStore

MIN_AGE_SECONDS = 120.0
"""Of an unused image, since its pull or its last machine's end (a kubelet's default)."""
log = structlog.get_logger()


async def collect(
    store: ImageStore, is_short: Callable[[], bool], *, clock: Callable[[], float] = time.time
) -> list[str]:
    """Delete unused images, the longest unused first, while space is short; return their names."""
    deleted: list[str] = []
    for path, names in await asyncio.to_thread(_unused, store, clock()):
        if not await asyncio.to_thread(is_short):
            break
        log.warning("image deleted to free space", disk=path.name, names=names)
        for name in names:
            with suppress(ImageError):
                await store.remove(name)
        deleted += names
    return deleted


def _unused(store: ImageStore, now: float) -> list[tuple[Path, list[str]]]:
    """Return disks that may be deleted, in order, and their names."""
    named: dict[Path, list[Image]] = {}
    for image in store.images():
        named.setdefault(image.path, []).append(image)
    free: list[tuple[float, Path]] = []
    for path, images in named.items():
        since = _unused_since(path, images)
        if since is not None and now - since >= MIN_AGE_SECONDS:
            free.append((since, path))
    return [(path, [each.reference for each in named[path]]) for _, path in sorted(free)]


def _unused_since(path: Path, images: Iterable[Image]) -> float | None:
    """Return when a disk became unused; None if it is in use or was imported.

    Each machine has a hard link to its disk, so that the end of a machine sets the disk's ctime.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    is_pulled = all(each.source != "import" for each in images)
    return status.st_ctime if is_pulled and status.st_nlink == 1 else None
