"""Where memories are kept: the volumes of claims, and the marks by which claims tell of them."""

import asyncio
from contextlib import suppress

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import NotFound
from corral.api.kinds.vmi.saved_memory import Mark, mark_annotation, mark_of
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.client.client import Client
from corral.node.storage import Storage, StorageError
from corral.node.storage.claim_volumes import Claims
from corral.node.storage.saved_memory import Place
from corral.reconcile.objects import version_of


class Shelf:
    """Finds places by claims."""

    def __init__(self, client: Client, storage: Storage) -> None:
        self._client = client
        self._claims = Claims(client, storage)

    async def place(self, key: Key) -> Place:
        """Where a claim's volume is.  Raises NoClaim; StorageError, which may pass; ApiError."""
        stored = await self._claims.find(key.namespace, key.name)
        return Place(stored.directory, stored.capacity_bytes)

    async def mirror(self, key: Key) -> None:
        """Let a claim tell what is kept in its volume.  Raises ApiError."""
        with suppress(NotFound, StorageError):  # it is gone, and its volume with it
            claim = await self._client.get(PersistentVolumeClaim, key.name, key.namespace)
            mark = await asyncio.to_thread(_mark, await self.place(key))
            if mark_of(claim) != mark:
                version = {"resourceVersion": version_of(claim)}
                metadata = version | {"annotations": mark_annotation(mark)}
                await self._client.patch(PersistentVolumeClaim, key, {"metadata": metadata})


def _mark(place: Place) -> Mark | None:
    if (saved := place.read()) is None:
        return None
    return Mark(
        identity=saved.identity,
        instance=saved.instance,
        saved_at=rfc3339(saved.saved_at),
        bytes=saved.memory_bytes,
    )
