"""The leases of a machine's disks on a shared directory, from before its start until its end."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from corral.failures import describe
from corral.node.hypervisor import Drive, StartError
from corral.node.storage.error import InUse, StorageError
from corral.node.storage.shared_storage import SharedStorage

LEASED: Final = "DiskLeased"
"""Reason of a start that waits for a lease."""
_RELEASE_SECONDS: Final = 5.0
"""Time that an end waits for a directory that does not answer; the release goes on meanwhile."""


@dataclass(frozen=True, slots=True)
class _Lease:
    """A lease that a machine has: of which volume of its VMI, and whether that was hotplugged."""

    volume: str
    alone: bool
    plugged: bool


class MachineLeases:
    """The leases of the machines of one node; without a shared directory there are none."""

    def __init__(self, shared: SharedStorage | None = None) -> None:
        self._shared = shared
        self._held: dict[str, dict[str, _Lease]] = {}
        """By the VMI's uid and the volume's handle."""

    async def acquire(self, uid: str, drives: Iterable[Drive], *, plugged: bool = False) -> None:
        """Acquire the leases that a machine's drives need.  Raises StartError.

        Those that it has already stay, also after an error.
        """
        await self._acquire(uid, _needed(drives, plugged=plugged))

    async def take_over(self, uid: str, drives: Iterable[Drive]) -> None:
        """Acquire the leases that the other side of a migration has, if any.  Raises StartError.

        Nothing of that side may run any more, on whichever host it is.
        """
        await self._acquire(uid, _needed(drives, plugged=False), moves=True)

    async def take_back(
        self, uid: str, prepare: Callable[[], Awaitable[Mapping[str, Drive]]]
    ) -> None:
        """Acquire the leases again that the target of a migration may have had and released.

        prepare: returns the drives, which a manager that was restarted does not know.
        Raises StartError, also as ``prepare`` does.
        """
        if self._shared is None:
            return
        leases = self._held.get(uid) or _needed((await prepare()).values(), plugged=False)
        for handle, lease in leases.items():
            await self._acquire_one(uid, handle, lease, moves=True)
        self._held[uid] = dict(leases)

    async def _acquire(
        self, uid: str, leases: Mapping[str, _Lease], *, moves: bool = False
    ) -> None:
        if not leases or self._shared is None:
            return
        held = self._held.setdefault(uid, {})
        for handle, lease in leases.items():
            if handle in held and (held[handle].alone or not lease.alone):
                continue
            await self._acquire_one(uid, handle, lease, moves=moves)
            held[handle] = lease

    async def _acquire_one(self, uid: str, handle: str, lease: _Lease, *, moves: bool) -> None:
        assert self._shared is not None
        try:
            await self._shared.leases.acquire(handle, uid, alone=lease.alone, moves=moves)
        except InUse as error:
            raise StartError(LEASED, _text(lease, error), busy=lease.volume) from error
        except (StorageError, OSError) as error:
            raise StartError(LEASED, _text(lease, error)) from error

    async def confirm(self, uid: str) -> None:
        """Check that the leases are still the machine's, once QEMU is there with its guest halted.

        Raises StartError.
        """
        for handle, lease in self._held.get(uid, {}).items():
            assert self._shared is not None
            try:
                found = await self._shared.leases.has(handle, uid, alone=lease.alone)
            except OSError as error:
                raise StartError(LEASED, _text(lease, error)) from error
            if not found:
                self._held[uid].pop(handle)
                why = f'the lease of volume "{lease.volume}" has passed to another machine'
                raise StartError(LEASED, why, busy=lease.volume)

    async def release(self, uid: str) -> None:
        """Release all leases of a machine of which nothing runs any more."""
        held = self._held.pop(uid, {}).keys()
        if self._shared is not None:
            await self._release(uid, held | self._shared.running.pop(uid, set()))

    def leave(self, uid: str) -> None:
        """Leave the leases to the source of a migration on another host, which takes them back."""
        held = self._held.pop(uid, {}).keys()
        if self._shared is not None:
            for handle in held | self._shared.running.pop(uid, set()):
                self._shared.leases.leave(handle, uid)

    def forget(self, uid: str) -> None:
        """Leave the leases to the other side of a migration on this host, which runs the guest.

        A lease names the host and the VMI: it is the same for both sides.
        """
        self._held.pop(uid, None)

    async def release_unplugged(self, uid: str, present: Collection[str]) -> None:
        """Release the leases of hotplugged volumes that a machine no longer has."""
        held = self._held.get(uid, {})
        gone = {
            handle
            for handle, lease in held.items()
            if lease.plugged and lease.volume not in present
        }
        for handle in gone:
            held.pop(handle)
        await self._release(uid, gone)

    async def _release(self, uid: str, handles: Collection[str]) -> None:
        for handle in handles:
            assert self._shared is not None
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._shared.leases.release(handle, uid)


def _needed(drives: Iterable[Drive], *, plugged: bool) -> Mapping[str, _Lease]:
    """Return the leases that drives need, by handle; one drive that writes alone decides."""
    needed: dict[str, _Lease] = {}
    for drive in drives:
        if drive.lease and (drive.lease not in needed or not drive.shares):
            needed[drive.lease] = _Lease(drive.volume, not drive.shares, plugged)
    return needed


def _text(lease: _Lease, error: Exception) -> str:
    return f'the disk of volume "{lease.volume}" cannot be had: {describe(error)}'
