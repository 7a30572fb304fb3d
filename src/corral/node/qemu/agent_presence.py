"""Whether a guest's agent is there: who comes back at once was never away.

Any guest may open and close its agent's port as often as it likes, and each time would be told to
the API.
"""

import asyncio

from corral.node.hypervisor import Change
from corral.node.qemu.monitor import Event

LINGER_SECONDS = 5.0
"""An agent that is started anew takes less."""
PARTED: Event = {"event": "PARTED"}  # not of QEMU: the agent has been away for that long


class AgentLink:
    """Holds back what tells that the agent has gone, until it has been away for a while."""

    def __init__(self, events: asyncio.Queue[Event]) -> None:
        self._events = events
        self._parting: asyncio.TimerHandle | None = None

    def told(self, event: Event, change: Change | None) -> Change | None:
        """What is to be told of an event now, that means this change."""
        if event is PARTED:
            self._parting = None
            return Change.AGENT_DISCONNECTED
        if change is Change.AGENT_DISCONNECTED:
            if self._parting is None:
                loop = asyncio.get_running_loop()
                self._parting = loop.call_later(LINGER_SECONDS, self._events.put_nowait, PARTED)
            return None
        if change in {Change.AGENT_CONNECTED, Change.REBOOTED} and self._parting is not None:
            self._parting.cancel()
            self._parting = None
        return change
