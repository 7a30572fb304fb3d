"""The content of a raw disk as a stream of bytes, from one host to another.

    a line of JSON: ``Head``
    extents: offset and length (two big-endian 64-bit numbers), and so many bytes
    the size of the disk, and 0: the end

Holes are left out.  A stream that was cut lacks its end, so half a disk is never taken for a whole
one.  The content is a raw disk, whatever the source is: no host reads an image format that another
one has written.  The functions block.
"""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from corral.node.storage.error import StorageError

CHUNK_BYTES: Final = 1 << 20
_EXTENT: Final = struct.Struct(">QQ")
_MAX_HEAD_BYTES: Final = 1 << 12


class Head(msgspec.Struct, frozen=True):
    """The first line of a stream: the size of the disk, and its bytes that are no holes."""

    size: int
    data: int


def read(disk: Path) -> Iterator[bytes]:
    """Yield the stream of a raw disk, which nobody writes meanwhile.  Raises OSError."""
    with disk.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = sum(length for _, length in _extents(file.fileno(), size))
        yield msgspec.json.encode(Head(size, data)) + b"\n"
        for offset, length in _extents(file.fileno(), size):
            for start in range(offset, offset + length, CHUNK_BYTES):
                count = min(CHUNK_BYTES, offset + length - start)
                content = os.pread(file.fileno(), count, start)
                if len(content) != count:
                    raise OSError(errno.EIO, "the file has become shorter", str(disk))
                yield _EXTENT.pack(start, count) + content
        yield _EXTENT.pack(size, 0)


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of what is no hole."""
    position = 0
    while position < size:
        try:
            begin = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            raise
        position = min(os.lseek(descriptor, begin, os.SEEK_HOLE), size)
        yield begin, position - begin


class Receiver:
    """Writes a stream to a new file; ``max_bytes``: the size that the disk may have."""

    def __init__(self, file: Path, max_bytes: int) -> None:
        file.unlink(missing_ok=True)
        self._file: IO[bytes] = file.open("xb")
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self.head: Head | None = None
        self.received = 0
        """Bytes of content so far."""
        self.is_complete = False

    def feed(self, chunk: bytes) -> None:
        """Write what a chunk completes.  Raises StorageError for what is no stream, and OSError."""
        self._pending += chunk
        if self.head is None:
            self._read_head()
        while self.head is not None and not self.is_complete:
            if not self._read_extent(self.head):
                return

    def close(self) -> None:
        self._file.close()

    def _read_head(self) -> None:
        line, mark, rest = self._pending.partition(b"\n")
        if len(line) > _MAX_HEAD_BYTES:
            raise StorageError("the other host does not send a volume")
        if not mark:
            return
        try:
            self.head = msgspec.json.decode(line, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError(f"the other host does not send a volume: {error}") from error
        if self.head.size > self._max_bytes:
            raise StorageError(
                f"the volume has {self._max_bytes} bytes, and its source {self.head.size}",
                "request as much storage as the source has",
            )
        self._pending = bytearray(rest)

    def _read_extent(self, head: Head) -> bool:
        """Write the next extent; return whether it was whole."""
        if len(self._pending) < _EXTENT.size:
            return False
        offset, length = _EXTENT.unpack_from(self._pending)
        is_end = length == 0
        if length > CHUNK_BYTES or offset + length > head.size or (is_end and offset < head.size):
            raise StorageError("the other host sends an extent beyond its volume")
        end = _EXTENT.size + length
        if len(self._pending) < end:
            return False
        if is_end:
            self._file.truncate(head.size)
            self.is_complete = True
        else:
            with memoryview(self._pending) as pending:
                self._file.seek(offset)
                self._file.write(pending[_EXTENT.size : end])
            self.received += length
        del self._pending[:end]
        return True
