"""Leases of the disks of a shared directory: a machine opens a disk only with its lease.

Locks of a file system do not hold on every mount of it (NFS without its lock manager, ``nolock``,
``local_lock``), and a lock ends with the connection of its host while its machine may run on.  So
a disk has a lease of its own, which ends only by a decision.  The lease is a directory; its state
is the name of the one file there that is no share:

    leases/HANDLE/GENERATION.free             no holder has acquired it
    leases/HANDLE/GENERATION.held.HOST.NAME   one holder has acquired it alone
    leases/HANDLE/GENERATION.shared           holders share it, each with a file of its own:
    leases/HANDLE/share.HOST.NAME

Each change renames that file to the next generation, which succeeds for one caller alone: the old
name is the state that the caller has read, and no name ever comes back.  Renames within a directory
are atomic on POSIX file systems, NFS and CephFS.  The files are empty, so a change needs no space,
and no file is ever half written.

To share a disk, a holder writes its share first and then reads the lease; to acquire it alone, a
holder renames the lease first and then reads the shares.  The second of two sees the first.

The methods block.
"""

import errno
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from corral import files
from corral.node.storage.error import InUse, StorageError

ATTEMPTS: Final = 8
"""Attempts of a change while others change the lease, before the disk counts as in use."""
_FREE: Final = "free"
_HELD: Final = "held"
_SHARED: Final = "shared"
_SHARE: Final = "share."


class Holder(NamedTuple):
    """A machine, or an operation of a provisioner, on one host.

    host: the id of the storage of its own; name: the uid of a VMI, or a name that is no uid.
    """

    host: str
    name: str


class Leased(InUse):
    """Others hold the lease of a disk."""

    def __init__(self, handle: str, holders: frozenset[Holder]) -> None:
        super().__init__(f"volume {handle} is leased")
        self.handle = handle
        self.holders = holders


HasEnded = Callable[[Holder], bool]
"""Reports whether a holder has ended, or left its disk to the caller: its lease may pass on."""


def no_holder_has_ended(_holder: Holder) -> bool:
    """Let every holder keep its lease."""
    return False


@dataclass(frozen=True, slots=True)
class _Lease:
    """The state of a lease as its directory has it, and the holders that share the disk."""

    generation: int
    owner: str
    shares: frozenset[Holder]

    @property
    def entry(self) -> str:
        return f"{self.generation}.{self.owner}"

    @property
    def holder(self) -> Holder | None:
        """The holder that has acquired the lease alone, if any."""
        word, _, rest = self.owner.partition(".")
        return _holder(rest) if word == _HELD else None


