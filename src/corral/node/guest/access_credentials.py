"""Access credentials through a guest's agent: keys and passwords, kept as their Secrets say.

They are put in place when the agent connects, since a guest that started again may have forgotten
them, and whenever one of the Secrets changes; what fails is tried again, as long as the guest runs.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from corral.aio import Signal, wait_at_most
from corral.api.errors import ApiError, NotFound
from corral.api.kinds.vmi.access import AccessCredential, keys_of, passwords_of
from corral.api.kinds.vmi.referenced_objects import secret_of
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.state.events import MachineEvents

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


@dataclass(slots=True)
class _Keeping:
    """The credentials of one machine whose guest runs.

    due: something has happened; stale: a Secret is another one now; session: of the agent that they
    were given to.
    """

    due: Signal = field(default_factory=Signal)
    stale: bool = False
    session: int = 0


class Credentials:
    """The access credentials of a node's machines; ``secret`` reads one by namespace and name."""

    def __init__(self, secret: Callable[[str, str], Awaitable[Values]]) -> None:
        self._secret = secret
        self._running: dict[str, _Keeping] = {}

    def wake(self, uid: str, *, stale: bool = False) -> None:
        """Something has happened to an instance's guest, or to a Secret that it names."""
        if (keeping := self._running.get(uid)) is not None:
            keeping.stale |= stale
            keeping.due.set()

    async def run(
        self, machine: Machine, vmi: VirtualMachineInstance, recorder: MachineEvents
    ) -> None:
        """Keep them in place for as long as the guest runs, until cancelled."""
        credentials = wanted(vmi)
        if not credentials:
            return
        keeping = self._running[machine.record.uid] = _Keeping()
        told = _told(vmi)
        if told is None:
            _learn(machine, OFFLINE)
        try:
            pause = FIRST_PAUSE_SECONDS
            while True:
                await self._until_due(machine, keeping)
                why = await self._apply(machine, vmi.metadata.namespace, credentials)
                _learn(machine, why)
                if why != told:
                    _tell(recorder, why)
                told = why
                if why:
                    await wait_at_most(keeping.due, pause)
                    keeping.stale = True
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS) if why else FIRST_PAUSE_SECONDS
        finally:
            del self._running[machine.record.uid]

    async def _until_due(self, machine: Machine, keeping: _Keeping) -> None:
        """Until there is an agent that has not been given them, as they are now."""
        while True:
            keeping.due.clear()
            facts = machine.facts
            if facts.agent_connected and (keeping.stale or keeping.session != facts.agent_sessions):
                keeping.stale, keeping.session = False, facts.agent_sessions
                return
            await keeping.due.wait()

    async def _apply(
        self, machine: Machine, namespace: str, credentials: Sequence[AccessCredential]
    ) -> str:
        """Put them in place; answers what could not be, nothing if all is well."""
        names = dict.fromkeys(map(secret_of, credentials))
        todo = plan(credentials, {name: await self._values(namespace, name) for name in names})
        problems = todo.problems
        for user, keys in todo.keys.items():
            try:
                await machine.guest.agent.authorize(user, keys)
            except GuestError as error:
                what = f"writing ssh pub key access credentials for user [{user}]"
                problems.append(f"Error encountered {what}: {error}")
        for user, password in todo.passwords.items():
            try:
                await machine.guest.agent.set_password(user, password)
            except GuestError as error:
                problems.append(f"Error encountered setting password for user [{user}]: {error}")
        return "; ".join(problems)

    async def _values(self, namespace: str, name: str) -> Values | str:
        try:
            return await self._secret(namespace, name)
        except NotFound:
            return f'secret "{name}" not found'
        except ApiError as error:
            return f'secret "{name}" cannot be read: {error}'


def _told(vmi: VirtualMachineInstance) -> str | None:
    """What the instance says already, by an earlier manager perhaps; None where it says nothing."""
    for condition in vmi.status.conditions:
        if condition.type == CONDITION:
            return condition.message if condition.status == "False" else ""
    return None


def _learn(machine: Machine, why: str) -> None:
    machine.set_facts(replace(machine.facts, credentials=why))


def _tell(recorder: MachineEvents, why: str) -> None:
    if why:
        recorder.vmi_event("Warning", FAILURE, f"Access credentials sync failed: {why}")
    else:
        recorder.vmi_event("Normal", SUCCESS, "Access credentials sync successful.")
