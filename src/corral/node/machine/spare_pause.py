"""The pause of a spare, which its node makes, and ends when the spare is handed out.

The machine's record says whose pause it is before the guest stands still, and until its clock is
set after it goes on, so that the next manager takes either up.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from corral.aio import Signal
from corral.node.hypervisor import Guest, GuestError
from corral.node.machine.clock import set_clock
from corral.node.state.facts import PAUSED_BY_USER
from corral.node.state.machine_record import Stage
from corral.node.state.machine_state import MachineState


class SparePause:
    """Pauses and resumes the guest of one machine.

    ``stop`` is set once the machine is to stop; ``synced`` returns when it is known whether there
    is an agent.
    """

    def __init__(
        self, state: MachineState, stop: Signal, synced: Callable[[], Awaitable[None]]
    ) -> None:
        self._state = state
        self._stop = stop
        self._synced = synced

    async def begin(self, guest: Guest) -> None:
        """Stop the vCPUs until ``end``, unless that is impossible now, or a user has done so.

        Raises GuestError and OSError.
        """
        state = self._state
        async with state.vcpus:
            if not (self._is_possible and await guest.runs()):
                return
            state.record_spare_pause(paused=True)
            try:
                await self._finish_queries(guest)
                await guest.pause()
            except GuestError:
                state.set_facts(replace(state.facts, paused=""))
                state.record_spare_pause(paused=False)
                raise

    async def _finish_queries(self, guest: Guest) -> None:
        """Wait for the answers to what the guest's agent was asked; no more is asked from now on.

        A command to a guest that stands still ends at its timeout, and others wait for that.
        """
        if self._state.facts.agent_connected:
            with suppress(GuestError):
                await guest.agent.ping()

    async def end(self, guest: Guest) -> None:
        """Run the vCPUs of a guest that was paused as a spare, and set its clock.

        Raises GuestError and OSError.
        """
        state = self._state
        async with state.vcpus:
            if not (state.record.paused_as_spare and self._is_possible):
                return
            await guest.resume()
            state.step("resumed spare")
        await self._synced()  # else a new manager does not know yet whether there is an agent
        if state.facts.agent_connected:
            await set_clock(guest.agent)
        if state.record.paused_as_spare:  # no user has paused it meanwhile
            state.record_spare_pause(paused=False)

    def leave_to_user(self) -> None:
        """Make it the pause of a user, who alone resumes the guest."""
        state = self._state
        if state.facts.paused_as_spare:
            paused = PAUSED_BY_USER if state.facts.paused else ""
            state.set_facts(replace(state.facts, paused=paused))
            with suppress(OSError):  # a full disk: the next manager resumes it with its VMI
                state.record_spare_pause(paused=False)

    @property
    def _is_possible(self) -> bool:
        """Whether nothing depends on the vCPUs running, or not: no save, no move, no stop."""
        state = self._state
        is_free = state.record.stage is Stage.STARTED and not state.turn.locked()
        return is_free and not self._stop.is_set()
