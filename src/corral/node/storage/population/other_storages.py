"""Content of claims whose volumes lie in another storage: of this host, or of another one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from corral.aio import finished
from corral.api.errors import ApiError
from corral.api.images import VOLUMES_PATH
from corral.api.object import Key
from corral.failures import describe
from corral.node.images.peer import Peer, beginning, gathered
from corral.node.images.progress import Meter, Report
from corral.node.storage.population.error import NotReady, PopulationError
from corral.node.storage.population.job import Job
from corral.node.storage.storage import Storage
from corral.node.storage.volume_stream import Receiver

PeerOf = Callable[[str], Peer | None]
"""Returns a host that reaches the storage of an id; None if it is not known."""
CONFLICT: Final = 409
_MAX_ERROR_BYTES: Final = 1 << 12


class OtherStorages:
    """Copies volumes of storages that are not the target's.

    storages: those of this host; peer: finds the hosts of others.
    """

    def __init__(self, storages: Sequence[Storage] = (), peer: PeerOf = lambda _: None) -> None:
        self._storages = storages
        self._peer = peer

    async def copy(
        self, job: Job, source: Key, place: tuple[str, str], work: Path, report: Report
    ) -> Path:
        """Return a raw disk with the content of a claim.

        place: the id of the storage, and the handle.
        Raises PopulationError, StorageError and OSError.
        """
        storage_id, handle = place
        file = work / "clone"
        for storage in self._storages:
            if storage.id == storage_id:
                await asyncio.to_thread(storage.copy, handle, file)
                return file
        peer = self._peer(storage_id)
        if peer is None:
            raise NotReady(
                f"no ready node has the volume of PersistentVolumeClaim {source.name}",
                reason="CloneSourceUnreachable",
            )
        try:
            await _receive(peer, job, source, file, report)
        except ApiError as error:
            raise PopulationError(f"{peer.name} does not send {source}: {describe(error)}") from (
                error
            )
        return file


async def _receive(peer: Peer, job: Job, source: Key, file: Path, report: Report) -> None:
    """Receive a volume from another host; anew after a cut, as its content may have changed."""
    query = {
        "namespace": source.namespace,
        "claim": source.name,
        "target_namespace": job.key.namespace,
        "target": job.key.name,
    }
    receiver = await asyncio.to_thread(Receiver, file, job.capacity)
    try:
        async with peer.download(f"{VOLUMES_PATH}?{urlencode(query)}", {}) as (status, content):
            if status != 200:
                raise await _refused(peer, source, status, content)
            await _write(content, receiver, report)
    finally:
        await finished(asyncio.to_thread(receiver.close))
    if not receiver.is_complete:
        raise PopulationError(f"{peer.name} has stopped sending {source} before its end")


async def _write(content: AsyncIterator[bytes], receiver: Receiver, report: Report) -> None:
    meter, counted = None, 0
    async for chunk in gathered(content):
        await finished(asyncio.to_thread(receiver.feed, chunk))
        if meter is None and receiver.head is not None:
            meter = Meter(report, "download", receiver.head.data)
        if meter is not None:
            meter.advance(receiver.received - counted)
            counted = receiver.received


async def _refused(
    peer: Peer, source: Key, status: int, content: AsyncIterator[bytes]
) -> PopulationError:
    """Return the error of a host that sends no volume; one that is in use is waited for."""
    refusal = (await beginning(content, _MAX_ERROR_BYTES)).decode(errors="replace")
    message = f"{peer.name} does not send {source}: {refusal}"
    if status == CONFLICT:
        return NotReady(message, reason="CloneSourceInUse")
    return PopulationError(message)
