"""Tells systemd how a service is, where one started us (sd_notify(3))."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_VARIABLE = "NOTIFY_SOCKET"


class Notifier:
    """Speaks to who started us; silent where nobody asked."""

    def __init__(self, connected: socket.socket | None) -> None:
        self._connected = connected

    def ready(self, status: str) -> None:
        """Say that the service is up; ``systemctl status`` shows the status."""
        self._say(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """Say that the service is about to end."""
        self._say("STOPPING=1")

    def _say(self, state: str) -> None:
        if self._connected is not None:
            with suppress(OSError):  # nobody listens any more: nothing is lost
                self._connected.send(state.encode())


@contextmanager
def notifying() -> Iterator[Notifier]:
    """The notifier of this process, which says at the end of the block that the service ends.

    To be called before the process changes namespaces: abstract sockets belong to one.  What is
    started by it is not to speak for it, so the variable goes.
    """
    address = os.environ.pop(_VARIABLE, "")
    connected = _connected(address)
    notifier = Notifier(connected)
    try:
        yield notifier
    finally:
        notifier.stopping()
        if connected is not None:
            connected.close()


def _connected(address: str) -> socket.socket | None:
    if address[:1] not in ("/", "@"):
        return None
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        made.close()
        return None
    return made
