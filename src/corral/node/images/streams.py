"""Bounded reading of compressed files, and writing of sparse disks.

All functions block: call them through ``progress.in_thread``.
"""

import bz2
import lzma
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from corral.failures import describe
from corral.node.images.error import ImageError, invalid_disk
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK = 1 << 16
_ZEROS = bytes(BLOCK)
_READ_BYTES = 1 << 16
"""Of one read; unconsumed input is copied once for each compressed member in it."""
_XZ_MEMORY = 256 << 20
_ZSTD_WINDOW_LOG = 27  # 128 MiB: the default limit of the zstd tool

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BZIP2 = b"BZh"
_MAX_MAGIC = 6

_MAX_MEMBERS, _MIN_MEMBER_BYTES = 1000, 512
"""Limits of concatenated compressed files: a number, and one more for that many bytes of content.
Tools that compress in chunks write a member for each file of a layer or each 64 KiB; without a
limit empty members would keep a CPU busy."""


class _Decompressor(Protocol):
    """The common interface of bz2's, lzma's and zstd's decompressors."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _Gunzip:
    """Adapts zlib's decompressor to the common interface."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


def _decompressor(head: bytes) -> _Decompressor | None:
    if head.startswith(_GZIP):
        return _Gunzip()
    if head.startswith(_XZ):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    if head.startswith(_ZSTD):
        return zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        )
    if head.startswith(_BZIP2):
        return bz2.BZ2Decompressor()
    return None


class Stream:
    """The decompressed bytes of a file: gzip, xz, zstd, bzip2 or uncompressed.

    Raises ImageError ``InvalidDisk``, with ``name``, if the stream is damaged or truncated, or
    exceeds the limits.
    """

    def __init__(self, file: BinaryIO, *, name: str, limits: Limits, meter: Meter) -> None:
        self._file = file
        self._name = name
        self._limits = limits
        self._meter = meter
        self._plain = bytearray()
        self._packed = b""
        self._unpacked_bytes = 0
        self._read_bytes = 0
        self._members = 1
        self._pull()
        self._member = _decompressor(self._packed)
        self.compressed = self._member is not None

    def read(self, count: int) -> bytes:
        """Return ``count`` bytes, fewer only at the end."""
        while len(self._plain) < count and self._more(count - len(self._plain)):
            pass
        chunk = bytes(self._plain[:count])
        del self._plain[:count]
        return chunk

    def _pull(self) -> bool:
        chunk = self._file.read(_READ_BYTES)
        self._meter.advance(len(chunk))
        self._read_bytes += len(chunk)
        self._packed += chunk
        return bool(chunk)

    def _more(self, count: int) -> bool:
        """Decompress about ``count`` bytes more; False at the end of the file."""
        if self._member is None:
            if not self._packed and not self._pull():
                return False
            plain, self._packed = self._packed, b""
        else:
            if self._member.eof and not self._next_member(self._member):
                return False
            plain = self._inflate(self._member, max(count, BLOCK))
        self._plain += plain
        self._unpacked_bytes += len(plain)
        self._check_size()
        return True

    def _inflate(self, member: _Decompressor, max_length: int) -> bytes:
        if member.needs_input and not self._packed and not self._pull():
            raise invalid_disk(f"{self._name} is cut short", "fetch or make it again")
        packed, self._packed = (self._packed, b"") if member.needs_input else (b"", self._packed)
        try:
            return member.decompress(packed, max_length=max_length)
        except (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError) as error:
            raise invalid_disk(f"{self._name} is damaged: {describe(error)}") from error

    def _next_member(self, ended: _Decompressor) -> bool:
        """Start the next of several concatenated members, which may be padded with zeros."""
        self._packed = (ended.unused_data + self._packed).lstrip(b"\0")
        while len(self._packed) < _MAX_MAGIC and self._pull():
            self._packed = self._packed.lstrip(b"\0")
        if not self._packed:
            return False
        self._member = _decompressor(self._packed)
        if self._member is None:
            raise invalid_disk(f"{self._name} is damaged: something else follows its end")
        self._members += 1
        if self._members > _MAX_MEMBERS + self._unpacked_bytes // _MIN_MEMBER_BYTES:
            raise _bomb(f"{self._name} has {self._members} compressed members with next to nothing")
        return True

    def _check_size(self) -> None:
        limits, size = self._limits, self._unpacked_bytes
        if size > limits.unpacked_bytes:
            raise _bomb(f"{self._name} expands to more than {limits.unpacked_bytes} bytes")
        if size > limits.ratio_from_bytes and size > limits.ratio * self._read_bytes:
            raise _bomb(f"{self._name} expands more than {limits.ratio} times")


def _bomb(message: str) -> ImageError:
    return invalid_disk(message, "it looks like a decompression bomb; pack the disk as qcow2")


def write_sparse(target: Path, chunks: Iterable[bytes], limits: Limits, name: str) -> None:
    """Write chunks of up to 64 KiB to a new file, leaving holes for chunks of zeros."""
    size = occupied = 0
    with target.open("wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if chunk == _ZEROS[: len(chunk)]:
                file.seek(len(chunk), 1)
                continue
            occupied += len(chunk)
            if occupied > limits.disk_bytes:
                raise invalid_disk(f"{name} occupies more than {limits.disk_bytes} bytes")
            file.write(chunk)
        file.truncate(size)


def chunks_of(stream: Stream) -> Iterable[bytes]:
    """Yield the rest of a stream in blocks."""
    while chunk := stream.read(BLOCK):
        yield chunk
