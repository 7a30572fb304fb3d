"""What sockets tell of the other side, and what they do about one that has gone without a word."""

import fcntl
import socket
import struct
import termios
from contextlib import suppress
from typing import Final, Protocol

_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
_ASK_SECONDS: Final = 30
_COUNT: Final = struct.Struct("i")
_BYTES_ACKED: Final = struct.Struct("=120xQ")  # tcpi_bytes_acked of struct tcp_info, linux/tcp.h


class Socket(Protocol):
    """As much of a socket as asyncio's transports show, too."""

    @property
    def family(self) -> int: ...

    def fileno(self) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def keep_alive(connected: Socket, seconds: int) -> None:
    """Let the kernel ask a side that is silent whether it is there; for so long it may say nothing.

    Else nothing tells of one that was switched off, or of a way that was cut.
    """
    if connected.family not in _INTERNET:
        return
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _ASK_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASK_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, seconds // _ASK_SECONDS)),
    ):
        connected.setsockopt(level, option, value)


def give_up(connected: Socket, seconds: int) -> None:
    """Let the kernel end a connection whose other side takes nothing of what it is sent so long.

    It would go on for a quarter of an hour where nobody answers (tcp(7), TCP_USER_TIMEOUT).
    """
    if connected.family in _INTERNET:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


def untaken(connected: Socket) -> int:
    """Bytes that were written and not taken by the other side yet (SIOCOUTQ; tcp(7))."""
    found: int
    (found,) = _COUNT.unpack(fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size)))
    return found


def acknowledged(connected: Socket) -> int:
    """Bytes that the other side's kernel has taken since the beginning; 0 where nobody counts."""
    with suppress(OSError, struct.error):
        told = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        taken: int
        (taken,) = _BYTES_ACKED.unpack(told)
        return taken
    return 0
