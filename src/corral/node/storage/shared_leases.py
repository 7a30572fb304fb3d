"""The leases of a shared directory, as one host acquires them for machines and for operations.

A lease passes from one holder to another when the first has ended and released it.  A host that is
dead releases nothing.  Then its lease passes on once three things hold: the holder is on another
host, that host has been silent in the directory (``host_heartbeats``), and no pod of the machine is
left in the API that has not ended.  The pod goes when the machine has ended, when its node has
fenced itself (ADR 0054), or when an administrator says that the node is dead.
"""

import asyncio
import secrets
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from lightkube.models.core_v1 import Pod

from corral.aio import own_thread
from corral.api.errors import ApiError
from corral.api.volume_binding import is_finished
from corral.client.client import Client
from corral.failures import describe
from corral.node.storage.error import InUse
from corral.node.storage.host_heartbeats import HostHeartbeats
from corral.node.storage.lease_files import Holder, Leased, LeaseFiles
from corral.node.storage.volume import StoredVolume

CREATED_BY: Final = "kubevirt.io/created-by"
"""Label of a pod: the uid of its VMI."""
_OPERATION: Final = "operation-"
_API_SECONDS: Final = 10.0

log = structlog.get_logger()


class SharedLeases:
    """Acquires and releases leases for the holders of one host.

    It is created in the event loop that queries the API; its methods without ``async`` block, and
    are called in threads of others.
    """

    def __init__(
        self, leases: LeaseFiles, heartbeats: HostHeartbeats, client: Client, host: str
    ) -> None:
        self._leases = leases
        self._heartbeats = heartbeats
        self._client = client
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._unreleased: set[tuple[str, str]] = set()
        """Handle and holder of releases that have failed."""
        self._left: set[tuple[str, str]] = set()
        """Handle and holder of leases that the source of a migration is to take back."""

    # -- of machines

    async def acquire(self, handle: str, uid: str, *, alone: bool, moves: bool = False) -> None:
        """Acquire the lease of a volume for a machine.

        moves: whether the machine comes from another host, which has handed it over.
        Raises InUse with a message that names the holders, StorageError and OSError.
        """
        await own_thread(lambda: self.acquire_blocking(handle, uid, alone=alone, moves=moves))

    async def has(self, handle: str, uid: str, *, alone: bool) -> bool:
        """Report whether a machine still has a lease.  Raises OSError."""
        holder = Holder(self._host, uid)
        return await own_thread(lambda: self._leases.has(handle, holder, alone=alone))

    async def release(self, handle: str, uid: str) -> None:
        """Release a lease of a machine that has ended; later, if that fails now."""
        await own_thread(self.release_blocking, handle, uid)

    def leave(self, handle: str, uid: str) -> None:
        """Leave a lease to the source of a migration, whose guest has not run here.

        Released in between, it could be another machine's, and the guest would have ended.  Without
        a source that takes it back, it is released once no pod of the VMI is left.
        """
        self._left.add((handle, uid))

    def recover(self, machines: Container[str], left: Container[str] = ()) -> dict[str, set[str]]:
        """Release the leases of holders that ended with an earlier process.

        machines: the uids of those that run.  Returns the handles of these, by uid.
        left: the uids of those that left their leases to the source of a migration.
        Raises OSError.
        """
        kept: dict[str, set[str]] = {}
        for handle, holder in self._leases.leases_of(self._host):
            if holder.name in machines:
                kept.setdefault(holder.name, set()).add(handle)
            elif holder.name in left:
                self.leave(handle, holder.name)
            else:
                self.release_blocking(handle, holder.name)
        return kept

    def retry(self) -> None:
        """Release what could not be released before, and what nobody has taken back."""
        ended = {each for each in list(self._left) if self.has_ended(each[1])}
        self._left -= ended
        for handle, name in list(self._unreleased | ended):
            self.release_blocking(handle, name)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop."""
        self._loop.call_soon_threadsafe(function)

    # -- of operations: ``DiskLocks`` of the storage

    def create(self, handle: str) -> None:
        """Create the lease of a volume that is not visible yet; keep a present one."""
        self._leases.create(handle)

    def remove(self, handle: str) -> None:
        """Remove the lease of a removed volume."""
        self._leases.remove(handle)

    @contextmanager
    def exclusive(self, volume: StoredVolume) -> Iterator[None]:
        """Acquire the lease of a volume for the block: no machine has its disk.  Raises InUse."""
        name = f"{_OPERATION}{secrets.token_hex(8)}"
        self.acquire_blocking(volume.handle, name, alone=True)
        try:
            yield
        finally:
            self.release_blocking(volume.handle, name)

    # -- of both, blocking

    def acquire_blocking(self, handle: str, name: str, *, alone: bool, moves: bool = False) -> None:
        """Acquire a lease for a holder of this host.  Raises as ``acquire``."""
        for pending in (self._unreleased, self._left):
            pending.discard((handle, name))
        holder = Holder(self._host, name)
        try:
            self._leases.acquire(
                handle,
                holder,
                alone=alone,
                has_ended=lambda other: (moves and other.name == name) or self._has_ended(other),
            )
        except Leased as error:
            raise InUse(self._explain(error)) from error

    def release_blocking(self, handle: str, name: str) -> None:
        """Release a lease of a holder of this host; later, if that fails now."""
        try:
            self._leases.release(handle, Holder(self._host, name))
        except OSError as error:
            self._unreleased.add((handle, name))
            log.warning("a lease is not released yet", volume=handle, error=describe(error))
        else:
            self._unreleased.discard((handle, name))

    def _has_ended(self, holder: Holder) -> bool:
        if holder.host == self._host:
            return False  # it releases its lease itself, by ``recover`` at the latest
        if not self._heartbeats.is_silent(holder.host):
            return False
        if holder.name.startswith(_OPERATION):
            return True
        return self.has_ended(holder.name)

    def has_ended(self, uid: str) -> bool:
        """Report whether no pod of a VMI is left in the API that has not ended."""
        return asyncio.run_coroutine_threadsafe(self._has_no_pod(uid), self._loop).result()

    async def _has_no_pod(self, uid: str) -> bool:
        """Report whether no pod of a VMI is left that has not ended; False if that is unknown."""
        try:
            async with asyncio.timeout(_API_SECONDS):
                pods = await self._client.list(Pod, labels=f"{CREATED_BY}={uid}")
        except (ApiError, TimeoutError) as error:
            log.warning("pods of a lease's holder are unknown", uid=uid, error=describe(error))
            return False
        return all(map(is_finished, pods.items))

    def _explain(self, error: Leased) -> str:
        """Return the message of an acquisition that failed: it names the holders."""
        others = sorted(
            f"{'an operation' if each.name.startswith(_OPERATION) else f'VMI {each.name}'} on "
            f"node {self._heartbeats.node_of(each.host)}"
            for each in error.holders
        )
        return f"volume {error.handle} is leased by {', '.join(others) or 'another machine'}"
