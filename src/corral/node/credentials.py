"""Access credentials through a guest's agent: keys and passwords, kept as their Secrets say.

They are put in place when the agent connects, since a guest that started again may have forgotten
them, and whenever one of the Secrets changes; what fails is tried again, as long as the guest runs.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from corral.aio import wait_at_most
from corral.api.conditions import get_condition
from corral.api.errors import ApiError, NotFound
from corral.api.kinds.access import AccessCredential, keys_of, passwords_of
from corral.api.kinds.references import secret_of
from corral.api.kinds.vmi import VirtualMachineInstance
from corral.node.facts import Facts
from corral.node.hypervisor import Guest, GuestError
from corral.node.machine import Machine
from corral.node.voice import Voice

CONDITION = "AccessCredentialsSynchronized"
SUCCESS, FAILURE = "AccessCredentialsSyncSuccess", "AccessCredentialsSyncFailed"
OFFLINE = "Guest agent is offline"
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0
"""Between attempts that fail; doubled each time."""

Values = Mapping[str, bytes]


@dataclass(slots=True)
class Plan:
    """Who is to be let in by what, by user; ``problems`` are the Secrets that could not be had."""

    keys: dict[str, list[str]] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def wanted(vmi: VirtualMachineInstance) -> list[AccessCredential]:
    """The credentials that are the agent's to put in place."""
    return [each for each in vmi.spec.access_credentials if _users(each) or _is_password(each)]


def plan(credentials: Sequence[AccessCredential], secrets: Mapping[str, Values | str]) -> Plan:
    """What is to be in place; ``secrets`` are their values by name, or why they cannot be had.

    A user's keys are replaced as a whole.  As long as one of the Secrets that they come from is
    missing they are left alone, so that nobody is locked out by an accident.
    """
    result = Plan()
    incomplete: set[str] = set()
    for credential in credentials:
        values = secrets[secret_of(credential)]
        if isinstance(values, str):
            incomplete.update(_users(credential))
            if values not in result.problems:
                result.problems.append(values)
        elif _is_password(credential):
            result.passwords |= passwords_of(values)
        else:
            for user in _users(credential):
                known = result.keys.setdefault(user, [])
                known += [key for key in keys_of(values) if key not in known]
    for user in incomplete:
        result.keys.pop(user, None)
    return result


def _users(credential: AccessCredential) -> Sequence[str]:
    key = credential.ssh_public_key
    agent = key.propagation_method.qemu_guest_agent if key is not None else None
    return agent.users if agent is not None else ()


def _is_password(credential: AccessCredential) -> bool:
    password = credential.user_password
    return password is not None and password.propagation_method.qemu_guest_agent is not None


class Credentials:
    """The access credentials of one machine."""

    def __init__(
        self,
        vmi: VirtualMachineInstance | None,
        secret: Callable[[str], Awaitable[Values]],
        voice: Voice,
    ) -> None:
        self._wanted = wanted(vmi) if vmi is not None else []
        self._secret = secret
        self._voice = voice
        self._told = _told(vmi) if vmi is not None else None

    async def run(self, machine: Machine) -> None:
        """Keep them in place for as long as the guest runs, until cancelled."""
        if not self._wanted:
            return
        if self._told is None:
            machine.learn(replace(machine.facts, credentials=OFFLINE))
        pause = FIRST_PAUSE_SECONDS
        while True:
            await machine.renewal.wait()
            machine.renewal.clear()
            if not machine.facts.agent_connected:
                continue
            why = await self._apply(machine.guest)
            self._tell(machine, why)
            if not why:
                pause = FIRST_PAUSE_SECONDS
                continue
            await wait_at_most(machine.renewal, pause)
            machine.renewal.set()
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _apply(self, guest: Guest) -> str:
        """Put them in place; answers what could not be, nothing if all is well."""
        secrets = {name: await self._values(name) for name in map(secret_of, self._wanted)}
        todo = plan(self._wanted, secrets)
        problems = todo.problems
        for user, keys in todo.keys.items():
            try:
                await guest.agent.authorize(user, keys)
            except GuestError as error:
                what = f"writing ssh pub key access credentials for user [{user}]"
                problems.append(f"Error encountered {what}: {error}")
        for user, password in todo.passwords.items():
            try:
                await guest.agent.set_password(user, password)
            except GuestError as error:
                problems.append(f"Error encountered setting password for user [{user}]: {error}")
        return "; ".join(problems)

    async def _values(self, name: str) -> Values | str:
        try:
            return await self._secret(name)
        except NotFound:
            return f'secret "{name}" not found'
        except ApiError as error:
            return f'secret "{name}" cannot be read: {error}'

    def _tell(self, machine: Machine, why: str) -> None:
        machine.learn(replace(machine.facts, credentials=why))
        if why == self._told:
            return
        self._told = why
        if why:
            self._voice.of_instance("Warning", FAILURE, f"Access credentials sync failed: {why}")
        else:
            self._voice.of_instance("Normal", SUCCESS, "Access credentials sync successful.")
