"""Whether a client takes what it is sent, be it ever so slowly."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from corral import sockets

UNREAD_SECONDS: Final = 60.0
"""How long a client may leave what it was sent unread, before its connection is torn down."""


class Uptake:
    """Calls ``lost`` when a client has taken nothing for a while.

    What counts is what its kernel has acknowledged: what is written comes out of a connection's
    buffers in large pieces, for which a slow client may need minutes.
    """

    def __init__(
        self, transport: asyncio.Transport, seconds: float, lost: Callable[[], Any]
    ) -> None:
        self._socket: sockets.Socket | None = transport.get_extra_info("socket")
        self._seconds = seconds
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._taken = self._count()
        self._timer = self._loop.call_later(seconds, self._look)

    def cancel(self) -> None:
        """It need not take anything any more."""
        self._timer.cancel()

    def _look(self) -> None:
        before, self._taken = self._taken, self._count()
        if self._taken == before:
            self._lost()
        else:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def _count(self) -> int:
        return sockets.acknowledged(self._socket) if self._socket is not None else 0


class Unread(asyncio.Protocol):
    """Of a protocol: tears its connection down where the client leaves unread what it was sent."""

    transport: Any
    _unread: Uptake | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._was_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # not close(): that would wait until all is read
        self._unread = Uptake(self.transport, UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._was_read()
        super().resume_writing()

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
