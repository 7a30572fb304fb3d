"""Turns: a flood of requests from one user does not keep the others waiting.

In the spirit of Kubernetes' API priority and fairness.  A request needs seats while it is carried
out.  Those of one user form a flow, reads and writes apart; where seats are missing, flows take
turns.  One loop carries out everything, so a seat is free again only in that loop's next turn:
between two turns all who have something to ask are heard.

Who asks somebody outside gives the seats back meanwhile: that somebody may need them.

What users have the server hold is bounded likewise: bodies until they are carried out, and answers
until they are read.

Components of this process never wait.  Administrators take their turns like everybody, but are
never refused.  A watch has its seats only until it begins.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from corral.api.errors import Details, TooManyRequests
from corral.api.request import Request
from corral.server.authn.authenticator import ADMINISTRATORS
from corral.server.authn.service_accounts import counted_as
from corral.server.flowcontrol.memory_budget import SMALL_BYTES, Budget, size_of_body
from corral.server.request import query
from corral.server.request.call import Call, storage
from corral.store import Store

T = TypeVar("T")

SEATS = 64
SHARE = 32
"""Seats that one flow has at most: what waits for somebody else leaves room for that somebody."""
MOST_ASIDE = 256
"""Requests of one flow for which somebody outside may be asked at the same time."""
WIDEST = 16
OBJECTS_A_SEAT = 500
"""A list takes a seat more for each so many objects: it keeps the loop that much longer."""
BYTES_A_SEAT = 64 << 10
"""A body takes a seat more for each so many bytes, likewise: at most two of the largest are read in
one turn of the loop."""
LONGEST_QUEUE = 512
"""Requests of one flow that may wait."""
PATIENCE_SECONDS = 15.0
"""How long a request waits for its turn before it is refused, as in the real server."""
RETRY_SECONDS = 1

BODIES = 32 << 20, 256 << 20
"""Bytes of the bodies of one user, and of all."""
ANSWERS = 64 << 20, 512 << 20
"""Bytes of answers that are on their way to one user, and to all: a list is not begun beyond it."""

_ANSWERED = frozenset({"get", "list"})
_READS = frozenset({"get", "list", "watch"})


@dataclass(slots=True, eq=False)
class Flow:
    """The requests of one user: how many seats they have, and those that wait for some."""

    name: tuple[str, bool]
    seats: int = 0
    aside: int = 0
    waiting: "deque[_Waiter]" = field(default_factory=deque)

    def fits(self, width: int) -> bool:
        return self.seats + width <= SHARE


@dataclass(slots=True, eq=False)
class _Waiter:
    width: int
    turn: asyncio.Future[None]


class _Turn:
    """The seats of one request, from when it begins to when it ends."""

    __slots__ = ("_flow", "_is_seated", "_turns", "_width")

    def __init__(self, turns: "Fairness", flow: Flow, width: int) -> None:
        self._turns = turns
        self._flow = flow
        self._width = width
        self._is_seated = True

    @asynccontextmanager
    async def aside(self) -> AsyncGenerator[None, None]:
        """Be without seats while somebody outside is asked.  Raises TooManyRequests."""
        flow = self._flow
        if flow.aside >= MOST_ASIDE:
            raise self._turns.refusal(flow)
        flow.aside += 1
        self.end()
        try:
            yield
            await self._turns.again(flow, self._width)
            self._is_seated = True
        finally:
            flow.aside -= 1
            self._turns.forget(flow)

    def end(self) -> None:
        """Give the seats back."""
        if self._is_seated:
            self._is_seated = False
            self._turns.leave(self._flow, self._width)


class Fairness:
    """Lets requests to a store have their turns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free = SEATS
        self._flows: dict[tuple[str, bool], Flow] = {}
        self._queue: deque[Flow] = deque()
        """Flows of which something waits, in the order of their turns."""
        self._leaving: list[tuple[Flow, int]] = []
        self._bodies = Budget(*BODIES)
        self.answers = Budget(*ANSWERS)
        self.refused = 0
        """Requests that were sent away so far."""

    @property
    def waiting(self) -> int:
        """Requests that wait at present."""
        return sum(len(flow.waiting) for flow in self._queue)

    @property
    def seats(self) -> int:
        """Seats that are taken."""
        return SEATS - self._free

    def body(self, request: Request, largest: int) -> AbstractContextManager[None]:
        """The block in which a body is read and carried out.  Raises TooManyRequests."""
        size = size_of_body(request, largest)
        if size > SMALL_BYTES:
            self._bodies.require_room(request.sender, size)
        return self._bodies.hold(request.sender, size)

    async def serve(self, call: Call, act: Callable[[Call], Awaitable[T]]) -> T:
        """Carry out a request when it is its turn.  Raises TooManyRequests."""
        if call.request.user is not None:
            return await act(call)
        name = (counted_as(call.user), call.verb in _READS)
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = Flow(name)
        width = self._width(call)
        if self._queue or self._free < width or not flow.fits(width):
            await self._wait(flow, width, bounded=ADMINISTRATORS not in call.user.groups)
        else:
            self._take(flow, width)
        turn = _Turn(self, flow, width)
        call.aside = turn.aside
        try:
            if call.verb in _ANSWERED:
                self.answers.require_room(call.request.sender)
            return await act(call)
        finally:
            turn.end()

    async def again(self, flow: Flow, width: int) -> None:
        """Take seats again, before others of the flow; nobody is refused half way."""
        if self._queue or self._free < width or not flow.fits(width):
            await self._wait(flow, width, bounded=False, first=True)
        else:
            self._take(flow, width)

    def _width(self, call: Call) -> int:
        """How many seats a request takes: one, and more for many objects.  Raises BadRequest."""
        if call.name or call.verb not in ("list", "deletecollection"):
            return min(1 + len(call.request.body) // BYTES_A_SEAT, SHARE)
        objects = self._store.count(storage(call.kind))
        limit = query.number(call.query, "limit") or objects
        return min(1 + min(objects, limit) // OBJECTS_A_SEAT, WIDEST)

    async def _wait(self, flow: Flow, width: int, *, bounded: bool, first: bool = False) -> None:
        if bounded and len(flow.waiting) >= LONGEST_QUEUE:
            raise self.refusal(flow)
        waiter = _Waiter(width, asyncio.get_running_loop().create_future())
        if not flow.waiting:
            self._queue.append(flow)
        if first:
            flow.waiting.appendleft(waiter)
        else:
            flow.waiting.append(waiter)
        self._seat()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if bounded else None):
                await waiter.turn
        except BaseException as error:
            self._give_up(flow, waiter)
            if isinstance(error, TimeoutError):
                raise self.refusal(flow) from None
            raise

    def _give_up(self, flow: Flow, waiter: _Waiter) -> None:
        """Whoever waited is gone: perhaps just as it became its turn."""
        if not waiter.turn.cancelled():
            self.leave(flow, waiter.width)
        elif waiter in flow.waiting:
            flow.waiting.remove(waiter)
            if not flow.waiting:
                self._queue.remove(flow)
            self.forget(flow)

    def refusal(self, flow: Flow) -> TooManyRequests:
        """What is told to somebody who is sent away."""
        self.refused += 1
        self.forget(flow)
        details = Details(retry_after_seconds=RETRY_SECONDS)
        return TooManyRequests("Too many requests, please try again later.", details=details)

    def _take(self, flow: Flow, width: int) -> None:
        flow.seats += width
        self._free -= width

    def leave(self, flow: Flow, width: int) -> None:
        """Give seats back, from the loop's next turn on."""
        if not self._leaving:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._leaving.append((flow, width))

    def _next_turn(self) -> None:
        leaving, self._leaving = self._leaving, []
        for flow, width in leaving:
            flow.seats -= width
            self._free += width
        if self._queue:
            self._seat()
        for flow, _ in leaving:
            self.forget(flow)

    def forget(self, flow: Flow) -> None:
        """Let go of a flow of which there is nothing left."""
        if not flow.seats and not flow.waiting and not flow.aside:
            self._flows.pop(flow.name, None)

    def _seat(self) -> None:
        """Give free seats to those who wait, flow by flow."""
        while (flow := self._first()) is not None:
            waiter = flow.waiting.popleft()
            self._queue.remove(flow)
            if flow.waiting:
                self._queue.append(flow)
            if not waiter.turn.done():  # else it is about to give up
                self._take(flow, waiter.width)
                waiter.turn.set_result(None)

    def _first(self) -> Flow | None:
        """The flow whose turn it is; None where it has to wait for more seats to become free.

        Who needs many is not overtaken by others who need few, or would wait for ever.
        """
        for flow in self._queue:
            width = flow.waiting[0].width
            if flow.fits(width):
                return flow if width <= self._free else None
        return None
