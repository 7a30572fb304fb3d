"""A guest's agent (the protocol of qemu-ga): asks it, and has it do things.

Every answer comes out of the guest, so it is not believed: it has a deadline and a largest size,
it must have the shape that was asked for, and texts are cut.
"""

import asyncio
import base64
import errno
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from corral.api.encoding import decode_as
from corral.api.object import Document
from corral.failures import describe
from corral.node.hypervisor import (
    Change,
    Finished,
    GuestError,
    GuestInfo,
    GuestInterface,
    RefusedError,
)
from corral.node.qemu import guest_agent_info
from corral.node.qemu.guest_agent_info import text
from corral.node.qemu.monitor import Event
from corral.node.qemu.sockets import Connection

SECONDS = 5.0
"""How long an agent may take to answer one question."""
FREEZE_SECONDS = 60.0
"""How long it may take to write everything to the disks."""
LONGEST_ANSWER = 256 * 1024
LONGEST_OUTPUT = 8 << 20
"""Of a program that it runs: the answer that holds all it printed."""
LONGEST_ADDRESS = 45
"""Of an IPv6 address that ends in an IPv4 one (RFC 4291)."""
MOST_INTERFACES = 64
MOST_ADDRESSES = 32

_FIRST_LOOK_SECONDS = 0.02
_LONGEST_LOOK_SECONDS = 1.0

T = TypeVar("T")

LINGER_SECONDS = 5.0
"""An agent that is started anew takes less."""
PARTED: Event = {"event": "PARTED"}  # not of QEMU: the agent has been away for that long


class AgentError(GuestError):
    """The agent does not answer, or not as it should."""


class AgentRefusedError(AgentError, RefusedError):
    """The agent answers that it has not done it."""


class _Address(msgspec.Struct, rename="kebab"):
    ip_address: str


class _Interface(msgspec.Struct, rename="kebab"):
    name: str
    hardware_address: str = ""
    ip_addresses: list[_Address] = []


class _HostName(msgspec.Struct, rename="kebab"):
    host_name: str


class _Started(msgspec.Struct):
    pid: int


class _Progress(msgspec.Struct, rename="kebab"):
    exited: bool
    exitcode: int = 0
    signal: int = 0
    out_data: str = ""
    err_data: str = ""


class _Fault(msgspec.Struct):
    desc: str = ""


class _Nothing(msgspec.Struct):
    """An answer that says no more than that it is one."""


class _Answer(msgspec.Struct, Generic[T]):
    """Decoded into its form at once: nothing is made of what a guest adds to it."""

    value: T | msgspec.UnsetType = msgspec.field(name="return", default=msgspec.UNSET)
    error: _Fault | msgspec.UnsetType = msgspec.UNSET


