"""Answers a guest's DHCP requests and router solicitations, in the pod's namespace."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Never

import structlog

from corral.node.network.dhcp import advertisement, dhcp4, dhcp6
from corral.node.network.dhcp.sockets import (
    MAX_REQUEST_BYTES,
    dhcp4_socket,
    dhcp6_socket,
    from_address,
    hop_limit,
    solicitation_socket,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from corral.node.network.dhcp.lease import Lease, Lease6, Link

log = structlog.get_logger(__name__)

REPLIES_PER_SECOND = 10.0
"""Sustained rate of a guest's requests; one that boots sends some five packets."""

BURST = 20
"""Burst of a guest's requests."""

ADVERTISE_SECONDS = 600.0
"""Interval of advertisements, as RFC 4861 suggests; their lifetimes are many times as long."""

_ANCILLARY_BYTES = 64


class Responder:
    """Answers one guest's DHCP, DHCPv6 and router solicitations.

    ``open`` in the pod's namespace, ``start`` in the event loop, then ``close``.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._handlers: dict[socket.socket, Callable[[socket.socket], None]] = {}
        self._solicitations: socket.socket | None = None
        self._token_bucket = TokenBucket(REPLIES_PER_SECOND, BURST)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        self._has_logged_rate_limit = False

    def open(self) -> None:
        """Open the sockets, in the namespace of the calling thread (see ``Namespace.call``).

        Raises OSError if the device does not exist, or has no link-local address although the link
        has IPv6; ``close`` closes what was opened.
        """
        device, lease, lease6 = self._link.device, self._link.lease, self._link.lease6
        if lease is not None:
            self._handlers[dhcp4_socket(device)] = lambda socket_: self._dhcp4(socket_, lease)
        if lease6 is not None:
            self._handlers[dhcp6_socket(device)] = lambda socket_: self._dhcp6(socket_, lease6)
            self._solicitations = solicitation_socket(device)
            self._handlers[self._solicitations] = lambda socket_: self._router_solicitation(
                socket_, lease6
            )

    def start(self) -> None:
        """Start to answer requests, and send a first router advertisement."""
        self._loop = asyncio.get_running_loop()
        self._read_sockets(self._loop)
        self.advertise()

    def close(self) -> None:
        """Close the sockets; in any state, repeatedly, and before ``start`` in any thread."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        if self._loop is not None:
            self._pause_reading(self._loop)
        for socket_ in self._handlers:
            socket_.close()
        self._handlers.clear()
        self._solicitations = None

    def advertise(self) -> None:
        """Send a router advertisement, if the guest has an IPv6 address."""
        if self._solicitations is not None and self._link.lease6 is not None:
            with suppress(OSError):
                self._advertise(self._solicitations, self._link.lease6)

    def _read_sockets(self, loop: asyncio.AbstractEventLoop) -> None:
        for socket_ in self._handlers:
            loop.add_reader(socket_, self._read, socket_, loop)

    def _pause_reading(self, loop: asyncio.AbstractEventLoop) -> None:
        for socket_ in self._handlers:
            loop.remove_reader(socket_)

    def _read(self, socket_: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Answer one request; the loop calls it again for the next, after other callbacks."""
        if wait_seconds := self._token_bucket.acquire(loop.time()):
            self._pause_reading(loop)
            self._resume_timer = loop.call_later(wait_seconds, self._read_sockets, loop)
            self._log_rate_limit()
            return
        # A reply is lost if the device is full or gone; the guest repeats its request.
        with suppress(OSError):
            self._handlers[socket_](socket_)

    def _dhcp4(self, socket_: socket.socket, lease: Lease) -> None:
        reply = dhcp4.reply(socket_.recv(MAX_REQUEST_BYTES), lease, _mac(self._link.guest))
        if reply is not None:
            target = (str(dhcp4.destination(reply)), dhcp4.CLIENT_PORT)
            socket_.sendmsg([reply], from_address(lease.server), 0, target)

    def _dhcp6(self, socket_: socket.socket, lease: Lease6) -> None:
        request, (source, _port, _flow, scope) = socket_.recvfrom(MAX_REQUEST_BYTES)
        reply = dhcp6.reply(request, lease, _mac(self._link.router))
        if reply is not None:
            socket_.sendto(reply, (source, dhcp6.CLIENT_PORT, 0, scope))

    def _router_solicitation(self, socket_: socket.socket, lease: Lease6) -> None:
        data, ancillary, _flags, _source = socket_.recvmsg(MAX_REQUEST_BYTES, _ANCILLARY_BYTES)
        if advertisement.is_solicitation(data, hop_limit(ancillary)):
            self._advertise(socket_, lease)

    def _advertise(self, socket_: socket.socket, lease: Lease6) -> None:
        message = advertisement.advertise(lease, _mac(self._link.router))
        socket_.sendto(message, (str(advertisement.ALL_NODES), 0))

    def _log_rate_limit(self) -> None:
        if not self._has_logged_rate_limit:
            self._has_logged_rate_limit = True
            log.warning(
                "a guest exceeds the rate of DHCP requests; some are not answered",
                guest=self._link.guest,
                replies_per_second=REPLIES_PER_SECOND,
            )


async def advertise(responders: Callable[[], Iterable[Responder]]) -> Never:
    """Send router advertisements of all responders, periodically."""
    while True:
        await asyncio.sleep(ADVERTISE_SECONDS)
        for responder in list(responders()):
            responder.advertise()
            await asyncio.sleep(0)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


class TokenBucket:
    """A token bucket: a sustained rate per second, and a burst."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._updated = 0.0

    def acquire(self, now: float) -> float:
        """Take a token at the time ``now`` and return 0, or return the seconds to wait.

        After the wait half of the burst is available, so that one wake-up serves many requests.
        """
        self._tokens = min(
            self._burst, self._tokens + max(0.0, now - self._updated) * self._per_second
        )
        self._updated = now
        if self._tokens < 1:
            return (self._burst / 2 - self._tokens) / self._per_second
        self._tokens -= 1
        return 0.0
