"""The images of a host as its Nodes list them (core/v1 ContainerImage).

Other hosts find images there, so copies of other hosts' imports are left out: their origin has
them, and whether it still has them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from corral.aio import wait_at_most
from corral.api.object import Document
from corral.node.images.image import Image
from corral.node.images.store import ImageStore

MAX_IMAGES: Final = 100
"""Listed images, the largest ones; a kubelet lists 50 (nodeStatusMaxImages)."""
INTERVAL_SECONDS: Final = 300.0
"""Between readings without a notification, of which the kernel may have none left."""


class Inventory:
    """Follows the images of a store; ``publish`` writes the Nodes again."""

    def __init__(self, store: ImageStore, publish: Callable[[], None]) -> None:
        self._store = store
        self._publish = publish
        self._changed = asyncio.Event()
        self._listed: list[Document] = []
        store.handle_changes(self._changed.set)

    def listed(self) -> list[Document]:
        """Return the images as last read."""
        return self._listed

    async def run(self) -> None:
        """Read the images whenever they change, until cancelled."""
        while True:
            self._changed.clear()
            listed = container_images(await asyncio.to_thread(self._store.images))
            if listed != self._listed:
                self._listed = listed
                self._publish()
            await wait_at_most(self._changed, INTERVAL_SECONDS)


def container_images(images: Iterable[Image]) -> list[Document]:
    """Return ``status.images`` of a Node: a disk each, with its names, the largest disk first."""
    names: dict[str, set[str]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for image in images:
        if image.source != "copy":
            names[image.digest].add(image.reference)
            sizes[image.digest] = image.size
    ordered = sorted(sizes, key=lambda digest: (-sizes[digest], digest))
    return [
        {"names": sorted(names[digest]), "sizeBytes": sizes[digest]}
        for digest in ordered[:MAX_IMAGES]
    ]
