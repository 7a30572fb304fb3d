"""The agent of a guest that is not there: see ``corral.node.hollow``."""

from collections.abc import Sequence

from corral.api.object import Document
from corral.node.hypervisor import Finished, GuestError

NOBODY = "nobody"
"""A user that hollow guests do not know."""


class HollowAgent:
    """Answers everything at once; a program that it runs prints how it was called."""

    def __init__(self, name: str) -> None:
        self._name = name
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
        output = " ".join(command).encode() + b"\n" + typed
        return Finished(exit_code=int(command[0] == "false"), output=output)
