"""The client of a guest's agent (the protocol of qemu-ga).

Answers come from the guest and are not trusted: they have a deadline and a maximum size, they must
match the expected type, and texts are cut.
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
"""Timeout of one command."""
FREEZE_SECONDS = 60.0
"""Timeout of a freeze, which flushes file systems."""
LONGEST_ANSWER = 256 * 1024
LONGEST_OUTPUT = 8 << 20
"""The largest answer with a program's output."""
LONGEST_ADDRESS = 45
"""The longest IPv6 address, one that ends in an IPv4 address (RFC 4291)."""
MOST_INTERFACES = 64
MOST_ADDRESSES = 32

_MOST_SYNCHRONISATIONS = 32
"""Answers to earlier clients that are skipped; a booting guest is asked once a second or so."""

_FIRST_POLL_SECONDS = 0.02
_LONGEST_POLL_SECONDS = 1.0
_POLL_GROWTH = 1.25
"""Each pause by the last: an end is noticed late by a fourth of the program's time, at most."""

T = TypeVar("T")

LINGER_SECONDS = 5.0
"""Time for which an agent is disconnected before that is reported; a restart takes less."""
PARTED: Event = {"event": "PARTED"}  # not QEMU's: the agent has been gone for that long


class AgentError(GuestError):
    """The agent does not answer, or not properly."""


class AgentRefusedError(AgentError, RefusedError):
    """The agent answers with an error."""


class _Address(msgspec.Struct, rename="kebab"):
    ip_address: str


class _Interface(msgspec.Struct, rename="kebab"):
    name: str
    hardware_address: str = ""
    ip_addresses: list[_Address] = []


class _HostName(msgspec.Struct, rename="kebab"):
    host_name: str


class _Processor(msgspec.Struct, rename="kebab"):
    logical_id: int
    online: bool


class _MemoryBlock(msgspec.Struct, rename="kebab"):
    phys_index: int
    online: bool


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
    """A return value without content."""


class _Answer(msgspec.Struct, Generic[T]):
    """An answer, decoded straight into its type: fields that a guest adds are dropped."""

    value: T | msgspec.UnsetType = msgspec.field(name="return", default=msgspec.UNSET)
    error: _Fault | msgspec.UnsetType = msgspec.UNSET


