"""Sends what is written in one turn of the event loop together."""

import asyncio
from typing import Any

GATHERED_BYTES = 64 << 10
"""What is written and not sent before the loop's next turn, at most."""


class Gathering:
    """A transport that sends what is written in one turn of the loop together.

    An answer's head and body are written one after the other; sent apart, each would be encrypted
    and handed to the kernel for itself, which is a fifth of what a small request costs.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # asked of each answer
        self._loop = loop
        self._written: list[bytes] = []
        self._size = 0

    def write_whole(self, data: bytes) -> None:
        """Write what nothing is to come after in this turn: it is sent at once."""
        self._written.append(data)
        self._size += len(data)
        self._send()

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)
        self._size += len(data)
        if self._size >= GATHERED_BYTES:  # now, so that who writes much learns who does not read
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        written, size = self._written, self._size
        self._written, self._size = [], 0
        if not written or self.is_closing():
            return
        if size < GATHERED_BYTES:
            self._transport.write(b"".join(written))
        else:
            self._transport.writelines(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