class QemuAgent:
    """The agent behind a socket, which serves one client at a time: questions wait in line here.

    Between questions it stays connected, as libvirt does: QEMU's agent looks ten times a second
    whether somebody has come, which costs an idle guest more than all the rest.
    """

    def __init__(self, path: Path) -> None:
        self._turn = asyncio.Lock()
        self._connection = Connection(path)

    def close(self) -> None:
        self._connection.close()

    async def query_guest_info(self) -> GuestInfo | None:
        """Ask for operating system, host name and addresses; None where nothing answers properly.

        An agent that knows only a part of this introduces its guest by that part.
        """
        with suppress(AgentError):
            async with self._talk() as talk:
                return await _interview(talk)
        return None

    async def ping(self) -> None:
        await self._ask("guest-ping", _Nothing)

    async def describe(self) -> Document:
        """What an agent does not know is not there."""
        document: Document = {}
        async with self._talk() as talk:
            about = await talk.ask("guest-info", guest_agent_info.Information)
            document["guestAgentVersion"] = text(about.version)
            document["supportedCommands"] = guest_agent_info.commands(about)
            with suppress(AgentError):
                answer = await talk.ask("guest-get-osinfo", dict[str, Any])
                document["os"] = guest_agent_info.system(answer)
            with suppress(AgentError):
                document["hostname"] = text((await talk.ask(_HOST_NAME, _HostName)).host_name)
            with suppress(AgentError):
                zone = await talk.ask("guest-get-timezone", guest_agent_info.TimeZone)
                document["timezone"] = guest_agent_info.time_zone(zone)
            with suppress(AgentError):
                entries = await talk.ask("guest-get-users", list[guest_agent_info.UserEntry])
                document["userList"] = guest_agent_info.users(entries)
            with suppress(AgentError):
                mounts = await talk.ask("guest-get-fsinfo", list[guest_agent_info.FilesystemEntry])
                document["fsInfo"] = {"disks": guest_agent_info.filesystems(mounts)}
            with suppress(AgentError):
                document["fsFreezeStatus"] = text(await talk.ask("guest-fsfreeze-status", str))
        return document

    async def users(self) -> list[Document]:
        return guest_agent_info.users(
            await self._ask("guest-get-users", list[guest_agent_info.UserEntry])
        )

    async def filesystems(self) -> list[Document]:
        form = list[guest_agent_info.FilesystemEntry]
        return guest_agent_info.filesystems(await self._ask("guest-get-fsinfo", form))

    async def freeze(self) -> None:
        async with self._talk(seconds=FREEZE_SECONDS) as talk:
            if await talk.ask("guest-fsfreeze-status", str) != "frozen":
                await talk.ask("guest-fsfreeze-freeze", int)

    async def thaw(self) -> None:
        async with self._talk(seconds=FREEZE_SECONDS) as talk:
            await talk.ask("guest-fsfreeze-thaw", int)

    async def set_time(self, seconds: float) -> None:
        await self._ask("guest-set-time", _Nothing, {"time": int(seconds * 1e9)})

    async def authorize(self, user: str, keys: Sequence[str]) -> None:
        arguments = {"username": user, "keys": list(keys), "reset": True}
        await self._ask("guest-ssh-add-authorized-keys", _Nothing, arguments)

    async def set_password(self, user: str, password: str) -> None:
        encoded = base64.b64encode(password.encode()).decode()
        arguments = {"username": user, "password": encoded, "crypted": False}
        await self._ask("guest-set-user-password", _Nothing, arguments)

    async def reboot(self) -> None:
        """Have the guest start again.  The agent does not answer if it obeys."""
        async with self._talk() as talk:
            await talk.tell("guest-shutdown", {"mode": "reboot"})

    async def run(self, command: Sequence[str], typed: bytes = b"") -> Finished:
        """The protocol tells nobody when a program ends, so it is looked for in growing intervals.

        Others can ask in between.
        """
        path, *arguments = command
        wish: dict[str, Any] = {"path": path, "arg": arguments, "capture-output": True}
        if typed:
            wish["input-data"] = base64.b64encode(typed).decode()
        try:
            started = await self._ask("guest-exec", _Started, wish)
        except AgentError as error:
            if (failed := _not_executed(path, str(error))) is None:
                raise
            return failed
        pause = _FIRST_LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_LOOK_SECONDS)
            asked = {"pid": started.pid}
            async with self._talk(longest=LONGEST_OUTPUT) as talk:
                progress = await talk.ask("guest-exec-status", _Progress, asked)
            if progress.exited:
                return _finished(progress)
            if talk.received > LONGEST_ANSWER:  # there is no output yet, and it is asked again
                raise AgentError("the guest agent's answer is too long")

    async def _ask(
        self, command: str, form: type[T], arguments: Mapping[str, Any] | None = None
    ) -> T:
        async with self._talk() as talk:
            return await talk.ask(command, form, arguments)

    @asynccontextmanager
    async def _talk(
        self, *, seconds: float | None = None, longest: int = LONGEST_ANSWER
    ) -> AsyncIterator["_Talk"]:
        """A connection in which to ask, within so many seconds, the wait for our turn included.

        Raises AgentError, also for what fails in the block.
        """
        try:
            async with asyncio.timeout(seconds or SECONDS), self._turn:
                reader, writer = await asyncio.open_unix_connection(
                    sock=self._connection.duplicate(), limit=longest
                )
                try:
                    talk = _Talk(reader, writer)
                    await talk.synchronise()
                    yield talk
                except AgentRefusedError:
                    raise
                except BaseException:
                    self.close()  # a guest that reads nothing would keep it open
                    raise
                finally:
                    writer.transport.abort()
        except TimeoutError as error:
            raise AgentError("the guest agent does not answer") from error
        except OSError as error:
            raise AgentError(f"the guest agent cannot be reached: {describe(error)}") from error


