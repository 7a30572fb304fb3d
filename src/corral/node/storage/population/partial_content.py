"""Content on its way in: what has arrived of it outlives a lost connection and a killed process.

    content        what has arrived, with holes where it is zeros
    content.json   how much of it is surely there, and of what: a ``Record``

The record is written now and then, behind the content; after a kill the way goes on from there.
After the host went down it does not: the kernel may have kept the record and lost the content, as
nothing is waited for before the disk that is made of it is the volume's.
"""

import errno
import fcntl
import hashlib
import mmap
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from corral import files
from corral.node.storage.population.error import NotFilled

PIECE = 1 << 20
"""Bytes that are passed on at once."""
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)
_NOTED_EVERY = 8 << 20
_WAITING = 4
_ALIGNED = 4096
"""What places in files and in memory are multiples of, for writing past the kernel's memory."""
_READ = 1 << 22


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of content that is not whole, or was not looked at yet.

    origin: where it comes from; of another one nothing is of use.
    validator: what its server calls this version of it; empty where it does not say.
    received: bytes that are there for certain.
    whole: whether all is there, and is what was wanted.
    boot: names the time since the host was started.
    """

    origin: str
    validator: str = ""
    received: int = 0
    whole: bool = False
    boot: str = ""


class Part:
    """Content in a directory; one filling at a time has it.  Methods block.

    checksum: the kind and the digits that all of it together must have, or empty.
    most: bytes that are taken at most.
    """

    def __init__(self, directory: Path, *, checksum: str = "", most: int) -> None:
        self.path = directory / "content"
        self._note = directory / "content.json"
        self._checksum = checksum
        self._most = most
        self._hash = _hash(checksum)
        self._hashed = 0
        known = files.read_json(self._note, Record)
        if known is None or not self.path.exists() or known.boot != _boot():
            known = Record(origin="")
        self.record = known

    @property
    def received(self) -> int:
        return self.record.received

    def begin(self, origin: str, validator: str, position: int) -> None:
        """From here on content of that origin and version comes, from a position on.

        What is there is kept up to that position only.
        """
        if position and (self.record.origin != origin or self.record.received < position):
            raise ValueError(f"not all is there before {position}")
        self.record = Record(origin=origin, validator=validator, received=position, boot=_boot())
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.ftruncate(descriptor, position)
        finally:
            os.close(descriptor)
        if position < self._hashed or not position:
            self._hash, self._hashed = _hash(self._checksum), 0
        self._write_note()

    def check(self, size: int) -> None:
        """Raises NotFilled where so many bytes are too many."""
        if size > self._most:
            raise NotFilled(
                f"the content has more than {self._most} bytes, which is more than the claim can "
                "hold: ask for more storage"
            )

    def take(self, read: Callable[[memoryview], int], advance: Callable[[int], None]) -> None:
        """Take what ``read`` puts into a buffer, piece by piece, until it answers 0.

        It is written by a thread of its own, while the next piece comes.  What came before an
        error of ``read`` is kept.  Raises OSError, and NotFilled for too much.
        """
        with self.path.open("r+b", buffering=0) as file:
            self._catch_up(file.fileno())
            writer = _Writer(file.fileno(), self.received, self._hash)
            try:
                self._take(writer, read, advance)
            finally:
                writer.end()
                self._hashed = writer.position
                os.ftruncate(file.fileno(), writer.position)
                self.record = msgspec.structs.replace(self.record, received=writer.position)
                if not writer.failure:
                    self._write_note()
        if writer.failure:
            raise writer.failure

    def _take(
        self,
        writer: "_Writer",
        read: Callable[[memoryview], int],
        advance: Callable[[int], None],
    ) -> None:
        noted = coming = self.received
        while not writer.failure:
            buffer = writer.buffer()
            count = read(buffer)
            if not count:
                return
            coming += count
            self.check(coming)
            writer.put(buffer, count)
            advance(count)
            if writer.position - noted >= _NOTED_EVERY:
                noted = writer.position
                self.record = msgspec.structs.replace(self.record, received=noted)
                self._write_note()

    def _catch_up(self, descriptor: int) -> None:
        """Hash what came in an earlier life."""
        if self._hash is None:
            return
        while self._hashed < self.received:
            piece = os.pread(descriptor, min(_READ, self.received - self._hashed), self._hashed)
            if not piece:
                raise NotFilled("what had arrived is gone: it is fetched again")
            self._hash.update(piece)
            self._hashed += len(piece)

    def finish(self) -> None:
        """All of it is there.  Raises NotFilled where it is not what was wanted, and drops it."""
        kind, _, wanted = self._checksum.partition(":")
        if self._hash is not None:
            found = self._hash.hexdigest()
            if found != wanted.lower():
                self.discard()
                raise NotFilled(
                    f"the content has the {kind} checksum {found}, not {wanted.lower()}: correct "
                    "spec.source.http.checksum, or the file on the server"
                )
        self.record = msgspec.structs.replace(self.record, whole=True)
        self._write_note()

    def discard(self) -> None:
        """Forget what has arrived."""
        self._note.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.record = Record(origin="")
        self._hash, self._hashed = _hash(self._checksum), 0

    def _write_note(self) -> None:
        files.replace(self._note, msgspec.json.encode(self.record))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class _Digest(Protocol):
    """What hashlib's objects have in common."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def _hash(checksum: str) -> _Digest | None:
    kind = checksum.partition(":")[0]
    return hashlib.new(kind, usedforsecurity=False) if kind else None


