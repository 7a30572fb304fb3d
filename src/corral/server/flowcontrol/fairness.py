"""Fair queuing: a flood of requests from one user does not starve others.

Modelled on Kubernetes' API priority and fairness.  A request occupies seats while it executes.  The
requests of one user form a flow, reads and writes apart; when seats are exhausted, flows are served
round-robin.  All requests execute in one event loop, so seats are released only in its next
iteration, after it has read requests of all connections.

A request that awaits a webhook releases its seats meanwhile: the webhook may send requests itself.

Memory of users is bounded likewise: request bodies until they are executed, and responses until
they are sent.

Components of this process never wait.  Administrators are queued like others, but never rejected.
A watch occupies seats only until it begins.
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
from corral.server.authn.service_accounts import flow_name
from corral.server.flowcontrol.memory_budget import SMALL_BYTES, Budget, size_of_body
from corral.server.request import query
from corral.server.request.call import Call, storage
from corral.store import Store

T = TypeVar("T")

SEATS = 64
MAX_SEATS_PER_FLOW = 32
"""The most seats of one flow: some are left for requests that its own requests depend on."""
MAX_WITHOUT_SEATS = 256
"""Requests of one flow that may await webhooks at the same time."""
MAX_LIST_SEATS = 16
OBJECTS_PER_SEAT = 500
"""A list occupies one more seat per so many objects: it blocks the loop longer."""
BYTES_PER_SEAT = 64 << 10
"""A body occupies one more seat per so many bytes, likewise: at most two of the largest are parsed
in one iteration of the loop."""
MAX_QUEUED_PER_FLOW = 512
"""Queued requests of one flow."""
QUEUE_TIMEOUT_SECONDS = 15.0
"""Time for which a request is queued before it is rejected, as in kube-apiserver."""
RETRY_SECONDS = 1

BODIES = 32 << 20, 256 << 20
"""Bytes of request bodies of one user, and of all."""
RESPONSES = 64 << 20, 512 << 20
"""Bytes of responses being sent to one user, and to all: beyond it, no list is started."""

_BUFFERED = frozenset({"get", "list"})
_READS = frozenset({"get", "list", "watch"})


@dataclass(slots=True, eq=False)
class Flow:
    """The requests of one user: their seats, and those queued."""

    key: tuple[str, bool]
    seats: int = 0
    without_seats: int = 0
    waiting: "deque[_Waiter]" = field(default_factory=deque)

    def fits(self, width: int) -> bool:
        return self.seats + width <= MAX_SEATS_PER_FLOW


@dataclass(slots=True, eq=False)
class _Waiter:
    width: int
    granted: asyncio.Future[None]


class _SeatReservation:
    """The seats of one request while it executes."""

    __slots__ = ("_fairness", "_flow", "_is_seated", "_width")

    def __init__(self, fairness: "Fairness", flow: Flow, width: int) -> None:
        self._fairness = fairness
        self._flow = flow
        self._width = width
        self._is_seated = True

    @asynccontextmanager
    async def without_seats(self) -> AsyncGenerator[None, None]:
        """Release the seats while a webhook is awaited.  Raises TooManyRequests."""
        flow = self._flow
        if flow.without_seats >= MAX_WITHOUT_SEATS:
            raise self._fairness.count_rejection(flow)
        flow.without_seats += 1
        self.release_now()
        try:
            yield
            await self._fairness.reacquire(flow, self._width)
            self._is_seated = True
        finally:
            flow.without_seats -= 1
            self._fairness.drop_if_idle(flow)

    def release_now(self) -> None:
        """Release the seats."""
        if self._is_seated:
            self._is_seated = False
            self._fairness.release(self._flow, self._width)


class Fairness:
    """Schedules the requests to a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free = SEATS
        self._flows: dict[tuple[str, bool], Flow] = {}
        self._queue: deque[Flow] = deque()
        """Flows with queued requests, in round-robin order."""
        self._releasing: list[tuple[Flow, int]] = []
        self._bodies = Budget(*BODIES)
        self.responses = Budget(*RESPONSES)
        self.rejected = 0
        """Count of rejected requests."""

    @property
    def waiting(self) -> int:
        """Count of queued requests."""
        return sum(len(flow.waiting) for flow in self._queue)

    @property
    def seats(self) -> int:
        """Count of occupied seats."""
        return SEATS - self._free

    def reserve_body(self, request: Request, largest: int) -> AbstractContextManager[None]:
        """Return the context in which a body is read and executed.  Raises TooManyRequests."""
        size = size_of_body(request, largest)
        if size > SMALL_BYTES:
            self._bodies.check_room(request.sender, size)
        return self._bodies.reserve(request.sender, size)

    async def serve(self, call: Call, handler: Callable[[Call], Awaitable[T]]) -> T:
        """Execute a request once it has seats.  Raises TooManyRequests."""
        if call.request.is_in_process:
            return await handler(call)
        key = (flow_name(call.user), call.verb in _READS)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(key)
        width = self._width(call)
        if self._queue or self._free < width or not flow.fits(width):
            await self._wait(flow, width, bounded=ADMINISTRATORS not in call.user.groups)
        else:
            self._acquire(flow, width)
        granted = _SeatReservation(self, flow, width)
        call.without_seats = granted.without_seats
        try:
            if call.verb in _BUFFERED:
                self.responses.check_room(call.request.sender)
            return await handler(call)
        finally:
            granted.release_now()

    async def reacquire(self, flow: Flow, width: int) -> None:
        """Acquire seats again, before others of the flow; never rejected half-way."""
        if self._queue or self._free < width or not flow.fits(width):
            await self._wait(flow, width, bounded=False, in_front=True)
        else:
            self._acquire(flow, width)

    def _width(self, call: Call) -> int:
        """Return the seats of a request: one, plus some for size.  Raises BadRequest."""
        if call.name or call.verb not in ("list", "deletecollection"):
            return min(1 + len(call.request.body) // BYTES_PER_SEAT, MAX_SEATS_PER_FLOW)
        objects = self._store.count(storage(call.kind))
        limit = query.number(call.query, "limit") or objects
        return min(1 + min(objects, limit) // OBJECTS_PER_SEAT, MAX_LIST_SEATS)

    async def _wait(self, flow: Flow, width: int, *, bounded: bool, in_front: bool = False) -> None:
        if bounded and len(flow.waiting) >= MAX_QUEUED_PER_FLOW:
            raise self.count_rejection(flow)
        waiter = _Waiter(width, asyncio.get_running_loop().create_future())
        if not flow.waiting:
            self._queue.append(flow)
        if in_front:
            flow.waiting.appendleft(waiter)
        else:
            flow.waiting.append(waiter)
        self._dispatch()
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_SECONDS if bounded else None):
                await waiter.granted
        except BaseException as error:
            self._abandon(flow, waiter)
            if isinstance(error, TimeoutError):
                raise self.count_rejection(flow) from None
            raise

    def _abandon(self, flow: Flow, waiter: _Waiter) -> None:
        """Remove a cancelled waiter, or release the seats that it was granted just before."""
        if not waiter.granted.cancelled():
            self.release(flow, waiter.width)
        elif waiter in flow.waiting:
            flow.waiting.remove(waiter)
            if not flow.waiting:
                self._queue.remove(flow)
            self.drop_if_idle(flow)

    def count_rejection(self, flow: Flow) -> TooManyRequests:
        """Count a rejected request; return its error."""
        self.rejected += 1
        self.drop_if_idle(flow)
        details = Details(retry_after_seconds=RETRY_SECONDS)
        return TooManyRequests("Too many requests, please try again later.", details=details)

    def _acquire(self, flow: Flow, width: int) -> None:
        flow.seats += width
        self._free -= width

    def release(self, flow: Flow, width: int) -> None:
        """Release seats in the loop's next iteration."""
        if not self._releasing:
            asyncio.get_running_loop().call_soon(self._release_seats)
        self._releasing.append((flow, width))

    def _release_seats(self) -> None:
        releasing, self._releasing = self._releasing, []
        for flow, width in releasing:
            flow.seats -= width
            self._free += width
        if self._queue:
            self._dispatch()
        for flow, _ in releasing:
            self.drop_if_idle(flow)

    def drop_if_idle(self, flow: Flow) -> None:
        """Drop a flow without requests."""
        if not flow.seats and not flow.waiting and not flow.without_seats:
            self._flows.pop(flow.key, None)

    def _dispatch(self) -> None:
        """Grant free seats to queued requests, flow by flow."""
        while (flow := self._next_flow()) is not None:
            waiter = flow.waiting.popleft()
            self._queue.remove(flow)
            if flow.waiting:
                self._queue.append(flow)
            if not waiter.granted.done():  # else it was cancelled
                self._acquire(flow, waiter.width)
                waiter.granted.set_result(None)

    def _next_flow(self) -> Flow | None:
        """Return the next flow to serve; None if it has to wait for more free seats.

        A wide request is not overtaken by narrow ones: it would starve.
        """
        for flow in self._queue:
            width = flow.waiting[0].width
            if flow.fits(width):
                return flow if width <= self._free else None
        return None
