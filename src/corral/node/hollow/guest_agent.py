"""The agent of a hollow guest (see ``corral.node.hollow.hypervisor``)."""

from collections.abc import Callable, Sequence

from corral.api.object import Document
from corral.api.quantity import NANO, parse
from corral.node.hypervisor import Finished, GuestError

NOBODY = "nobody"
"""A user that does not exist in hollow guests."""


LOAD = "load"
"""A program of hollow guests: ``load 300m`` makes them use so much of a CPU."""


class HollowAgent:
    """Answers every command at once; a program that it runs prints its arguments.

    ``set_load`` sets the CPU usage of the guest, in CPUs.
    """

    def __init__(self, name: str, set_load: Callable[[float], None]) -> None:
        self._name = name
        self._set_load = set_load
        self.well = True
        """True if it answers pings; set by tests."""
        self.onlined = 0
        """Count of the times that it has brought vCPUs and memory online."""
        self.clock: float | None = None
        """The time that was last set."""
        self.keys: dict[str, Sequence[str]] = {}
        self.passwords: dict[str, str] = {}
        """The users' credentials."""
        self.runs: list[tuple[Sequence[str], bytes]] = []
        """Commands that it has run, with their input."""
        self.exit_code = 0
        """Exit code of commands that do not fail by themselves; set by tests."""

    async def bring_online(self) -> None:
        self.onlined += 1

    async def authorize(self, user: str, keys: Sequence[str]) -> None:
        if user == NOBODY:
            raise GuestError(f"failed to lookup user: {user}")
        self.keys[user] = keys

    async def set_password(self, user: str, password: str) -> None:
        if user == NOBODY:
            raise GuestError(f"failed to lookup user: {user}")
        self.passwords[user] = password

    async def ping(self) -> None:
        if not self.well:
            raise GuestError("the guest agent does not answer")

    async def describe(self) -> Document:
        return {
            "guestAgentVersion": "hollow",
            "supportedCommands": [],
            "hostname": self._name,
            "os": {"name": "hollow"},
            "timezone": "UTC, 0",
            "userList": await self.users(),
            "fsInfo": {"disks": await self.filesystems()},
            "fsFreezeStatus": "thawed",
        }

    async def users(self) -> list[Document]:
        return []

    async def filesystems(self) -> list[Document]:
        return []

    async def freeze(self) -> None:
        """Do nothing: the guest never writes."""

    async def thaw(self) -> None:
        """Do nothing: the guest never writes."""

    async def set_time(self, seconds: float) -> None:
        self.clock = seconds

    async def run(self, command: Sequence[str], typed: bytes = b"") -> Finished:
        """Run ``load``, or print the arguments; ``false`` fails as usual."""
        self.runs.append((command, typed))
        if command[0] == LOAD:
            return self._run_load(command[1:])
        output = " ".join(command).encode() + b"\n" + typed
        return Finished(exit_code=int(command[0] == "false") or self.exit_code, output=output)

    def _run_load(self, arguments: Sequence[str]) -> Finished:
        try:
            (quantity,) = arguments
            share = parse(quantity).nanos / NANO
        except ValueError:
            return Finished(exit_code=2, errors=b"usage: load PROCESSORS, as in: load 300m\n")
        if share < 0:
            return Finished(exit_code=1, errors=b"load: PROCESSORS must not be negative\n")
        self._set_load(share)
        return Finished(exit_code=0)
