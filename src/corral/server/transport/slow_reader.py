"""Detection of clients that do not read what they are sent; slow readers are fine."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from corral import sockets

UNREAD_SECONDS: Final = 60.0
"""Time for which a client may leave data unread, before its connection is aborted."""


class StallTimer:
    """Calls ``stalled`` when a client has read nothing for a while.

    Progress is what the client's kernel acknowledges: buffers are written in large pieces, for
    which a slow client may need minutes.
    """

    def __init__(
        self, transport: asyncio.Transport, seconds: float, stalled: Callable[[], Any]
    ) -> None:
        self._socket: sockets.Socket | None = transport.get_extra_info("socket")
        self._seconds = seconds
        self._stalled = stalled
        self._loop = asyncio.get_running_loop()
        self._acknowledged = self._count()
        self._timer = self._loop.call_later(seconds, self._check)

    def cancel(self) -> None:
        """Stop watching the client."""
        self._timer.cancel()

    def _check(self) -> None:
        previous, self._acknowledged = self._acknowledged, self._count()
        if self._acknowledged == previous:
            self._stalled()
        else:
            self._timer = self._loop.call_later(self._seconds, self._check)

    def _count(self) -> int:
        return sockets.acknowledged(self._socket) if self._socket is not None else 0


class SlowReaderProtocol(asyncio.Protocol):
    """A mixin that aborts a connection if the client stops reading while the server writes."""

    transport: Any
    _stall_timer: StallTimer | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # not close(), which waits until all is sent
        self._stall_timer = StallTimer(self.transport, UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        super().resume_writing()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