class QemuAgent:
    """The client of an agent's socket, which serves one client at a time: commands queue up here.

    It stays connected between commands, as libvirt does: without a client qemu-ga polls ten times a
    second, which costs an idle guest more than everything else.
    """

    def __init__(self, path: Path) -> None:
        self._lock = asyncio.Lock()
        self._connection = Connection(path)

    def close(self) -> None:
        self._connection.close()

    async def query_guest_info(self) -> GuestInfo | None:
        """Query OS, host name and addresses; None without a proper answer.

        What an agent does not support is left empty.
        """
        with suppress(AgentError):
            async with self._connect() as connection:
                return await _guest_info(connection)
        return None

    async def ping(self) -> None:
        await self._execute("guest-ping", _Nothing)

    async def describe(self) -> Document:
        """Return what the agent supports; other fields are missing."""
        document: Document = {}
        async with self._connect() as connection:
            about = await connection.execute("guest-info", guest_agent_info.Information)
            document["guestAgentVersion"] = text(about.version)
            document["supportedCommands"] = guest_agent_info.commands(about)
            with suppress(AgentError):
                answer = await connection.execute("guest-get-osinfo", dict[str, Any])
                document["os"] = guest_agent_info.system(answer)
            with suppress(AgentError):
                document["hostname"] = text(
                    (await connection.execute(_HOST_NAME, _HostName)).host_name
                )
            with suppress(AgentError):
                zone = await connection.execute("guest-get-timezone", guest_agent_info.TimeZone)
                document["timezone"] = guest_agent_info.time_zone(zone)
            with suppress(AgentError):
                entries = await connection.execute(
                    "guest-get-users", list[guest_agent_info.UserEntry]
                )
                document["userList"] = guest_agent_info.users(entries)
            with suppress(AgentError):
                mounts = await connection.execute(
                    "guest-get-fsinfo", list[guest_agent_info.FilesystemEntry]
                )
                document["fsInfo"] = {"disks": guest_agent_info.filesystems(mounts)}
            with suppress(AgentError):
                document["fsFreezeStatus"] = text(
                    await connection.execute("guest-fsfreeze-status", str)
                )
        return document

    async def users(self) -> list[Document]:
        return guest_agent_info.users(
            await self._execute("guest-get-users", list[guest_agent_info.UserEntry])
        )

    async def filesystems(self) -> list[Document]:
        form = list[guest_agent_info.FilesystemEntry]
        return guest_agent_info.filesystems(await self._execute("guest-get-fsinfo", form))

    async def freeze(self) -> None:
        async with self._connect(seconds=FREEZE_SECONDS) as connection:
            if await connection.execute("guest-fsfreeze-status", str) != "frozen":
                await connection.execute("guest-fsfreeze-freeze", int)

    async def thaw(self) -> None:
        async with self._connect(seconds=FREEZE_SECONDS) as connection:
            await connection.execute("guest-fsfreeze-thaw", int)

    async def set_time(self, seconds: float) -> None:
        await self._execute("guest-set-time", _Nothing, {"time": int(seconds * 1e9)})

    async def authorize(self, user: str, keys: Sequence[str]) -> None:
        arguments = {"username": user, "keys": list(keys), "reset": True}
        await self._execute("guest-ssh-add-authorized-keys", _Nothing, arguments)

    async def set_password(self, user: str, password: str) -> None:
        encoded = base64.b64encode(password.encode()).decode()
        arguments = {"username": user, "password": encoded, "crypted": False}
        await self._execute("guest-set-user-password", _Nothing, arguments)

    async def bring_online(self) -> None:
        async with self._connect() as connection:
            processors = await connection.execute("guest-get-vcpus", list[_Processor])
            offline: list[Document] = [
                {"logical-id": each.logical_id, "online": True}
                for each in processors
                if not each.online
            ]
            if offline:
                await connection.execute("guest-set-vcpus", int, {"vcpus": offline})
            blocks = await connection.execute("guest-get-memory-blocks", list[_MemoryBlock])
            offline = [
                {"phys-index": each.phys_index, "online": True}
                for each in blocks
                if not each.online
            ]
            if offline:
                arguments = {"mem-blks": offline}
                await connection.execute("guest-set-memory-blocks", list[Any], arguments)

    async def reboot(self) -> None:
        """Reboot the guest; an agent that complies does not answer."""
        async with self._connect() as connection:
            await connection.send("guest-shutdown", {"mode": "reboot"})

    async def run(self, command: Sequence[str], typed: bytes = b"") -> Finished:
        """Run a program, and poll for its end in growing intervals: there is no event for it.

        Other commands can run in between.
        """
        path, *arguments = command
        request: dict[str, Any] = {"path": path, "arg": arguments, "capture-output": True}
        if typed:
            request["input-data"] = base64.b64encode(typed).decode()
        try:
            started = await self._execute("guest-exec", _Started, request)
        except AgentError as error:
            if (failed := _not_executed(path, str(error))) is None:
                raise
            return failed
        pause = _FIRST_POLL_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * _POLL_GROWTH, _LONGEST_POLL_SECONDS)
            query = {"pid": started.pid}
            async with self._connect(longest=LONGEST_OUTPUT) as connection:
                progress = await connection.execute("guest-exec-status", _Progress, query)
            if progress.exited:
                return _finished(progress)
            if (
                connection.received > LONGEST_ANSWER
            ):  # no output yet, and polled again: do not read it often
                raise AgentError("the guest agent's answer is too long")

    async def _execute(
        self, command: str, form: type[T], arguments: Mapping[str, Any] | None = None
    ) -> T:
        async with self._connect() as connection:
            return await connection.execute(command, form, arguments)

    @asynccontextmanager
    async def _connect(
        self, *, seconds: float | None = None, longest: int = LONGEST_ANSWER
    ) -> AsyncIterator["_AgentConnection"]:
        """Connect for commands, within so many seconds, which include the wait in the queue.

        Raises AgentError, also for failures inside the block.
        """
        try:
            async with asyncio.timeout(seconds or SECONDS), self._lock:
                reader, writer = await asyncio.open_unix_connection(
                    sock=self._connection.duplicate(), limit=longest
                )
                try:
                    connection = _AgentConnection(reader, writer)
                    await connection.synchronise()
                    yield connection
                except AgentRefusedError:
                    raise
                except BaseException:
                    self.close()  # a guest that reads nothing would keep it connected
                    raise
                finally:
                    writer.transport.abort()
        except TimeoutError as error:
            raise AgentError("the guest agent does not answer") from error
        except OSError as error:
            raise AgentError(f"the guest agent cannot be reached: {describe(error)}") from error


