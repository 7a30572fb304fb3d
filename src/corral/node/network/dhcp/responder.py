"""Answers a guest's card, from sockets in the pod's namespace; thin: the codecs decide."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Never

import structlog

from corral.node.network.dhcp import advertisement, dhcp4, dhcp6
from corral.node.network.dhcp.sockets import (
    LONGEST,
    from_address,
    hear_dhcp4,
    hear_dhcp6,
    hear_solicitations,
    hops_left,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from corral.node.network.dhcp.lease import Lease, Lease6, Link

log = structlog.get_logger(__name__)

ANSWERS_A_SECOND = 10.0
"""What a guest may ask for in the long run; one that boots sends some five packets."""

BURST = 20
"""What it may ask for at once."""

ADVERTISE_SECONDS = 600.0
"""Between two advertisements, as RFC 4861 suggests; they are valid for many times as long."""

_ANCILLARY_BYTES = 64


class Responder:
    """Answers one guest's DHCP, DHCPv6 and router solicitations.

    `open` inside the pod's namespace, `start` in the event loop, then `close`.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._answers: dict[socket.socket, Callable[[socket.socket], None]] = {}
        self._solicitations: socket.socket | None = None
        self._allowance = Allowance(ANSWERS_A_SECOND, BURST)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._has_said_so = False

    def open(self) -> None:
        """Makes the sockets, in the namespace of the calling thread (see `Namespace.call`).

        Raises OSError if the device is not there, or lacks a link-local address where the link
        has IPv6; what was made before is closed by `close`.
        """
        device, lease, lease6 = self._link.device, self._link.lease, self._link.lease6
        if lease is not None:
            self._answers[hear_dhcp4(device)] = lambda heard: self._dhcp4(heard, lease)
        if lease6 is not None:
            self._answers[hear_dhcp6(device)] = lambda heard: self._dhcp6(heard, lease6)
            self._solicitations = hear_solicitations(device)
            self._answers[self._solicitations] = lambda heard: self._solicited(heard, lease6)

    def start(self) -> None:
        """Answers from now on, and tells the guest of its router unasked."""
        self._loop = asyncio.get_running_loop()
        self._listen(self._loop)
        self.advertise()

    def close(self) -> None:
        """May be called in any state, more than once; before `start` in any thread."""
        if self._pause is not None:
            self._pause.cancel()
        if self._loop is not None:
            self._ignore(self._loop)
        for heard in self._answers:
            heard.close()
        self._answers.clear()
        self._solicitations = None

    def advertise(self) -> None:
        """Tells the guest of its router; nothing where it has no IPv6 address."""
        if self._solicitations is not None and self._link.lease6 is not None:
            with suppress(OSError):
                self._advertise(self._solicitations, self._link.lease6)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        for heard in self._answers:
            loop.add_reader(heard, self._read, heard, loop)

    def _ignore(self, loop: asyncio.AbstractEventLoop) -> None:
        for heard in self._answers:
            loop.remove_reader(heard)

    def _read(self, heard: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Answers one request; the loop comes back for the next, after all others' turns."""
        if wait_seconds := self._allowance.take(loop.time()):
            self._ignore(loop)
            self._pause = loop.call_later(wait_seconds, self._listen, loop)
            self._say_so()
            return
        # A device that is full or gone loses an answer, which the guest then asks for again.
        with suppress(OSError):
            self._answers[heard](heard)

    def _dhcp4(self, heard: socket.socket, lease: Lease) -> None:
        reply = dhcp4.answer(heard.recv(LONGEST), lease, _mac(self._link.guest))
        if reply is not None:
            target = (str(dhcp4.destination(reply)), dhcp4.CLIENT_PORT)
            heard.sendmsg([reply], from_address(lease.server), 0, target)

    def _dhcp6(self, heard: socket.socket, lease: Lease6) -> None:
        request, (source, _port, _flow, scope) = heard.recvfrom(LONGEST)
        reply = dhcp6.answer(request, lease, _mac(self._link.router))
        if reply is not None:
            heard.sendto(reply, (source, dhcp6.CLIENT_PORT, 0, scope))

    def _solicited(self, heard: socket.socket, lease: Lease6) -> None:
        data, ancillary, _flags, _source = heard.recvmsg(LONGEST, _ANCILLARY_BYTES)
        if advertisement.is_solicitation(data, hops_left(ancillary)):
            self._advertise(heard, lease)

    def _advertise(self, heard: socket.socket, lease: Lease6) -> None:
        message = advertisement.write(lease, _mac(self._link.router))
        heard.sendto(message, (str(advertisement.ALL_NODES), 0))

    def _say_so(self) -> None:
        if not self._has_said_so:
            self._has_said_so = True
            log.warning(
                "a guest asks for its address too often; not all is answered",
                guest=self._link.guest,
                answers_a_second=ANSWERS_A_SECOND,
            )


async def advertise(responders: Callable[[], Iterable[Responder]]) -> Never:
    """Tells all guests of their routers again, now and then; run once for all of them."""
    while True:
        await asyncio.sleep(ADVERTISE_SECONDS)
        for responder in list(responders()):
            responder.advertise()
            await asyncio.sleep(0)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


class Allowance:
    """A token bucket: so many times a second in the long run, and `burst` times at once."""

    def __init__(self, a_second: float, burst: int) -> None:
        self._a_second = a_second
        self._burst = burst
        self._left = float(burst)
        self._at = 0.0

    def take(self, now: float) -> float:
        """Takes one at the time `now` and answers 0, or answers how many seconds to wait.

        Then half of the burst is there again, so that waiting pays.
        """
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            return (self._burst / 2 - self._left) / self._a_second
        self._left -= 1
        return 0.0
