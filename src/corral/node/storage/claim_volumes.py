"""Resolves a claim to its volume: claim, PersistentVolume, handle, files.

Each call reads both objects from the API, since a machine starts rarely: the claim is bound and
populated, its PersistentVolume lies in a storage of this host and is bound to this claim, the
files exist.
"""

from collections.abc import Sequence

from lightkube.models.core_v1 import PersistentVolume, PersistentVolumeClaim

from corral.aio import own_thread
from corral.api.errors import NotFound
from corral.api.kinds.cdi.population import is_populated
from corral.api.kinds.storage.common import BOUND
from corral.client.client import Client
from corral.node.storage import Storage, StorageError, StoredVolume
from corral.node.storage.provision_plan import handle_in
from corral.reconcile.objects import is_being_deleted, uid_of


class NoClaim(StorageError):
    """No claim has that name."""


class Claims:
    """Resolves claims to volumes of the storages that this host has."""

    def __init__(self, client: Client, storages: Sequence[Storage]) -> None:
        self._client = client
        self._storages = storages

    async def find(self, namespace: str, name: str) -> StoredVolume:
        """Return a populated claim's volume.  Raises NoClaim; StorageError, maybe temporary."""
        _, volume = await self.locate(namespace, name)
        return volume

    async def locate(self, namespace: str, name: str) -> tuple[Storage, StoredVolume]:
        """Return a populated claim's volume, and the storage it lies in.  Raises as ``find``."""
        try:
            claim = await self._client.get(PersistentVolumeClaim, name, namespace)
        except NotFound:
            raise NoClaim(
                f'persistentvolumeclaim "{name}" not found',
                f"create it in the namespace {namespace}",
            ) from None
        if is_being_deleted(claim):
            raise StorageError(f'persistentvolumeclaim "{name}" is being deleted')
        phase = (claim.status and claim.status.phase) or ""
        if phase != BOUND or claim.spec is None:
            raise StorageError(
                f'persistentvolumeclaim "{name}" is not bound', f"kubectl describe pvc {name}"
            )
        if not is_populated(claim):
            raise StorageError(
                f'persistentvolumeclaim "{name}" is not populated yet',
                f"kubectl describe datavolume {name}",
            )
        return await self._stored(claim, claim.spec.volumeName or "")

    async def _stored(
        self, claim: PersistentVolumeClaim, name: str
    ) -> tuple[Storage, StoredVolume]:
        try:
            volume = await self._client.get(PersistentVolume, name)
        except NotFound:
            raise StorageError(f'persistentvolume "{name}" not found') from None
        bound = volume.spec.claimRef if volume.spec is not None else None
        if bound is None or bound.uid != uid_of(claim):
            raise StorageError(f'persistentvolume "{name}" is bound to another claim')
        here = [(each, handle_in(volume, each.id)) for each in self._storages]
        handles = [(storage, handle) for storage, handle in here if handle]
        if not handles:
            raise StorageError(
                f'persistentvolume "{name}" does not lie in the storage of this node',
                "use the storage class corral",
            )
        for storage, handle in handles:
            # Not here, nor in the shared pool: the server of a shared directory may not answer.
            if (found := await own_thread(storage.find, handle)) is not None:
                return storage, found
        raise StorageError(f'the files of persistentvolume "{name}" are missing')
