"""Coalescing of writes within one iteration of the event loop."""

import asyncio
from typing import Any

MAX_BUFFERED_BYTES = 64 << 10
"""Limit of data that waits for the loop's next iteration."""


class CoalescingTransport:
    """A transport that sends the writes of one iteration of the loop together.

    uvicorn writes a response's head and body separately; encrypting and sending each by itself is a
    fifth of the cost of a small request.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # called for each response
        self._loop = loop
        self._buffer: list[bytes] = []
        self._size = 0

    def write_and_flush(self, data: bytes) -> None:
        """Write data that is the last of this iteration, and send it at once."""
        self._buffer.append(data)
        self._size += len(data)
        self._flush()

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer.append(data)
        self._size += len(data)
        if (
            self._size >= MAX_BUFFERED_BYTES
        ):  # now, so that the writer is paused if the client does not read
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        buffer, size = self._buffer, self._size
        self._buffer, self._size = [], 0
        if not buffer or self.is_closing():
            return
        if size < MAX_BUFFERED_BYTES:
            self._transport.write(b"".join(buffer))
        else:
            self._transport.writelines(buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
