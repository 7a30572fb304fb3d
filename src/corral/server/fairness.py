"""Turns: a flood of requests from one user does not keep the others waiting.

In the spirit of Kubernetes' API priority and fairness.  A request needs seats while it is carried
out.  Those of one user form a flow, reads and writes apart; where seats are missing, flows take
turns.  One loop carries out everything, so a seat is free again only in that loop's next turn:
between two turns all who have something to ask are heard.

Components of this process never wait.  Administrators take their turns like everybody, but are
never refused.  A watch has its seats only until it begins.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from corral.api.errors import Details, TooManyRequests
from corral.server import query
from corral.server.authn import ADMINISTRATORS
from corral.server.call import Call, storage
from corral.store import Store

T = TypeVar("T")

SEATS = 64
SHARE = 32
"""Seats that one flow has at most: what waits for somebody else leaves room for that somebody."""
WIDEST = 16
OBJECTS_A_SEAT = 500
"""A list takes a seat more for each so many objects: it keeps the loop that much longer."""
LONGEST_QUEUE = 512
"""Requests of one flow that may wait."""
PATIENCE_SECONDS = 15.0
"""How long a request waits for its turn before it is refused, as in the real server."""
RETRY_SECONDS = 1

_READS = frozenset({"get", "list", "watch"})


@dataclass(slots=True, eq=False)
class Flow:
    """The requests of one user: how many seats they have, and those that wait for some."""

    name: tuple[str, bool]
    seats: int = 0
    waiting: "deque[_Waiter]" = field(default_factory=deque)

    def fits(self, width: int) -> bool:
        return self.seats + width <= SHARE


@dataclass(slots=True, eq=False)
class _Waiter:
    width: int
    turn: asyncio.Future[None]


class Fairness:
    """Lets requests to a store have their turns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free = SEATS
        self._flows: dict[tuple[str, bool], Flow] = {}
        self._queue: deque[Flow] = deque()
        """Flows of which something waits, in the order of their turns."""
        self._leaving: list[tuple[Flow, int]] = []
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

    async def serve(self, call: Call, act: Callable[[Call], Awaitable[T]]) -> T:
        """Carry out a request when it is its turn.  Raises TooManyRequests."""
        if call.request.user is not None:
            return await act(call)
        name = (call.user.name, call.verb in _READS)
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = Flow(name)
        width = self._width(call)
        if self._queue or self._free < width or not flow.fits(width):
            await self._wait(flow, width, bounded=ADMINISTRATORS not in call.user.groups)
        else:
            self._take(flow, width)
        try:
            return await act(call)
        finally:
            self._leave(flow, width)

    def _width(self, call: Call) -> int:
        """How many seats a request takes: one, and more for many objects.  Raises BadRequest."""
        if call.name or call.verb not in ("list", "deletecollection"):
            return 1
        objects = self._store.count(storage(call.kind))
        limit = query.number(call.query, "limit") or objects
        return min(1 + min(objects, limit) // OBJECTS_A_SEAT, WIDEST)

    async def _wait(self, flow: Flow, width: int, *, bounded: bool) -> None:
        if bounded and len(flow.waiting) >= LONGEST_QUEUE:
            raise self._refusal(flow)
        waiter = _Waiter(width, asyncio.get_running_loop().create_future())
        if not flow.waiting:
            self._queue.append(flow)
        flow.waiting.append(waiter)
        self._seat()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if bounded else None):
                await waiter.turn
        except BaseException as error:
            self._give_up(flow, waiter)
            if isinstance(error, TimeoutError):
                raise self._refusal(flow) from None
            raise

    def _give_up(self, flow: Flow, waiter: _Waiter) -> None:
        """Whoever waited is gone: perhaps just as it became its turn."""
        if not waiter.turn.cancelled():
            self._leave(flow, waiter.width)
        elif waiter in flow.waiting:
            flow.waiting.remove(waiter)
            if not flow.waiting:
                self._queue.remove(flow)
            self._forget(flow)

    def _refusal(self, flow: Flow) -> TooManyRequests:
        self.refused += 1
        self._forget(flow)
        details = Details(retry_after_seconds=RETRY_SECONDS)
        return TooManyRequests("Too many requests, please try again later.", details=details)

    def _take(self, flow: Flow, width: int) -> None:
        flow.seats += width
        self._free -= width

    def _leave(self, flow: Flow, width: int) -> None:
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
            self._forget(flow)

    def _forget(self, flow: Flow) -> None:
        if not flow.seats and not flow.waiting:
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
