"""Ingress: forwards ports of the host into the machine namespace, by slirp4netns.

The program runs only while ports are forwarded.  The desired forwards are compared with those that
it lists, so after a kill, or a restart of the manager, the same ports are forwarded.
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
from corral.node.network.helper_processes import Helper, launch_with_capabilities
from corral.node.network.namespace_nft_rules import INGRESS_LINK
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError

PROGRAM: Final = "slirp4netns"
RANGE: Final = "169.254.78.0/24"
ADDRESS: Final = IPv4Interface("169.254.78.100/24")
"""The address at which connections from the host arrive; their source is 169.254.78.2."""
REPLY_TIMEOUT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 10.0
"""Interval of retries of failed forwards: the program that has the port may release it."""
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


class PortForwarder:
    """Forwards host ports; ``on_change`` is called when ``problems()`` changes."""

    def __init__(
        self, directory: Path, namespace: Namespace, *, on_change: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._namespace = namespace
        self._on_change = on_change
        self._helper = Helper(PROGRAM, directory, self._launch, on_change=on_change)
        self._watched_process: object = None
        self._desired: Mapping[HostPort, int] | None = (
            None  # None until ``set`` was called: leave existing forwards
        )
        self._failures: Mapping[HostPort, str] = {}
        self._lock = asyncio.Lock()  # slirp4netns handles one request at a time
        self._sync_needed = asyncio.Event()

    def problems(self) -> Sequence[str]:
        """Return the ports that cannot be forwarded, a line each."""
        return [f"{port} cannot be forwarded: {reason}" for port, reason in self._failures.items()]

    async def set(self, ports: Mapping[HostPort, int]) -> Mapping[HostPort, str]:
        """Forward exactly these ports to ports of the namespace at ``ADDRESS``.

        Returns the ports that cannot be forwarded now, each with the reason; they are retried.
        """
        self._desired = dict(ports)
        await self._sync()
        self._sync_needed.set()  # schedules the retries
        return self._failures

    async def run(self) -> None:
        """Keep the ports forwarded until cancelled; they stay open then."""
        try:
            while True:
                self._sync_needed.clear()
                await self._sync()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS if self._failures else None):
                        await self._sync_needed.wait()
        finally:
            self._helper.release()

    def resync(self) -> None:
        """Sync again: its link may have been removed."""
        self._sync_needed.set()

    async def _sync(self) -> None:
        if self._desired is None:
            return
        async with self._lock:
            desired = self._desired
            try:
                failures = await self._reconcile(desired)
            except NetworkError as error:
                failures = dict.fromkeys(desired, error.full_message)
        if failures != self._failures:
            self._failures = failures
            self._on_change()

    async def _reconcile(self, desired: Mapping[HostPort, int]) -> Mapping[HostPort, str]:
        """Bring the program's forwards to the desired ones; return the failures."""
        if not desired:
            await self._helper.end()
            return {}
        await self._ensure()
        failures = {}
        observed = await self._forwards()
        for port, (number, target) in observed.items():
            if desired.get(port) != target:
                await self._execute("remove_hostfwd", id=number)
        for port, target in desired.items():
            if observed.get(port, (0, -1))[1] != target and (
                reason := await self._add(port, target)
            ):
                failures[port] = reason
        return failures

    async def _ensure(self) -> None:
        process = await self._helper.ensure()
        if process is not self._watched_process:
            self._watched_process = process
            process.on_end(self._sync_needed.set)
        try:
            await self._namespace.call(_configure_link)
        except NetworkError:  # its link was removed, which it does not notice
            self._sync_needed.set()
            await self._helper.end()
            raise

    async def _forwards(self) -> dict[HostPort, tuple[int, int]]:
        """Return the program's forwards: the id and the target port of each."""
        entries = (await self._execute("list_hostfwd")).get("entries", [])
        return {
            HostPort(each["proto"], IPv4Address(each["host_addr"]), each["host_port"]): (
                each["id"],
                each["guest_port"],
            )
            for each in entries
        }

    async def _add(self, port: HostPort, target: int) -> str:
        """Forward a port; return the reason if that fails."""
        if port.address.version != 4 or port.protocol not in _PROTOCOLS:
            return f"{PROGRAM} forwards only TCP and UDP of IPv4"
        try:
            await self._execute(
                "add_hostfwd",
                proto=port.protocol,
                host_addr=str(port.address),
                host_port=port.port,
                guest_addr=str(ADDRESS.ip),
                guest_port=target,
            )
        except NetworkError as error:
            return unavailable_reason(port) or error.message
        return ""

    async def _execute(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Execute one command, on a connection of its own.  Raises NetworkError."""
        request = json.dumps({"execute": command, "arguments": arguments}).encode()
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
                with _short_path(self._directory / _SOCKET) as path:
                    reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(request)
                    writer.write_eof()
                    reply: dict[str, Any] = json.loads(await reader.read())
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError) as error:
            raise NetworkError(f"{PROGRAM} does not answer: {_describe(error)}") from error
        if "error" in reply:
            raise NetworkError(f"{PROGRAM} refuses: {reply['error'].get('desc', '')}")
        return reply

    async def _launch(self, descriptors: Sequence[int], output: int) -> int:
        if shutil.which(PROGRAM) is None:
            raise NetworkError(f"{PROGRAM} is missing", "Install it: apt-get install slirp4netns")
        (self._directory / _SOCKET).unlink(missing_ok=True)
        reading, writing = os.pipe()
        inherited = [*descriptors, self._namespace.descriptor, writing]
        with open(reading, "rb", buffering=0) as ready:  # noqa: ASYNC230,PTH123 - a pipe
            try:
                with _short_path(self._directory / _SOCKET, inherited) as path:
                    arguments = command(
                        self._namespace.descriptor, path, writing, root=os.geteuid() == 0
                    )
                    pid = await launch_with_capabilities(
                        arguments, descriptors=inherited, output=output
                    )
            finally:
                os.close(writing)
            await _wait_readable(ready.fileno())
        return pid


def command(descriptor: int, path: str, ready: int, *, root: bool) -> list[str]:
    """Return the command for a namespace, whose descriptor it inherits.

    It parses what guests send: as root it runs in a sandbox without files, with no capability but
    that for ports below 1024.  The sandbox requires user 0, so another user's process keeps that
    user's files; its capabilities cover only that user's own networks.

    The sandbox unmounts what it has left behind, and makes only ``/`` private before: mounts that
    are shared, such as the network namespaces of ip(8), would go from the host, too.  So it begins
    in a mount namespace that gets the host's unmounts, and returns none.
    """
    sandbox = ["unshare", "--mount", "--propagation=slave"] if root else []
    return [
        *sandbox, PROGRAM, "--mtu", "1500", "--cidr", RANGE, "--disable-dns",
        "--disable-host-loopback", "--enable-seccomp", *(["--enable-sandbox"] if root else []),
        "--api-socket", path, "--ready-fd", str(ready), "--netns-type=path",
        f"/proc/self/fd/{descriptor}", INGRESS_LINK,
    ]  # fmt: skip


def unavailable_reason(port: HostPort) -> str:
    """Return why a port of this host cannot be listened on; empty if it can."""
    family = socket.AF_INET if port.address.version == 4 else socket.AF_INET6
    with socket.socket(family, _PROTOCOLS[port.protocol]) as probe:
        try:
            probe.bind((str(port.address), port.port))
            if port.protocol == "tcp":
                probe.listen(1)
        except PermissionError:
            return "ports below 1024 are root's; take a higher one, or run corral as root"
        except OSError as error:
            in_use = "another program has it" if error.errno == errno.EADDRINUSE else ""
            return in_use or (error.strerror or str(error))
    return ""


def _configure_link() -> None:
    """Configure the link that the program has created, inside the namespace."""
    with netlink.opened() as link:
        link.change(INGRESS_LINK)
        link.add_address(INGRESS_LINK, ADDRESS)


def _describe(error: Exception) -> str:
    return "timed out" if isinstance(error, TimeoutError) else str(error)


async def _wait_readable(descriptor: int) -> None:
    """Wait until a descriptor is readable, or a timeout: then the requests that follow fail."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(descriptor, is_readable.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
                await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)


@contextmanager
def _short_path(path: Path, inherited: list[int] | None = None) -> Iterator[str]:
    """Yield a path of a socket within the limit of 107 bytes, however deep its directory is.

    A child process that uses the path must inherit the descriptor that is added to ``inherited``.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if inherited is not None:
            inherited.append(directory)
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
