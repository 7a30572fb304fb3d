"""WireGuard devices of wireguard-go, for a kernel that has none.

The process has its UDP socket on the host, and a TUN device that is moved to the machine namespace.
It is configured through a socket in /run/wireguard by the cross-platform userspace protocol of
WireGuard, as ``wg`` does.
"""

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from shutil import which
from typing import Final

from corral.node.host.process import Process, launch
from corral.node.network.helper_processes import Helper
from corral.node.network.namespaces import Namespace
from corral.node.network.netlink import NetworkError
from corral.node.network.wireguard_plan import (
    Endpoint,
    PeerChange,
    WireguardChanges,
    WireguardPeer,
    WireguardState,
)

PROGRAM: Final = "wireguard-go"
PADDING_BYTES: Final = 15
"""Most bytes by which it pads a packet that is larger than the MTU that it assumes.

It does not see the MTU of a device in another namespace.
"""
_SOCKETS: Final = Path("/run/wireguard")
_ANSWER_SECONDS: Final = 10.0
_RECEIVE_BYTES: Final = 1 << 16


class WireguardGo(Helper):
    """The wireguard-go process of a data directory; its device is ``name`` at first."""

    def __init__(
        self, directory: Path, *, host: Namespace, on_change: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(PROGRAM, helper_directory(directory), self._launch, on_change=on_change)
        self._host = host
        self.name = device_name(directory)

    async def _launch(self, descriptors: Sequence[int], output: int) -> int:
        with _listening(_socket_path(self.name)) as listening:
            # env(1) executes the program: the process stays the same.
            command = ("env", f"WG_UAPI_FD={listening.fileno()}", PROGRAM, "-f", self.name)
            inherited = [*descriptors, listening.fileno()]
            return await self._host.call(
                lambda: launch(command, descriptors=inherited, output=output)
            )

    def device(self, process: Process) -> "UserspaceDevice":
        """Return the device of its process."""
        return UserspaceDevice(process.identity.pid, self.name)


class UserspaceDevice:
    """The configuration of a wireguard-go process."""

    def __init__(self, pid: int, name: str) -> None:
        # By the process, whose /run may be another one than ours.
        self._path = Path(f"/proc/{pid}/root") / _socket_path(name).relative_to("/")

    def read(self) -> WireguardState:
        """Return its configuration.  Raises NetworkError."""
        return decode_state(self._ask("get=1\n\n"))

    def write(self, changes: WireguardChanges) -> None:
        """Change its configuration.  Raises NetworkError."""
        self._ask(encode_changes(changes))

    def _ask(self, request: str) -> str:
        """Return the answer to a request.  Raises NetworkError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_ANSWER_SECONDS)
                connection.connect(str(self._path))
                connection.sendall(request.encode())
                answer = b""
                while not answer.endswith(b"\n\n"):
                    part = connection.recv(_RECEIVE_BYTES)
                    if not part:
                        raise NetworkError(f"{PROGRAM} has ended")
                    answer += part
        except OSError as error:
            raise NetworkError(f"{PROGRAM} does not answer: {error.strerror or error}") from error
        text = answer.decode("ascii", errors="replace")
        code = text.rsplit("errno=", 1)[-1].strip()
        if code != "0":
            number = -int(code) if code.lstrip("-").isdigit() else 0
            raise NetworkError(f"{PROGRAM} cannot be configured: {os.strerror(number)}")
        return text


def is_installed() -> bool:
    return which(PROGRAM) is not None


def device_name(directory: Path) -> str:
    """Return the name that the device of a data directory has before it is moved."""
    digest = hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()
    return f"corralwg{digest[:7]}"


def helper_directory(directory: Path) -> Path:
    return directory / "wireguard"


def remove(directory: Path) -> None:
    """Remove the socket of a process that was killed."""
    _socket_path(device_name(directory)).unlink(missing_ok=True)


def encode_changes(changes: WireguardChanges) -> str:
    """Return the request that changes a device."""
    lines = ["set=1"]
    if changes.private_key is not None:
        lines.append(f"private_key={changes.private_key.hex()}")
    if changes.port is not None:
        lines.append(f"listen_port={changes.port}")
    for each in changes.peers:
        lines += _encode_peer(each)
    return "\n".join([*lines, "", ""])


def _encode_peer(change: PeerChange) -> Iterator[str]:
    yield f"public_key={change.key.hex()}"
    if change.removes:
        yield "remove=true"
        return
    if change.endpoint is not None:
        address, port = change.endpoint
        yield (
            f"endpoint={address}:{port}" if address.version == 4 else f"endpoint=[{address}]:{port}"
        )
    if change.replaces:
        yield "replace_allowed_ips=true"
    for cidr in change.allowed:
        yield f"allowed_ip={cidr}"


def decode_state(text: str) -> WireguardState:
    """Return the configuration in the answer to ``get``."""
    private_key, port = b"", 0
    peers: dict[bytes, WireguardPeer] = {}
    key = b""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "private_key":
            private_key = bytes.fromhex(value)
        elif name == "listen_port":
            port = int(value)
        elif name == "public_key":
            key = bytes.fromhex(value)
            peers[key] = WireguardPeer(None, frozenset())
        elif name == "endpoint":
            peers[key] = WireguardPeer(_decode_endpoint(value), peers[key].allowed)
        elif name == "allowed_ip":
            allowed = peers[key].allowed | {ip_network(value)}
            peers[key] = WireguardPeer(peers[key].endpoint, allowed)
    return WireguardState(private_key, port, peers)


def _decode_endpoint(value: str) -> Endpoint | None:
    address, _, port = value.rpartition(":")
    try:
        return Endpoint(ip_address(address.strip("[]")), int(port))
    except ValueError:
        return None


def _socket_path(name: str) -> Path:
    return _SOCKETS / f"{name}.sock"


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Open a socket on which only root connects, in place of what a killed process has left.

    Requests wait in it until the process answers.  Raises OSError.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        os.fchmod(listening.fileno(), 0o600)  # before it has a name: its mode, then
        listening.bind(str(path))
        listening.listen()
        yield listening
