"""Reads files that may be compressed, and writes disks with holes; neither without a bound.

Everything here blocks: call it through ``progress.in_thread``.
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
_PIECE = 1 << 16
"""What is read at once: less than all of it is copied for each compressed piece in it."""
_XZ_MEMORY = 256 << 20
_ZSTD_WINDOW_LOG = 27  # 128 MiB: what the zstd tool itself accepts unasked

_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BZIP2 = b"BZh"
_LONGEST_MAGIC = 6

_MOST_MEMBERS, _LEAST_OF_A_MEMBER = 1000, 512
"""Compressed files after one another: so many, and one more for each so many bytes of content.
Tools that pack in pieces make them of a file of a layer, or of 64 KiB; empty ones would keep a
processor busy for as long as there are any."""


class _Decompressor(Protocol):
    """What bz2's, lzma's and zstd's decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _Gunzip:
    """zlib's decompressor, which is older than the common form."""

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
    """The plain bytes of a file that is gzip, xz, zstd or bzip2 compressed, or not at all.

    Raises ImageError ``InvalidDisk`` when the stream is damaged, cut short, or expands beyond the
    limits.  ``name`` is what such an error calls it.
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
        """Up to ``count`` bytes, less only at the end."""
        while len(self._plain) < count and self._more(count - len(self._plain)):
            pass
        piece = bytes(self._plain[:count])
        del self._plain[:count]
        return piece

    def _pull(self) -> bool:
        piece = self._file.read(_PIECE)
        self._meter.advance(len(piece))
        self._read_bytes += len(piece)
        self._packed += piece
        return bool(piece)

    def _more(self, wanted: int) -> bool:
        """Add plain bytes; False at the end of the file."""
        if self._member is None:
            if not self._packed and not self._pull():
                return False
            plain, self._packed = self._packed, b""
        else:
            if self._member.eof and not self._next_member(self._member):
                return False
            plain = self._inflate(self._member, max(wanted, BLOCK))
        self._plain += plain
        self._unpacked_bytes += len(plain)
        self._check_size()
        return True

    def _inflate(self, member: _Decompressor, wanted: int) -> bytes:
        if member.needs_input and not self._packed and not self._pull():
            raise invalid_disk(f"{self._name} is cut short", "fetch or make it again")
        packed, self._packed = (self._packed, b"") if member.needs_input else (b"", self._packed)
        try:
            return member.decompress(packed, max_length=wanted)
        except (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError) as error:
            raise invalid_disk(f"{self._name} is damaged: {describe(error)}") from error

    def _next_member(self, ended: _Decompressor) -> bool:
        """Compressed files may be several after one another, and be padded with zeros."""
        self._packed = (ended.unused_data + self._packed).lstrip(b"\0")
        while len(self._packed) < _LONGEST_MAGIC and self._pull():
            self._packed = self._packed.lstrip(b"\0")
        if not self._packed:
            return False
        self._member = _decompressor(self._packed)
        if self._member is None:
            raise invalid_disk(f"{self._name} is damaged: something else follows its end")
        self._members += 1
        if self._members > _MOST_MEMBERS + self._unpacked_bytes // _LEAST_OF_A_MEMBER:
            raise _bomb(f"{self._name} is {self._members} compressed pieces with next to nothing")
        return True

    def _check_size(self) -> None:
        limits, size = self._limits, self._unpacked_bytes
        if size > limits.unpacked_bytes:
            raise _bomb(f"{self._name} expands to more than {limits.unpacked_bytes} bytes")
        if size > limits.ratio_from_bytes and size > limits.ratio * self._read_bytes:
            raise _bomb(f"{self._name} expands more than {limits.ratio} times")


def _bomb(message: str) -> ImageError:
    return invalid_disk(message, "it looks like a decompression bomb; pack the disk as qcow2")


def write_sparse(target: Path, pieces: Iterable[bytes], limits: Limits, name: str) -> None:
    """Write pieces of up to 64 KiB to a new file, leaving holes for blocks of zeros."""
    size = occupied = 0
    with target.open("wb") as file:
        for piece in pieces:
            size += len(piece)
            if piece == _ZEROS[: len(piece)]:
                file.seek(len(piece), 1)
                continue
            occupied += len(piece)
            if occupied > limits.disk_bytes:
                raise invalid_disk(f"{name} occupies more than {limits.disk_bytes} bytes")
            file.write(piece)
        file.truncate(size)


def pieces_of(stream: Stream) -> Iterable[bytes]:
    """All that is left of a stream, in blocks."""
    while piece := stream.read(BLOCK):
        yield piece
