"""Sockets that a QEMU connects to, for streams that this process opens for it.

QEMU finds no path of the host (``chroot``), and cannot connect to a named descriptor in every place
that takes an address.  It does reach abstract sockets of its network namespace, where nobody else
is; without a namespace of its own, other processes of the host are refused.
"""

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from corral.aio import Background, own_thread
from corral.node.host.linux_namespaces import CLONE_NEWNET, enter

_READ_BYTES = 256 << 10
"""More than a socket holds."""
_CREDENTIALS = struct.Struct("iII")  # struct ucred (unix(7))

Open = Callable[[], Awaitable[socket.socket]]
"""Opens the stream that a connection is relayed to; non-blocking."""


class StreamListener:
    """A socket for one connection of the QEMU with this pid, relayed to what ``open_`` opens."""

    def __init__(self, pid: int, name: str, listening: socket.socket, open_: Open) -> None:
        self._pid = pid
        self._name = name
        self._listening = listening
        self._open = open_

    @classmethod
    async def create(cls, pid: int, open_: Open) -> "StreamListener":
        """Listen where the QEMU can connect to.  Raises OSError."""
        name = f"corral-{secrets.token_hex(8)}"
        return cls(pid, name, await own_thread(_listen, pid, name), open_)

    @property
    def address(self) -> dict[str, object]:
        """QEMU's SocketAddress."""
        return {"type": "unix", "path": self._name, "abstract": True, "tight": True}

    async def run(self) -> None:
        """Relay QEMU's connection until both sides have closed it.  Raises GuestError, OSError."""
        loop = asyncio.get_running_loop()
        with self._listening:
            while True:
                ours, _ = await loop.sock_accept(self._listening)
                if self._is_expected(ours):
                    break
                ours.close()
        with ours, await self._open() as theirs:
            await _relay(ours, theirs)

    def _is_expected(self, connected: socket.socket) -> bool:
        raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(raw)[0] == self._pid)


async def _relay(ours: socket.socket, theirs: socket.socket) -> None:
    """Copy both ways until both have ended, or one has failed.  Raises OSError."""
    failure: OSError | None = None
    async with Background() as tasks:
        forth = tasks.start(_copy(ours, theirs), name="to the target")
        back = tasks.start(_copy(theirs, ours), name="from the target")
        for ended in asyncio.as_completed((forth, back)):
            if (failure := await ended) is not None:
                break
    if failure is not None:
        raise failure


async def _copy(source: socket.socket, sink: socket.socket) -> OSError | None:
    """Copy until the end of a stream; return why it has failed: a task group would wrap it."""
    loop = asyncio.get_running_loop()
    try:
        # Released here: the frame of a cancelled task waits for the garbage collector.
        with memoryview(bytearray(_READ_BYTES)) as buffer:
            while length := await loop.sock_recv_into(source, buffer):
                with buffer[:length] as part:
                    await loop.sock_sendall(sink, part)
        sink.shutdown(socket.SHUT_WR)
    except OSError as error:
        return error
    return None


def _listen(pid: int, name: str) -> socket.socket:
    """Listen on an abstract name in the network namespace of a process.

    In a thread of its own, which may not return from there.
    """
    theirs = f"/proc/{pid}/ns/net"
    if not Path(theirs).samefile("/proc/thread-self/ns/net"):
        descriptor = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(descriptor, CLONE_NEWNET)
        finally:
            os.close(descriptor)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.bind(f"\0{name}")
        listening.listen(1)
    except BaseException:
        listening.close()
        raise
    return listening