class _AgentConnection:
    """One connection.  ``received``: the size of the last answer in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.received = 0

    async def synchronise(self) -> None:
        """Skip what earlier clients have left unread: everything up to the byte 0xFF.

        A client that did not wait for a slow guest has left its own synchronisation, too.
        """
        token = secrets.randbelow(1 << 31)
        await self.send("guest-sync-delimited", {"id": token})
        for _ in range(_MOST_SYNCHRONISATIONS):
            await self._skip()
            if _answer(await self._line(), int) == token:
                return
        raise AgentError("the guest agent answers other synchronisations")

    async def _skip(self) -> None:
        """Drop data up to the byte 0xFF.

        That is one answer at most; a guest that sends more would occupy us until the timeout.
        """
        skipped = 0
        while (more := await self._skipped()) and skipped <= LONGEST_OUTPUT:
            skipped += more
        if more:
            raise AgentError("the guest agent sends without end")

    async def _skipped(self) -> int:
        """Drop data up to the byte 0xFF; return the size of what was dropped before it, else 0."""
        try:
            await self._reader.readuntil(b"\xff")
        except asyncio.IncompleteReadError as error:
            raise AgentError("no synchronisation") from error
        except asyncio.LimitOverrunError as error:
            return len(await self._reader.readexactly(error.consumed))
        return 0

    async def execute(
        self, command: str, form: type[T], arguments: Mapping[str, Any] | None = None
    ) -> T:
        await self.send(command, arguments)
        line = await self._line()
        self.received = len(line)
        return _answer(line, form)

    async def send(self, command: str, arguments: Mapping[str, Any] | None = None) -> None:
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


async def _guest_info(connection: _AgentConnection) -> GuestInfo:
    system: Mapping[str, str] = {}
    hostname = ""
    interfaces: list[_Interface] = []
    with suppress(AgentError):
        system = guest_agent_info.system(
            await connection.execute("guest-get-osinfo", dict[str, Any])
        )
    with suppress(AgentError):
        hostname = (await connection.execute(_HOST_NAME, _HostName)).host_name
    with suppress(AgentError):
        interfaces = await connection.execute("guest-network-get-interfaces", list[_Interface])
    return GuestInfo(os=system, hostname=text(hostname), interfaces=interfaces_of(interfaces))


def _answer(line: bytes, form: type[T]) -> T:
    try:
        answer: _Answer[T] = decode_as(line, _Answer[form])  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        raise AgentError(f"unexpected answer of the guest agent: {error}") from error
    if answer.error is not msgspec.UNSET:
        raise AgentRefusedError(f"the guest agent refuses: {text(answer.error.desc)}")
    if answer.value is msgspec.UNSET:
        raise AgentError("unexpected answer of the guest agent: neither return nor error")
    return answer.value


def _not_executed(path: str, refusal: str) -> Finished | None:
    """Return a shell's result for a program that cannot be executed; None for other refusals.

    The agent's message has GLib's words for what failed, and the system's for why.
    """
    if "Failed to execute child process" not in refusal:
        return None
    missing = os.strerror(errno.ENOENT) in refusal
    why = "executable file not found in $PATH" if missing else "cannot be executed"
    message = f"exec: {json.dumps(path)}: {why}\n"
    return Finished(exit_code=127 if missing else 126, errors=message.encode())


def _finished(progress: _Progress) -> Finished:
    """Return the result; a program that was ended by a signal has the exit code of a shell."""
    try:
        output, errors = (
            base64.b64decode(data, validate=True) for data in (progress.out_data, progress.err_data)
        )
    except ValueError as error:
        raise AgentError(f"not the output of a program: {error}") from error
    code = 128 + progress.signal if progress.signal else progress.exitcode
    return Finished(exit_code=code, output=output, errors=errors)


def interfaces_of(answer: list[_Interface]) -> tuple[GuestInterface, ...]:
    """Return the guest's interfaces without its loopback, with their valid addresses."""
    return tuple(
        GuestInterface(
            name=text(one.name),
            mac=text(one.hardware_address).lower(),
            addresses=tuple(
                address
                for entry in one.ip_addresses[:MOST_ADDRESSES]
                if (address := _address(entry.ip_address))
            ),
        )
        for one in answer[:MOST_INTERFACES]
        if one.name != "lo"
    )


def _address(reported: str) -> str:
    """Return an address in canonical form; empty for an invalid or link-local one.

    The parser accepts any text as the scope behind a ``%``.
    """
    if len(reported) > LONGEST_ADDRESS or "%" in reported:
        return ""
    try:
        address = ip_address(reported)
    except ValueError:
        return ""
    return "" if address.is_link_local else str(address)


class AgentLink:
    """Debounces the agent's disconnects: one is reported only if no connect follows for a while.

    Any guest may open and close its agent's port as often as it likes, and each change would be
    written to the API.
    """

    def __init__(self, events: asyncio.Queue[Event]) -> None:
        self._events = events
        self._parting: asyncio.TimerHandle | None = None

    def debounce(self, event: Event, change: Change | None) -> Change | None:
        """Return the change to report now for an event that means ``change``."""
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
