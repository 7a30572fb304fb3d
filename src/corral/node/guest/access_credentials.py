"""Access credentials through the guest agent: SSH keys and passwords, as their Secrets say.

They are applied when the agent connects, since a guest that has rebooted may have lost them, and
whenever one of the Secrets changes.  Failures are retried as long as the guest runs.
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
"""Pauses between failed attempts, doubled each time."""

Values = Mapping[str, bytes]


@dataclass(slots=True)
class Plan:
    """The keys and passwords to apply, by user; ``problems``: Secrets that cannot be read."""

    keys: dict[str, list[str]] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def applied_by_agent(vmi: VirtualMachineInstance) -> list[AccessCredential]:
    """Return the credentials that are propagated by the guest agent."""
    return [each for each in vmi.spec.access_credentials if _users(each) or _is_password(each)]


def plan(credentials: Sequence[AccessCredential], secrets: Mapping[str, Values | str]) -> Plan:
    """Return what to apply; ``secrets`` maps names to data, or to why a Secret cannot be read.

    The keys of a user are replaced as a whole.  While one of their Secrets is missing they are left
    alone, so that an accident locks nobody out.
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
                authorized = result.keys.setdefault(user, [])
                authorized += [key for key in keys_of(values) if key not in authorized]
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
class _Sync:
    """The credentials of one machine whose guest runs.

    due: the guest or a Secret has changed; stale: a Secret has changed; session: the agent's
    connection in which they were applied.
    """

    due: Signal = field(default_factory=Signal)
    stale: bool = False
    session: int = 0


class Credentials:
    """Syncs the access credentials of a node's machines; ``secret`` reads a Secret's data."""

    def __init__(self, secret: Callable[[str, str], Awaitable[Values]]) -> None:
        self._secret = secret
        self._running: dict[str, _Sync] = {}

    def wake(self, uid: str, *, stale: bool = False) -> None:
        """Notify of a change of a VMI or its guest, or (``stale``) of a Secret that it names."""
        if (sync := self._running.get(uid)) is not None:
            sync.stale |= stale
            sync.due.set()

    async def run(
        self, machine: Machine, vmi: VirtualMachineInstance, recorder: MachineEvents
    ) -> None:
        """Sync them for as long as the guest runs, until cancelled."""
        credentials = applied_by_agent(vmi)
        if not credentials:
            return
        sync = self._running[machine.record.uid] = _Sync()
        reported = _reported(vmi)
        if reported is None:
            _set_facts(machine, OFFLINE)
        try:
            pause = FIRST_PAUSE_SECONDS
            while True:
                await self._until_due(machine, sync)
                why = await self._apply(machine, vmi.metadata.namespace, credentials)
                _set_facts(machine, why)
                if why != reported:
                    _record_event(recorder, why)
                reported = why
                if why:
                    await wait_at_most(sync.due, pause)
                    sync.stale = True
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS) if why else FIRST_PAUSE_SECONDS
        finally:
            del self._running[machine.record.uid]

    async def _until_due(self, machine: Machine, sync: _Sync) -> None:
        """Wait until an agent is connected that lacks the credentials in their present state."""
        while True:
            sync.due.clear()
            facts = machine.facts
            if facts.agent_connected and (sync.stale or sync.session != facts.agent_sessions):
                sync.stale, sync.session = False, facts.agent_sessions
                return
            await sync.due.wait()

    async def _apply(
        self, machine: Machine, namespace: str, credentials: Sequence[AccessCredential]
    ) -> str:
        """Apply the credentials; return what has failed, empty if nothing has."""
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


def _reported(vmi: VirtualMachineInstance) -> str | None:
    """Return the message of the VMI's condition, empty for success; None without a condition."""
    for condition in vmi.status.conditions:
        if condition.type == CONDITION:
            return condition.message if condition.status == "False" else ""
    return None


def _set_facts(machine: Machine, why: str) -> None:
    machine.set_facts(replace(machine.facts, credentials=why))


def _record_event(recorder: MachineEvents, why: str) -> None:
    if why:
        recorder.vmi_event("Warning", FAILURE, f"Access credentials sync failed: {why}")
    else:
        recorder.vmi_event("Normal", SUCCESS, "Access credentials sync successful.")
