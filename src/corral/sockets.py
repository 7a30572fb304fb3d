"""TCP options and counters of sockets: keepalive, timeouts, acknowledged bytes."""

import fcntl
import socket
import struct
import termios
from contextlib import suppress
from typing import Final, Protocol

_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
_PROBE_SECONDS: Final = 30
_INT: Final = struct.Struct("i")
_BYTES_ACKED: Final = struct.Struct("=120xQ")  # tcpi_bytes_acked of struct tcp_info, linux/tcp.h


class Socket(Protocol):
    """The part of a socket that asyncio's transports have, too."""

    @property
    def family(self) -> int: ...

    def fileno(self) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def keep_alive(connected: Socket, seconds: int) -> None:
    """Let the kernel probe a silent peer, and end the connection after so many seconds of silence.

    Otherwise a peer without power, or a broken route, would never be noticed.
    """
    if connected.family in _INTERNET:
        probe_seconds = min(_PROBE_SECONDS, max(1, seconds // 2))
        for level, option, value in keep_alive_options(seconds, probe_seconds):
            connected.setsockopt(level, option, value)


def keep_alive_options(seconds: int, probe_seconds: int) -> list[tuple[int, int, int]]:
    """Return the options of ``keep_alive`` for a socket that is not open yet, with the interval."""
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe_seconds),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe_seconds),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, seconds // probe_seconds)),
    ]


def set_user_timeout(connected: Socket, seconds: int) -> None:
    """Let the kernel end a connection whose peer acknowledges no data for so many seconds.

    The default is a quarter of an hour (tcp(7), TCP_USER_TIMEOUT).
    """
    if connected.family in _INTERNET:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


def unacknowledged(connected: Socket) -> int:
    """Return the bytes that were written and not yet acknowledged (SIOCOUTQ; tcp(7))."""
    found: int
    (found,) = _INT.unpack(fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
    return found


def acknowledged(connected: Socket) -> int:
    """Return the bytes that the peer has acknowledged in total; 0 if the kernel does not count."""
    with suppress(OSError, struct.error):
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        count: int
        (count,) = _BYTES_ACKED.unpack(info)
        return count
    return 0
