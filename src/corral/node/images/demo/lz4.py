"""LZ4's legacy format, which kernels are compressed with: blocks of at most 8 MiB.

Uses the system's liblz4, on which apt depends. The format is in LZ4's lz4_Frame_format.md.
"""

from __future__ import annotations

import ctypes
import struct

_MAGIC = b"\x02\x21\x4c\x18"
_BLOCK_BYTES = 8 * 1024 * 1024
_LIBRARY = "liblz4.so.1"
_LEVEL = 12  # the best


def is_legacy(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def unpack(data: bytes) -> bytes:
    """Decompress `data`. Raises ValueError if it is damaged, or liblz4 is not installed."""
    library = _library()
    out, at = bytearray(), len(_MAGIC)
    block = ctypes.create_string_buffer(_BLOCK_BYTES)
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        packed = data[at + 4 : at + 4 + size]
        length = library.LZ4_decompress_safe(packed, block, len(packed), _BLOCK_BYTES)
        if len(packed) != size or length < 0:
            raise ValueError("damaged LZ4 data")
        out += memoryview(block)[:length]
        at += 4 + size
    return bytes(out)


def pack(data: bytes) -> bytes:
    """Compress `data`. Raises ValueError if liblz4 is not installed."""
    starts = range(0, len(data), _BLOCK_BYTES)
    blocks = [pack_block(data[start : start + _BLOCK_BYTES]) for start in starts]
    return _MAGIC + b"".join(struct.pack("<I", len(block)) + block for block in blocks)


def pack_block(data: bytes) -> bytes:
    """Compress `data` to one block, without header. Raises ValueError as `pack` does."""
    library = _library()
    out = ctypes.create_string_buffer(library.LZ4_compressBound(len(data)))
    size = library.LZ4_compress_HC(data, out, len(data), len(out), _LEVEL)
    return bytes(memoryview(out)[:size])


def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise ValueError(f"{_LIBRARY} is not installed: install liblz4-1") from error
