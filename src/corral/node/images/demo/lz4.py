"""Unpacks what kernels are compressed by: LZ4's legacy format, blocks of at most 8 MiB.

It asks for the system's own library, which apt brings along wherever there is one. The format is
in LZ4's lz4_Frame_format.md.
"""

from __future__ import annotations

import ctypes
import struct

_MAGIC = b"\x02\x21\x4c\x18"
_BLOCK_BYTES = 8 * 1024 * 1024
_LIBRARY = "liblz4.so.1"


def is_legacy(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def unpack(data: bytes) -> bytes:
    """Raises ValueError if `data` is damaged, or the library is not on this machine."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise ValueError(f"{_LIBRARY} is not on this machine: install liblz4-1") from error
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
