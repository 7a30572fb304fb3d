"""What a hollow machine shows: a console that echoes, and a black screen."""

import asyncio
import struct
import zlib


class HollowLine:
    """Says something, then echoes what it is sent."""

    def __init__(self, greeting: bytes) -> None:
        self._printed: asyncio.Queue[bytes] = asyncio.Queue()
        self._printed.put_nowait(greeting)

    async def read(self) -> bytes:
        return await self._printed.get()

    async def write(self, data: bytes) -> None:
        self._printed.put_nowait(data)

    def close(self) -> None:
        self._printed.put_nowait(b"")


def _picture() -> bytes:
    """The smallest picture: one black point (PNG, second edition)."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


PICTURE = _picture()
