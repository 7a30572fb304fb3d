"""Unix sockets with paths longer than a socket address may be (108 bytes)."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Provide a short path to the same file, through a descriptor of its directory."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def listen(path: Path) -> socket.socket:
    """Listen on a path, in place of a socket that an earlier process left there."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as short:
            listening.bind(short)
        path.chmod(0o600)
        listening.listen(1)
    except BaseException:
        listening.close()
        raise
    return listening


def connect(path: Path) -> socket.socket:
    """Connect to the socket at a path; non-blocking from then on.

    A unix socket connects at once or not at all, so this does not wait.  Raises OSError
    (ConnectionRefusedError if nobody listens, BlockingIOError if the backlog is full).
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.setblocking(False)  # noqa: FBT003
    try:
        with _short(path) as short:
            connected.connect(short)
    except BaseException:
        connected.close()
        raise
    return connected


class Connection:
    """A connection to the socket at a path, reused while the peer keeps it open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: socket.socket | None = None

    def duplicate(self) -> socket.socket:
        """Return a duplicate of the connection, to be closed by the caller.  Raises OSError."""
        if self._kept is None or not _is_open(self._kept):
            self.close()
            self._kept = connect(self._path)
        return self._kept.dup()

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
