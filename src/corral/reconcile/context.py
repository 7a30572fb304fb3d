"""What a loop is given: a client, shared caches, a voice and a clock.

Nothing of how the process is put together is in here, so the same loops run beside the server that
they use, against a cluster, and under the virtual time of a test.
"""

import asyncio
from copy import copy
from datetime import UTC, datetime

from corral.aio import Background
from corral.client.client import Client
from corral.reconcile.events import Clock, Events, Recorder
from corral.reconcile.informer import Informers
from corral.reconcile.kinds import Kinds


def wall_clock() -> datetime:
    """The present moment, UTC."""
    return datetime.now(UTC)


class World:
    """Everything a loop may use.  ``run`` keeps the caches and the events going."""

    def __init__(self, client: Client, *, clock: Clock = wall_clock) -> None:
        self._watching = client
        self.clock = clock
        self.informers = Informers(client)
        self.client = client.feeding(self.informers.learn, watching=client)
        self.kinds = Kinds(self.informers)
        self._events = Events(self.client, clock)

    def acting(self, client: Client) -> "World":
        """The same world for a loop that asks and writes in another name.

        Caches and events are shared, so that each object is decoded and kept once a process; only
        the original has to run.
        """
        other = copy(self)
        other.client = client.feeding(self.informers.learn, watching=self._watching)
        return other

    def recorder(self, component: str, host: str = "") -> Recorder:
        """Tells events in the name of a component."""
        return self._events.recorder(component, host)

    @staticmethod
    def monotonic() -> float:
        """Seconds that never run backwards: the event loop's."""
        return asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Follow the API and write events until cancelled."""
        async with Background() as tasks:
            _ = tasks.start(self.informers.run(), name="informers")
            _ = tasks.start(self._events.run(), name="events")
            await asyncio.Event().wait()
