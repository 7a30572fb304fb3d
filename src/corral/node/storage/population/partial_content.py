"""Partial content: what has been received, resumable after a lost connection or a killed process.

    content        the received bytes, sparse
    content.json   a ``Record``: origin, version and length of the content

The record is written periodically, after the content; a killed download resumes from there.  It is
void after a reboot: nothing is fsynced before the finished disk becomes the volume's, so that a
power cut may keep the record and lose the content.
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
from corral.node.storage.population.error import PopulationError

CHUNK = 1 << 20
"""Bytes of one read and write."""
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)
_RECORD_INTERVAL_BYTES = 8 << 20
_BUFFERS = 4
_ALIGNMENT = 4096
"""Of file offsets and buffers, for O_DIRECT."""
_READ_BYTES = 1 << 22


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of partial content.

    origin: its URL; content of another origin is not resumed.
    validator: its version (ETag or Last-Modified); empty if the server sends none.
    received: bytes that are certainly in the file.
    complete: whether all bytes were received and the checksum matches.
    boot: the kernel's boot id.
    """

    origin: str
    validator: str = ""
    received: int = 0
    complete: bool = msgspec.field(name="whole", default=False)
    boot: str = ""


class PartialContent:
    """Partial content in a directory; has one writer at a time.  Methods block.

    checksum: ``ALGORITHM:HEXDIGITS`` of the complete content, or empty.
    """

    def __init__(self, directory: Path, *, checksum: str = "", max_bytes: int) -> None:
        self.path = directory / "content"
        self._record_path = directory / "content.json"
        self._checksum = checksum
        self._max_bytes = max_bytes
        self._hash = _hash(checksum)
        self._hashed = 0
        record = files.read_json(self._record_path, Record)
        if record is None or not self.path.exists() or record.boot != _boot():
            record = Record(origin="")
        self.record = record

    @property
    def received(self) -> int:
        return self.record.received

    def begin(self, origin: str, validator: str, position: int) -> None:
        """Truncate the content to a position, to continue with that origin and version."""
        if position and (self.record.origin != origin or self.record.received < position):
            raise ValueError(f"the content before byte {position} is missing")
        self.record = Record(origin=origin, validator=validator, received=position, boot=_boot())
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.ftruncate(descriptor, position)
        finally:
            os.close(descriptor)
        if position < self._hashed or not position:
            self._hash, self._hashed = _hash(self._checksum), 0
        self._write_record()

    def check_size(self, size: int) -> None:
        """Raises PopulationError for more than the maximum."""
        if size > self._max_bytes:
            raise PopulationError(
                f"the content has more than {self._max_bytes} bytes, which is more than the claim "
                "can hold: request more storage"
            )

    def write_from(self, read: Callable[[memoryview], int], advance: Callable[[int], None]) -> None:
        """Append what ``read`` puts into buffers, until it returns 0; ``advance`` gets the counts.

        A thread of its own writes while the next chunk is read.  What was read before an error of
        ``read`` is kept.  Raises OSError, and PopulationError for more than the maximum.
        """
        with self.path.open("r+b", buffering=0) as file:
            self._hash_received(file.fileno())
            writer = _Writer(file.fileno(), self.received, self._hash)
            try:
                self._copy(writer, read, advance)
            finally:
                writer.end()
                self._hashed = writer.position
                os.ftruncate(file.fileno(), writer.position)
                self.record = msgspec.structs.replace(self.record, received=writer.position)
                if not writer.failure:
                    self._write_record()
        if writer.failure:
            raise writer.failure

    def _copy(
        self,
        writer: "_Writer",
        read: Callable[[memoryview], int],
        advance: Callable[[int], None],
    ) -> None:
        recorded = count_read = self.received
        while not writer.failure:
            buffer = writer.buffer()
            count = read(buffer)
            if not count:
                return
            count_read += count
            self.check_size(count_read)
            writer.put(buffer, count)
            advance(count)
            if writer.position - recorded >= _RECORD_INTERVAL_BYTES:
                recorded = writer.position
                self.record = msgspec.structs.replace(self.record, received=recorded)
                self._write_record()

    def _hash_received(self, descriptor: int) -> None:
        """Hash what an earlier process or connection received."""
        if self._hash is None:
            return
        while self._hashed < self.received:
            piece = os.pread(
                descriptor, min(_READ_BYTES, self.received - self._hashed), self._hashed
            )
            if not piece:
                raise PopulationError("the partial content was truncated: it is downloaded again")
            self._hash.update(piece)
            self._hashed += len(piece)

    def finish(self) -> None:
        """Mark the content complete, or discard it and raise PopulationError for its checksum."""
        algorithm, _, desired = self._checksum.partition(":")
        if self._hash is not None:
            observed = self._hash.hexdigest()
            if observed != desired.lower():
                self.discard()
                raise PopulationError(
                    f"the content has the {algorithm} checksum {observed}, not {desired.lower()}: "
                    "correct spec.source.http.checksum, or the file on the server"
                )
        self.record = msgspec.structs.replace(self.record, complete=True)
        self._write_record()

    def discard(self) -> None:
        """Remove the content and its record."""
        self._record_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.record = Record(origin="")
        self._hash, self._hashed = _hash(self._checksum), 0

    def _write_record(self) -> None:
        files.replace(self._record_path, msgspec.json.encode(self.record))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class _Digest(Protocol):
    """A hashlib object."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def _hash(checksum: str) -> _Digest | None:
    algorithm = checksum.partition(":")[0]
    return hashlib.new(algorithm, usedforsecurity=False) if algorithm else None


class _Writer:
    """Writes and hashes chunks in a thread of its own, while the next ones are read."""

    def __init__(self, descriptor: int, position: int, digest: _Digest | None) -> None:
        self.position = position
        """End of what is written."""
        self.failure: OSError | None = None
        self._descriptor = descriptor
        self._hash = digest
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview, int] | None] = queue.SimpleQueue()
        for _ in range(_BUFFERS):
            self._free.put(memoryview(mmap.mmap(-1, CHUNK)))
        self._direct = _set_direct(descriptor, enabled=True)
        self._thread = threading.Thread(target=self._run, name="content-writer", daemon=True)
        self._thread.start()

    def buffer(self) -> memoryview:
        """Wait for a free buffer and return it."""
        return self._free.get()

    def put(self, buffer: memoryview, count: int) -> None:
        self._full.put((buffer, count))

    def end(self) -> None:
        """Wait until all chunks are written."""
        self._full.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (chunk := self._full.get()) is not None:
            buffer, count = chunk
            if self.failure is None:
                try:
                    self._write(buffer[:count])
                    if self._hash is not None:
                        self._hash.update(buffer[:count])
                except OSError as error:
                    self.failure = error
            self._free.put(buffer)

    def _write(self, content: memoryview) -> None:
        if self._direct and (self.position % _ALIGNMENT or len(content) % _ALIGNMENT):
            self._direct = _set_direct(self._descriptor, enabled=False)
        try:
            write_sparse(self._descriptor, content, self.position)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise
            self._direct = _set_direct(self._descriptor, enabled=False)  # not for this device
            write_sparse(self._descriptor, content, self.position)
        self.position += len(content)


def _set_direct(descriptor: int, *, enabled: bool) -> bool:
    """Switch O_DIRECT of a file; return whether it is on.

    It halves the CPU time, and does not evict other files from the page cache.
    """
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if enabled else 0))
    except OSError:
        return False  # not for this file system
    return enabled


def write_sparse(descriptor: int, content: memoryview, position: int) -> None:
    """Write to an empty range of a file, leaving holes for blocks of zeros."""
    begun = 0
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK]
        # The first and last byte rule out most blocks, which is cheaper than comparing all.
        if block[0] or block[-1] or block.tobytes() != _ZEROS[: len(block)]:
            continue
        _write(descriptor, content[begun:start], position + begun)
        begun = start + len(block)
    _write(descriptor, content[begun:], position + begun)


def _write(descriptor: int, content: memoryview, position: int) -> None:
    while len(content):
        written = os.pwrite(descriptor, content, position)
        content, position = content[written:], position + written