class _Writer:
    """Writes and hashes pieces in a thread of its own, while others come."""

    def __init__(self, descriptor: int, position: int, digest: _Digest | None) -> None:
        self.position = position
        """How far all is written."""
        self.failure: OSError | None = None
        self._descriptor = descriptor
        self._hash = digest
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview, int] | None] = queue.SimpleQueue()
        for _ in range(_WAITING):
            self._free.put(memoryview(mmap.mmap(-1, PIECE)))
        self._direct = _set_direct(descriptor, wanted=True)
        self._thread = threading.Thread(target=self._run, name="filling-writer", daemon=True)
        self._thread.start()

    def buffer(self) -> memoryview:
        """A buffer to be filled, as soon as one is free."""
        return self._free.get()

    def put(self, buffer: memoryview, count: int) -> None:
        self._full.put((buffer, count))

    def end(self) -> None:
        """Wait until all that was put is written."""
        self._full.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (piece := self._full.get()) is not None:
            buffer, count = piece
            if self.failure is None:
                try:
                    self._write(buffer[:count])
                    if self._hash is not None:
                        self._hash.update(buffer[:count])
                except OSError as error:
                    self.failure = error
            self._free.put(buffer)

    def _write(self, content: memoryview) -> None:
        if self._direct and (self.position % _ALIGNED or len(content) % _ALIGNED):
            self._direct = _set_direct(self._descriptor, wanted=False)
        try:
            write_sparse(self._descriptor, content, self.position)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise
            self._direct = _set_direct(self._descriptor, wanted=False)  # not for this device
            write_sparse(self._descriptor, content, self.position)
        self.position += len(content)


def _set_direct(descriptor: int, *, wanted: bool) -> bool:
    """Let what is written to a file pass the kernel's memory by or not; whether it does.

    That takes half the time of the processor, and drives nothing out of memory.
    """
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if wanted else 0))
    except OSError:
        return False  # not for this file system
    return wanted


def write_sparse(descriptor: int, content: memoryview, position: int) -> None:
    """Write where nothing is yet, leaving holes for blocks of zeros."""
    begun = 0
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        # Most blocks that are no zeros are seen by their ends.
        if block[0] or block[-1] or block.tobytes() != _ZEROS[: len(block)]:
            continue
        _write(descriptor, content[begun:start], position + begun)
        begun = start + len(block)
    _write(descriptor, content[begun:], position + begun)


def _write(descriptor: int, content: memoryview, position: int) -> None:
    while len(content):
        written = os.pwrite(descriptor, content, position)
        content, position = content[written:], position + written
