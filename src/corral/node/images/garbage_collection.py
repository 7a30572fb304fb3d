"""Makes room on a disk that is nearly full: images go that can be pulled again, and nobody has.

What was imported or built here stays, whatever the room: there may be no other copy of it.
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

YOUNG_SECONDS = 120.0
"""What was pulled, or lost its last machine, less than so long ago stays (a kubelet's figure)."""
log = structlog.get_logger()


async def collect(
    store: ImageStore, is_short: Callable[[], bool], *, clock: Callable[[], float] = time.time
) -> list[str]:
    """Delete images that no machine has, while room is short; answers their names.

    Those go first that have been without a machine for longest.
    """
    gone: list[str] = []
    for path, names in await asyncio.to_thread(_unused, store, clock()):
        if not await asyncio.to_thread(is_short):
            break
        log.warning("image deleted for its room", disk=path.name, names=names)
        for name in names:
            with suppress(ImageError):
                await store.remove(name)
        gone += names
    return gone


def _unused(store: ImageStore, now: float) -> list[tuple[Path, list[str]]]:
    """Disks that may go, the first to go first, and their names."""
    named: dict[Path, list[Image]] = {}
    for image in store.images():
        named.setdefault(image.path, []).append(image)
    free: list[tuple[float, Path]] = []
    for path, images in named.items():
        since = _unused_since(path, images)
        if since is not None and now - since >= YOUNG_SECONDS:
            free.append((since, path))
    return [(path, [each.reference for each in named[path]]) for _, path in sorted(free)]


def _unused_since(path: Path, images: Iterable[Image]) -> float | None:
    """When a disk lost its last machine; None where it has one, or cannot be had again.

    Each machine holds a link to its disk: the end of one changes the disk's ctime.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    again = all(each.source == "pull" for each in images)
    return status.st_ctime if again and status.st_nlink == 1 else None
