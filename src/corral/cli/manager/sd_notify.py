"""Service notifications to systemd (sd_notify(3))."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Sends notifications, if systemd started this process with a socket for them."""

    def __init__(self, connected: socket.socket | None) -> None:
        self._connected = connected

    def ready(self, status: str) -> None:
        """Report the service as started; ``systemctl status`` shows the status text."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """Report the service as stopping."""
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if self._connected is not None:
            with suppress(OSError):  # notifications are best effort
                self._connected.send(state.encode())


@contextmanager
def notifying() -> Iterator[Notifier]:
    """Open the notifier of this process; report stopping at the end of the block.

    Call this before the process changes namespaces: an abstract socket belongs to a network
    namespace.  Removes the variable, since children must not notify for this process.
    """
    address = os.environ.pop(_VARIABLE, "")
    connected = _connect(address)
    notifier = Notifier(connected)
    try:
        yield notifier
    finally:
        notifier.stopping()
        if connected is not None:
            connected.close()


def _connect(address: str) -> socket.socket | None:
    if address[:1] not in ("/", "@"):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        connection.close()
        return None
    return connection
