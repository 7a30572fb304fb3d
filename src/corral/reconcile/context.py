"""The dependencies of a controller: a client, shared informers, an event recorder and a clock.

The same controllers run beside the server that they use, against a cluster, and under the virtual
time of a test: the context knows nothing of how the process is put together.
"""

import asyncio
from copy import copy
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

from corral.aio import Background
from corral.api.kinds.table import KindTable
from corral.client.client import Client
from corral.reconcile.events import Clock, EventBroadcaster, EventRecorder
from corral.reconcile.informer import Informers

if TYPE_CHECKING:
    from corral.reconcile.kinds import Kinds


def wall_clock() -> datetime:
    """Return the time of day, UTC."""
    return datetime.now(UTC)


class ControllerContext:
    """A client with the informers, kinds and events that controllers share; ``run`` runs them.

    ``built_in`` are the kinds that the server has without definitions, by default corral's.
    """

    def __init__(
        self,
        client: Client,
        *,
        informers: Informers | None = None,
        clock: Clock = wall_clock,
        built_in: KindTable | None = None,
    ) -> None:
        self._watching_client = client
        self.clock = clock
        self.informers = informers or Informers(client)
        self.client = client.with_observer(self.informers.observe, watching=client)
        self._kinds = cache(partial(_kinds, self.informers, built_in))
        self._events = EventBroadcaster(self.client, clock)

    @property
    def kinds(self) -> "Kinds":
        """The served kinds, which copies share; imported when a controller uses them."""
        return self._kinds()

    def with_client(self, client: Client) -> "ControllerContext":
        """Return a context that reads and writes as another user.

        Informers and events are shared, so that each object is decoded and cached once a process;
        only the original has to run.
        """
        copied = copy(self)
        copied.client = client.with_observer(self.informers.observe, watching=self._watching_client)
        return copied

    def recorder(self, component: str, host: str = "") -> EventRecorder:
        """Return a recorder of events whose source is ``component``."""
        return self._events.recorder(component, host)

    @staticmethod
    def monotonic() -> float:
        """Return the event loop's time, in seconds that never run backwards."""
        return asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Run the informers and write events until cancelled."""
        async with Background() as tasks:
            _ = tasks.start(self.informers.run(), name="informers")
            _ = tasks.start(self._events.run(), name="events")
            await asyncio.Event().wait()


def _kinds(informers: Informers, built_in: KindTable | None) -> "Kinds":
    from corral.api.kinds import KINDS  # noqa: PLC0415
    from corral.reconcile.kinds import Kinds  # noqa: PLC0415

    return Kinds(informers, built_in or KINDS)
