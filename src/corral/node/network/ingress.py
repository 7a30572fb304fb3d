"""The way in: ports of the host, led into the machine namespace by slirp4netns.

It runs only while a port is wanted.  What is wanted is compared with what it says that it has, so
one that was killed, or found again after a restart, ends up with the same ports.
"""

import asyncio
import errno
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address
from pathlib import Path
from typing import Any, Final

from corral.node.network import netlink
from corral.node.network.helper_processes import Helper, launch_able
from corral.node.network.namespace_nft_rules import INBOUND
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError

PROGRAM: Final = "slirp4netns"
RANGE: Final = "169.254.78.0/24"
ADDRESS: Final = IPv4Interface("169.254.78.100/24")
"""Where connections from the host arrive; they come from 169.254.78.2."""
ANSWER_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 10.0
"""What was refused is asked for again after so long: whoever has a port may let go of it."""
_SOCKET: Final = "api.sock"
_PROTOCOLS: Final = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the host; ``protocol`` is tcp or udp."""

    protocol: str
    address: IPv4Address | IPv6Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{self.protocol} {host}:{self.port}"


class Inbound:
    """The ports of the host that lead in.

    ``changed`` is told when ``problems`` answers something new.
    """

    def __init__(
        self, directory: Path, namespace: Namespace, *, changed: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._namespace = namespace
        self._changed = changed
        self._helper = Helper(PROGRAM, directory, self._launch, changed=changed)
        self._watched: object = None
        self._wanted: Mapping[HostPort, int] | None = None  # until it is known: leave all as it is
        self._refused: Mapping[HostPort, str] = {}
        self._turn = asyncio.Lock()  # a program that answers one question at a time
        self._due = asyncio.Event()

    def problems(self) -> Sequence[str]:
        """What is wrong, a line each."""
        return [f"{port} cannot be had: {why}" for port, why in self._refused.items()]

    async def set(self, ports: Mapping[HostPort, int]) -> Mapping[HostPort, str]:
        """Lead these ports, and no others, to ports of the namespace at ``ADDRESS``.

        Answers which of them cannot be had now, and why; they are tried again.
        """
        self._wanted = dict(ports)
        await self._settle()
        self._due.set()  # to be tried again, at times
        return self._refused

    async def run(self) -> None:
        """Keep the ports until cancelled; they stay open then."""
        try:
            while True:
                self._due.clear()
                await self._settle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS if self._refused else None):
                        await self._due.wait()
        finally:
            self._helper.release()

    def look_again(self) -> None:
        """Its link may be gone."""
        self._due.set()

    async def _settle(self) -> None:
        if self._wanted is None:
            return
        async with self._turn:
            wanted = self._wanted
            try:
                refused = await self._arrange(wanted)
            except NetworkError as error:
                refused = dict.fromkeys(wanted, error.told)
        if refused != self._refused:
            self._refused = refused
            self._changed()

    async def _arrange(self, wanted: Mapping[HostPort, int]) -> Mapping[HostPort, str]:
        """Make what the program has what is wanted; answers what it refuses."""
        if not wanted:
            await self._helper.end()
            return {}
        await self._ensure()
        refused = {}
        held = await self._held()
        for port, (number, target) in held.items():
            if wanted.get(port) != target:
                await self._ask("remove_hostfwd", id=number)
        for port, target in wanted.items():
            if held.get(port, (0, -1))[1] != target and (why := await self._add(port, target)):
                refused[port] = why
        return refused

    async def _ensure(self) -> None:
        process = await self._helper.ensure()
        if process is not self._watched:
            self._watched = process
            process.on_end(self._due.set)
        try:
            await self._namespace.call(_furnish)
        except NetworkError:  # its link was removed, and it does not notice
            self._due.set()
            await self._helper.end()
            raise

    async def _held(self) -> dict[HostPort, tuple[int, int]]:
        """The ports that the program has: its number for each, and where it leads."""
        entries = (await self._ask("list_hostfwd")).get("entries", [])
        return {
            HostPort(each["proto"], IPv4Address(each["host_addr"]), each["host_port"]): (
                each["id"],
                each["guest_port"],
            )
            for each in entries
        }

    async def _add(self, port: HostPort, target: int) -> str:
        """Lead a port in; answers why that cannot be, if so."""
        if port.address.version != 4 or port.protocol not in _PROTOCOLS:
            return f"{PROGRAM} leads in TCP and UDP of IPv4 only"
        try:
            await self._ask(
                "add_hostfwd",
                proto=port.protocol,
                host_addr=str(port.address),
                host_port=port.port,
                guest_addr=str(ADDRESS.ip),
                guest_port=target,
            )
        except NetworkError as error:
            return why_not(port) or error.message
        return ""

    async def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One question, one connection.  Raises NetworkError."""
        question = json.dumps({"execute": command, "arguments": arguments}).encode()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                with _named(self._directory / _SOCKET) as path:
                    reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(question)
                    writer.write_eof()
                    answer: dict[str, Any] = json.loads(await reader.read())
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError) as error:
            raise NetworkError(f"{PROGRAM} does not answer: {_words(error)}") from error
        if "error" in answer:
            raise NetworkError(f"{PROGRAM} refuses: {answer['error'].get('desc', '')}")
        return answer

    async def _launch(self, descriptors: Sequence[int], output: int) -> int:
        if shutil.which(PROGRAM) is None:
            raise NetworkError(f"{PROGRAM} is missing", "Install it: apt-get install slirp4netns")
        (self._directory / _SOCKET).unlink(missing_ok=True)
        reading, writing = os.pipe()
        inherited = [*descriptors, self._namespace.descriptor, writing]
        with open(reading, "rb", buffering=0) as ready:  # noqa: ASYNC230,PTH123 - a pipe
            try:
                with _named(self._directory / _SOCKET, inherited) as path:
                    arguments = command(
                        self._namespace.descriptor, path, writing, root=os.geteuid() == 0
                    )
                    pid = await launch_able(arguments, descriptors=inherited, output=output)
            finally:
                os.close(writing)
            await _readable(ready.fileno())
        return pid


