"""Heartbeats of the hosts that mount a shared directory: a file of each, which it writes anew.

    hosts/HOST    a token that changes with each heartbeat, and the node's name

The lease of a machine passes to another host only once the API says that the machine is over *and*
its host has been silent here: an administrator who deletes the Node of a host that still runs is
wrong about it, and this file knows better.

A host is silent as long as others *read* the same token.  Times are of the reader's own monotonic
clock, and a read that fails, or hangs, proves nothing: the directory may be away for all hosts, and
a reader come back before the writers.  Files are written in place and opened anew for each read,
which is when NFS compares a file with its server's (close-to-open).
"""

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.api.kinds.core import node_lease

INTERVAL_SECONDS: Final = 10.0
SILENT_SECONDS: Final = node_lease.WATCHDOG_SECONDS + 4.0
"""After which a host counts as silent: its watchdog has ended its machines by then."""
MAX_GAP_SECONDS: Final = 3 * INTERVAL_SECONDS
"""Between two reads of a token; after a longer time its host is observed anew."""
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class _Observed:
    """A host's heartbeat: the content, and when it was read first, and last without a gap."""

    content: bytes
    first: float
    last: float


class HostHeartbeats:
    """The heartbeats of a shared directory; ``host`` and ``node`` are this host's.

    The methods block; several threads may call them at a time.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        node: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory / "hosts"
        self._host = host
        self._node = node
        self._monotonic = monotonic
        self._observed: dict[str, _Observed] = {}
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def beat(self) -> None:
        """Write this host's heartbeat.  Raises OSError."""
        descriptor = os.open(self._directory / self._host, _FLAGS, 0o600)
        try:  # of one length: an overwritten file needs no space
            os.pwrite(descriptor, f"{secrets.token_hex(8)} {self._node}\n".encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def observe(self) -> bool:
        """Read the heartbeats of all hosts; return whether one has become silent.

        Raises OSError.
        """
        turned_silent = False
        for host in {*(each.name for each in self._directory.iterdir()), *self._observed.copy()}:
            before = self._observed.get(host)
            was_silent = before is not None and _is_silent(before)
            turned_silent |= _is_silent(self._read(host)) and not was_silent
        return turned_silent

    def is_silent(self, host: str) -> bool:
        """Report whether a host has not written for ``SILENT_SECONDS``, read anew.

        A host that has never been observed is observed from now on.  Raises OSError.
        """
        return _is_silent(self._read(host))

    def node_of(self, host: str) -> str:
        """Return the name of a host's node; its id if that is unknown."""
        found = self._observed.get(host)
        name = found.content.partition(b" ")[2].decode(errors="replace").strip() if found else ""
        return name or host

    def _read(self, host: str) -> _Observed:
        begun = self._monotonic()
        try:
            content = (self._directory / host).read_bytes()
        except FileNotFoundError:
            content = b""
        found = self._observed.get(host)
        if found is None or found.content != content or begun - found.last > MAX_GAP_SECONDS:
            now = self._monotonic()
            found = self._observed[host] = _Observed(content, now, now)
        else:
            found.last = begun
        return found


def _is_silent(heartbeat: _Observed) -> bool:
    return heartbeat.last - heartbeat.first >= SILENT_SECONDS