class _Talk:
    """One conversation.  ``received`` is how many bytes the last answer had."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.received = 0

    async def synchronise(self) -> None:
        """Skip what an earlier client has left unread: everything up to the byte 0xFF.

        That is one answer at most; who sends more would keep us busy until its time is up.
        """
        token = secrets.randbelow(1 << 31)
        await self.tell("guest-sync-delimited", {"id": token})
        skipped = 0
        while (more := await self._skipped()) and skipped <= LONGEST_OUTPUT:
            skipped += more
        if more:
            raise AgentError("the guest agent talks without end")
        if _answer(await self._line(), int) != token:
            raise AgentError("out of step")

    async def _skipped(self) -> int:
        """Drop what comes before the byte 0xFF; how much was dropped where that has yet to come."""
        try:
            await self._reader.readuntil(b"\xff")
        except asyncio.IncompleteReadError as error:
            raise AgentError("no synchronisation") from error
        except asyncio.LimitOverrunError as error:
            return len(await self._reader.readexactly(error.consumed))
        return 0

    async def ask(
        self, command: str, form: type[T], arguments: Mapping[str, Any] | None = None
    ) -> T:
        await self.tell(command, arguments)
        line = await self._line()
        self.received = len(line)
        return _answer(line, form)

    async def tell(self, command: str, arguments: Mapping[str, Any] | None = None) -> None:
        request: dict[str, Any] = {"execute": command}
        if arguments is not None:
            request["arguments"] = arguments
        self._writer.write(msgspec.json.encode(request) + b"\n")
        await self._writer.drain()

    async def _line(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raise AgentError("no whole answer from the guest agent") from error
        except asyncio.LimitOverrunError as error:
            raise AgentError("the guest agent's answer is too long") from error


_HOST_NAME = "guest-get-host-name"


async def _interview(talk: _Talk) -> GuestInfo:
    system: Mapping[str, str] = {}
    hostname = ""
    interfaces: list[_Interface] = []
    with suppress(AgentError):
        system = guest_agent_info.system(await talk.ask("guest-get-osinfo", dict[str, Any]))
    with suppress(AgentError):
        hostname = (await talk.ask(_HOST_NAME, _HostName)).host_name
    with suppress(AgentError):
        interfaces = await talk.ask("guest-network-get-interfaces", list[_Interface])
    return GuestInfo(os=system, hostname=text(hostname), interfaces=interfaces_of(interfaces))


def _answer(line: bytes, form: type[T]) -> T:
    try:
        answer: _Answer[T] = decode_as(line, _Answer[form])  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        raise AgentError(f"not the answer that was asked for: {error}") from error
    if answer.error is not msgspec.UNSET:
        raise AgentRefusedError(f"the guest agent refuses: {text(answer.error.desc)}")
    if answer.value is msgspec.UNSET:
        raise AgentError("not the answer that was asked for: it holds none")
    return answer.value


def _not_executed(path: str, told: str) -> Finished | None:
    """What a shell answers where there is no such program, or it is none; None for other refusals.

    The agent says it in GLib's words for what failed, and the system's for why.
    """
    if "Failed to execute child process" not in told:
        return None
    missing = os.strerror(errno.ENOENT) in told
    why = "executable file not found in $PATH" if missing else "cannot be executed"
    message = f"exec: {json.dumps(path)}: {why}\n"
    return Finished(exit_code=127 if missing else 126, errors=message.encode())


def _finished(progress: _Progress) -> Finished:
    """A program that a signal ended has the exit code that a shell would give it."""
    try:
        output, errors = (
            base64.b64decode(data, validate=True) for data in (progress.out_data, progress.err_data)
        )
    except ValueError as error:
        raise AgentError(f"not the output of a program: {error}") from error
    code = 128 + progress.signal if progress.signal else progress.exitcode
    return Finished(exit_code=code, output=output, errors=errors)


def interfaces_of(answer: list[_Interface]) -> tuple[GuestInterface, ...]:
    """The guest's interfaces but its loopback, with the addresses that are addresses."""
    return tuple(
        GuestInterface(
            name=text(one.name),
            mac=text(one.hardware_address).lower(),
            addresses=tuple(
                address
                for told in one.ip_addresses[:MOST_ADDRESSES]
                if (address := _address(told.ip_address))
            ),
        )
        for one in answer[:MOST_INTERFACES]
        if one.name != "lo"
    )


def _address(told: str) -> str:
    """An address in its usual spelling; empty for what is none, or is good on its own link only.

    The parser takes any text at all for the scope behind a ``%``.
    """
    if len(told) > LONGEST_ADDRESS or "%" in told:
        return ""
    try:
        address = ip_address(told)
    except ValueError:
        return ""
    return "" if address.is_link_local else str(address)


class AgentLink:
    """Holds back what tells that the agent has gone, until it has been away for a while.

    Any guest may open and close its agent's port as often as it likes, and each time would be
    written to the API.
    """

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
