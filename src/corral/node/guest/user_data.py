"""User data of machines that were handed out by a warm pool: the guest agent runs it as a script.

The script runs once in a guest's life, and on after a manager that has ended: the guest itself
keeps the mark that it has begun, and how it ended.  A guest that loses its files at a reboot runs
it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from corral.aio import Signal, wait_at_most
from corral.api.errors import ApiError, NotFound
from corral.api.kinds.corral.warm_pool import WARM_POOL_LABEL
from corral.api.kinds.vmi.user_data import (
    APPLIED,
    FAILED,
    NOT_FOUND,
    PENDING,
    SECRET_KEYS,
    USER_DATA,
    USER_DATA_SECRET,
    has_user_data,
)
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import Finished, GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.state.events import MachineEvents
from corral.node.state.facts import UserDataState

VMI = VirtualMachineInstance
Values = Mapping[str, bytes]

OFFLINE: Final = "no guest agent is connected, which runs the user data"
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Pauses between failed attempts, doubled each time."""
LONGEST_SECONDS: Final = 3600.0
"""Time after which a script that still runs is reported as failed; it is not ended."""
_MOST_OUTPUT: Final = 500
"""Characters of the script's output in the condition."""

SCRIPT: Final = """\
set -eu
umask 077
run=/var/lib/corral/user-data/$1
mkdir -p "${run%/*}"
boot=$(cat /proc/sys/kernel/random/boot_id)
echo "$boot $$" > "$run.$$"
if ln "$run.$$" "$run.boot" 2>/dev/null; then
    rm "$run.$$"
    cat > "$run"
    chmod 700 "$run"
    code=0
    "$run" > "$run.log" 2>&1 </dev/null || code=$?
    echo "$code" > "$run.code.new"
    mv "$run.code.new" "$run.code"
else
    rm "$run.$$"
    read -r began runner < "$run.boot"
    while [ ! -e "$run.code" ]; do
        if [ "$began" != "$boot" ]; then
            echo "the guest was restarted while it ran" >&2
            exit 1
        fi
        if ! kill -0 "$runner" 2>/dev/null && [ ! -e "$run.code" ]; then
            echo "it was killed while it ran" >&2
            exit 1
        fi
        sleep 1
    done
fi
code=$(cat "$run.code")
[ "$code" = 0 ] || tail -n 3 "$run.log" >&2
exit "$code"
"""
"""Shell script of the guest that runs its input once; its argument names the run.

A hard link is made by one caller only, whose boot and process it names.  One that comes later waits
for the first, and has its result.
"""


class UserData:
    """Hands user data to the guests of a node.

    ``instance`` returns the cached VMI of a machine by its uid; ``secret`` reads a Secret's data.
    """

    def __init__(
        self,
        instance: Callable[[str], VMI | None],
        secret: Callable[[str, str], Awaitable[Values]],
    ) -> None:
        self._instance = instance
        self._secret = secret
        self._due: dict[str, Signal] = {}

    def wake(self, uid: str) -> None:
        """Notify of a change of a VMI, of its guest, or of a Secret that it names."""
        if (due := self._due.get(uid)) is not None:
            due.set()

    async def run(self, machine: Machine, recorder: MachineEvents) -> None:
        """Hand in the user data at each connection of the agent, until cancelled."""
        uid = machine.record.uid
        due = self._due[uid] = Signal()
        try:
            await self._run(machine, recorder, due)
        finally:
            del self._due[uid]

    async def _run(self, machine: Machine, recorder: MachineEvents, due: Signal) -> None:
        pause = FIRST_PAUSE_SECONDS
        session = 0
        while True:
            vmi = await self._until_due(machine, due, session)
            session = machine.facts.agent_sessions
            state = await self._apply(machine, vmi)
            if state != machine.facts.user_data:
                machine.set_facts(replace(machine.facts, user_data=state))
                _record_event(recorder, state)
            if state.reason in (PENDING, NOT_FOUND):
                session = 0  # a wake that came meanwhile is for the next attempt
                await wait_at_most(due, pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            else:
                pause = FIRST_PAUSE_SECONDS

    async def _until_due(self, machine: Machine, due: Signal, session: int) -> VMI:
        """Wait until the VMI has user data, and an agent is connected that has not run it."""
        while True:
            due.clear()
            facts, vmi = machine.facts, self._instance(machine.record.uid)
            if vmi is not None and has_user_data(vmi.metadata.annotations):
                answers = facts.agent_connected and not facts.paused
                if answers and facts.agent_sessions != session:
                    return vmi
                if not facts.agent_connected and facts.user_data is None:
                    offline = UserDataState(PENDING, OFFLINE)
                    machine.set_facts(replace(facts, user_data=offline))
            await due.wait()

    async def _apply(self, machine: Machine, vmi: VMI) -> UserDataState:
        try:
            script = await self._script(vmi)
            if not script.startswith(b"#!"):
                text = "the user data does not begin with #!, as a script does: nothing else runs"
                return UserDataState(FAILED, text)
            command = ("/bin/sh", "-c", SCRIPT, "sh", machine.record.uid)
            async with asyncio.timeout(LONGEST_SECONDS):
                return _state(await machine.guest.agent.run(command, script))
        except TimeoutError:
            return UserDataState(FAILED, f"the user data still runs after {LONGEST_SECONDS:.0f} s")
        except NotFound as error:
            return UserDataState(NOT_FOUND, str(error))
        except (ApiError, GuestError) as error:
            return UserDataState(PENDING, str(error))

    async def _script(self, vmi: VMI) -> bytes:
        """Return the user data of a VMI.  Raises ApiError."""
        annotations = vmi.metadata.annotations
        name = annotations.get(USER_DATA_SECRET)
        if name is None:
            return annotations[USER_DATA].encode()
        try:
            values = await self._secret(vmi.metadata.namespace, name)
        except NotFound as error:
            raise NotFound(f'secret "{name}" not found') from error
        found = next((values[key] for key in SECRET_KEYS if key in values), None)
        if found is None:
            raise NotFound(f'secret "{name}" has no key {SECRET_KEYS[0]}')
        return found


def is_given_user_data(vmi: VMI) -> bool:
    """Return whether a machine has user data, or may be given some later, as a spare."""
    return WARM_POOL_LABEL in vmi.metadata.labels or has_user_data(vmi.metadata.annotations)


def _state(result: Finished) -> UserDataState:
    if result.exit_code == 0:
        return UserDataState()
    output = result.errors.decode(errors="replace").strip()[-_MOST_OUTPUT:]
    text = f"the user data ended with exit code {result.exit_code}"
    return UserDataState(FAILED, f"{text}: {output}" if output else text)


def _record_event(recorder: MachineEvents, state: UserDataState) -> None:
    if state.reason:
        recorder.vmi_event("Warning", state.reason, state.message)
    else:
        recorder.vmi_event("Normal", APPLIED, "The guest has run its user data")
