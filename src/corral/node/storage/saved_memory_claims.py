"""Saved memories by claim: the directory in the claim's volume, and the annotation on the claim."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import NotFound
from corral.api.kinds.vmi.saved_memory import Mark, mark_annotation, mark_of
from corral.api.object import Key
from corral.api.time import rfc3339
from corral.client.client import Client
from corral.node.storage import Storage, StorageError
from corral.node.storage.claim_volumes import Claims
from corral.node.storage.saved_memory import SavedMemory
from corral.reconcile.objects import version_of


class SavedMemoryClaims:
    """Finds the saved memory of a claim; ``writer`` is the client that may annotate claims.

    On a Kubernetes that is the provisioner's: NodeRestriction lets no node write a claim.
    """

    def __init__(self, client: Client, storages: Sequence[Storage], writer: Client) -> None:
        self._client = client
        self._writer = writer
        self._claims = Claims(client, storages)

    async def find(self, key: Key) -> SavedMemory:
        """Return the saved memory of a claim's volume.

        Raises NoClaim, ApiError, and StorageError, which may be temporary.
        """
        stored = await self._claims.find(key.namespace, key.name)
        return SavedMemory(stored.directory, stored.capacity_bytes)

    async def annotate(self, key: Key) -> None:
        """Annotate a claim with what is saved in its volume.  Raises ApiError."""
        with suppress(NotFound, StorageError):  # the claim is gone, and its volume with it
            claim = await self._client.get(PersistentVolumeClaim, key.name, key.namespace)
            mark = await asyncio.to_thread(_mark, await self.find(key))
            if mark_of(claim) != mark:
                version = {"resourceVersion": version_of(claim)}
                metadata = version | {"annotations": mark_annotation(mark)}
                await self._writer.patch(PersistentVolumeClaim, key, {"metadata": metadata})


def _mark(memory: SavedMemory) -> Mark | None:
    if (saved := memory.read()) is None:
        return None
    return Mark(
        identity=saved.identity,
        instance=saved.instance,
        saved_at=rfc3339(saved.saved_at),
        bytes=saved.memory_bytes,
    )
