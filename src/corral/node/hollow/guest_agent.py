"""The agent of a guest that is not there: see ``corral.node.hollow.hypervisor``."""

from collections.abc import Callable, Sequence

from corral.api.object import Document
from corral.api.quantity import NANO, parse
from corral.node.hypervisor import Finished, GuestError

NOBODY = "nobody"
"""A user that hollow guests do not know."""


LOAD = "load"
"""A program that hollow guests have: ``load 300m`` makes them use so much of a processor."""


class HollowAgent:
    """Answers everything at once; a program that it runs prints how it was called.

    ``bear`` puts a load on the guest, in processors.
    """

    def __init__(self, name: str, bear: Callable[[float], None]) -> None:
        self._name = name
        self._bear = bear
        self.well = True
        """Whether it answers to a ping; tests set it."""
        self.clock: float | None = None
        """What it was told that the time is."""
        self.keys: dict[str, Sequence[str]] = {}
        self.passwords: dict[str, str] = {}
        """By user: who may log in."""

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
        """It writes nothing anyway."""

    async def thaw(self) -> None:
        """It has nothing to write."""

    async def set_time(self, seconds: float) -> None:
        self.clock = seconds

    async def run(self, command: Sequence[str], typed: bytes = b"") -> Finished:
        """``false`` fails, as it does everywhere."""
        if command[0] == LOAD:
            return self._run_load(command[1:])
        output = " ".join(command).encode() + b"\n" + typed
        return Finished(exit_code=int(command[0] == "false"), output=output)

    def _run_load(self, arguments: Sequence[str]) -> Finished:
        try:
            (quantity,) = arguments
            share = parse(quantity).nanos / NANO
        except ValueError:
            return Finished(exit_code=2, errors=b"usage: load PROCESSORS, as in: load 300m\n")
        if share < 0:
            return Finished(exit_code=1, errors=b"load: a guest cannot use less than nothing\n")
        self._bear(share)
        return Finished(exit_code=0)