def command(descriptor: int, path: str, ready: int, *, root: bool) -> list[str]:
    """The program's command for the namespace of a descriptor, listening on a socket's path.

    It reads what guests send: as root it sees no files, and keeps no right but that to low ports.
    Its sandbox is for root alone, as it insists on being user 0 in it; another user's has that
    user's files, and no rights but over that user's own networks.
    """
    return [
        PROGRAM, "--mtu", "1500", "--cidr", RANGE, "--disable-dns", "--disable-host-loopback",
        "--enable-seccomp", *(["--enable-sandbox"] if root else []),
        "--api-socket", path, "--ready-fd", str(ready), "--netns-type=path",
        f"/proc/self/fd/{descriptor}", INBOUND,
    ]  # fmt: skip


def why_not(port: HostPort) -> str:
    """Why a port of this host cannot be listened on; empty where it can."""
    family = socket.AF_INET if port.address.version == 4 else socket.AF_INET6
    with socket.socket(family, _PROTOCOLS[port.protocol]) as probe:
        try:
            probe.bind((str(port.address), port.port))
            if port.protocol == "tcp":
                probe.listen(1)
        except PermissionError:
            return "ports below 1024 are root's; take a higher one, or run corral as root"
        except OSError as error:
            taken = "another program has it" if error.errno == errno.EADDRINUSE else ""
            return taken or (error.strerror or str(error))
    return ""


def _furnish() -> None:
    """Inside: the program has made the link, and leaves it to us."""
    with netlink.opened() as link:
        link.change(INBOUND)
        link.add_address(INBOUND, ADDRESS)


def _words(error: Exception) -> str:
    return "its time is over" if isinstance(error, TimeoutError) else str(error)


async def _readable(descriptor: int) -> None:
    """Until something can be read, or a time limit is over: the questions then tell."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_reader(descriptor, told.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await told.wait()
    finally:
        loop.remove_reader(descriptor)


@contextmanager
def _named(path: Path, inherited: list[int] | None = None) -> Iterator[str]:
    """A name for a socket that fits into the 107 bytes that one may have, however deep it lies.

    Who is to inherit that name has to inherit a descriptor.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if inherited is not None:
            inherited.append(directory)
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