class LeaseFiles:
    """The leases of a shared directory, by the handles of its volumes."""

    def __init__(self, directory: Path) -> None:
        self._leases = directory / "leases"
        self._staging = directory / "staging"
        for each in (self._leases, self._staging):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def create(self, handle: str) -> None:
        """Create the lease of a volume that is not visible yet; keep a present one."""
        directory = self._leases / handle
        if directory.exists():
            return
        staged = self._staging / f"{handle}.lease"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(mode=0o700)
        (staged / f"0.{_FREE}").touch(mode=0o600)
        staged.rename(directory)
        files.sync_directory(self._leases)

    def remove(self, handle: str) -> None:
        """Remove the lease of a volume that is gone."""
        shutil.rmtree(self._leases / handle, ignore_errors=True)

    def handles(self) -> Iterator[str]:
        """Yield the handles that have a lease."""
        for each in sorted(self._leases.iterdir()):
            yield each.name

    # --------------------------------------------------------------- acquiring

    def acquire(
        self,
        handle: str,
        holder: Holder,
        *,
        alone: bool,
        has_ended: HasEnded = no_holder_has_ended,
    ) -> None:
        """Acquire the lease of a disk, alone or with others; again for a holder that has it.

        Raises Leased while another holder has it that has not ended; StorageError without a lease.
        """
        step = self._acquire_alone if alone else self._acquire_share
        for _ in range(ATTEMPTS):
            lease = self._read(handle)
            others = _others(lease, holder, alone=alone)
            if alive := frozenset(each for each in others if not has_ended(each)):
                raise Leased(handle, alive)
            if step(handle, lease, holder):
                return
        raise Leased(handle, self.holders(handle) - {holder})

    def _acquire_alone(self, handle: str, lease: _Lease, holder: Holder) -> bool:
        """Acquire a lease alone; return whether that succeeded.  All other holders have ended."""
        for each in lease.shares:
            self._remove_share(handle, each)
        if lease.holder != holder:
            owner = f"{_HELD}.{holder.host}.{holder.name}"
            renamed = self._rename_to_next_generation(handle, lease, owner)
            if renamed is None:
                return False
            lease = renamed
        if not self._read(handle).shares:
            return True
        # Another holder has written its share between the two reads.
        self._rename_to_next_generation(handle, lease, _SHARED)
        return False

    def _acquire_share(self, handle: str, lease: _Lease, holder: Holder) -> bool:
        """Share a lease; return whether that succeeded.  A holder that has it alone has ended."""
        if lease.owner != _SHARED and (
            self._rename_to_next_generation(handle, lease, _SHARED) is None
        ):
            return False
        (self._leases / handle / _share_of(holder)).touch(mode=0o600)
        files.sync_directory(self._leases / handle)
        if self._read(handle).owner == _SHARED:
            return True
        self._remove_share(handle, holder)
        return False

    # ---------------------------------------------------------------- checking

    def has(self, handle: str, holder: Holder, *, alone: bool) -> bool:
        """Report whether a holder still has a lease, which may have passed to another."""
        try:
            lease = self._read(handle)
        except StorageError:
            return False
        # A share counts, also while another has the lease alone: that one reads the shares next,
        # and then gives way.
        return lease.holder == holder if alone else holder in lease.shares

    def holders(self, handle: str) -> frozenset[Holder]:
        """Return the holders of a lease.  Raises StorageError."""
        lease = self._read(handle)
        return lease.shares | ({lease.holder} if lease.holder is not None else set())

    # --------------------------------------------------------------- releasing

    def release(self, handle: str, holder: Holder) -> None:
        """Release a lease, if the holder has it.  Raises OSError, with nothing changed."""
        try:
            lease = self._read(handle)
        except StorageError:
            return  # removed with its volume
        if holder in lease.shares:
            self._remove_share(handle, holder)
        if lease.holder == holder:
            self._rename_to_next_generation(handle, lease, _FREE)

    def leases_of(self, host: str) -> Iterator[tuple[str, Holder]]:
        """Yield the leases of a host's holders."""
        for handle in self.handles():
            try:
                holders = self.holders(handle)
            except StorageError:
                continue
            for holder in holders:
                if holder.host == host:
                    yield handle, holder

    # ------------------------------------------------------------------- parts

    def _read(self, handle: str) -> _Lease:
        """Return the present state of a lease.  Raises StorageError without one."""
        directory = self._leases / handle
        for _ in range(ATTEMPTS):
            try:
                names = [each.name for each in directory.iterdir()]
            except FileNotFoundError:
                break
            # Two for a moment, where a directory is listed in parts: the later one counts.
            entries = sorted(_entry(each) for each in names if each[:1].isdigit())
            if entries:
                shares = {_holder(each[len(_SHARE) :]) for each in names if each.startswith(_SHARE)}
                return _Lease(*entries[-1], frozenset(shares))
        raise StorageError(
            f"the lease of volume {handle} is missing",
            f"is {self._leases.parent} mounted, and unchanged by others?",
        )

    def _rename_to_next_generation(self, handle: str, lease: _Lease, owner: str) -> _Lease | None:
        """Give a lease another owner and return it; None if it has changed since it was read."""
        directory = self._leases / handle
        renamed = _Lease(lease.generation + 1, owner, lease.shares)
        try:
            (directory / lease.entry).rename(directory / renamed.entry)
        except FileNotFoundError:
            # A repeated request of an NFS client fails so, too, though the first one succeeded.
            if owner in (_FREE, _SHARED) or self._read(handle).entry != renamed.entry:
                return None
        files.sync_directory(directory)
        return renamed

    def _remove_share(self, handle: str, holder: Holder) -> None:
        (self._leases / handle / _share_of(holder)).unlink(missing_ok=True)
        files.sync_directory(self._leases / handle)


def _others(lease: _Lease, holder: Holder, *, alone: bool) -> frozenset[Holder]:
    """Return the holders that must have ended before a holder acquires a lease."""
    others = lease.shares if alone else frozenset[Holder]()
    if lease.holder is not None:
        others |= {lease.holder}
    return others - {holder}


def _entry(name: str) -> tuple[int, str]:
    generation, _, owner = name.partition(".")
    if not generation.isdecimal():
        raise OSError(errno.EBADMSG, "is no lease", name)
    return int(generation), owner


def _holder(text: str) -> Holder:
    host, _, name = text.partition(".")
    return Holder(host, name)


def _share_of(holder: Holder) -> str:
    return f"{_SHARE}{holder.host}.{holder.name}"
