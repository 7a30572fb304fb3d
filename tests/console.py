"""A guest's serial console, for tests that type."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.cluster import PATIENCE, Outside

from corral.client.kubeconfig import load
from corral.client.stream import Stream
from corral.node.hypervisor import Guest

LOGIN, PASSWORD = "login: $", "[Pp]assword: $"
SHELL = r"[#$] (\x1b\[6n)?$"
"""A shell's prompt, and how it asks the terminal for the place of its cursor."""
QUIET_SECONDS = 5.0
"""After so long without a word, what was typed came before anybody listened."""

Send = Callable[[bytes], Awaitable[None]]


class Console:
    """Types to a guest; ``said`` is what it has printed since a line was typed.

    It listens all the time: a reader that stops would not notice either that the guest is alive.
    """

    def __init__(self, send: Send, heard: AsyncIterator[bytes]) -> None:
        self.said = ""
        self._send = send
        self._more = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(heard))

    async def _listen(self, heard: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in heard:
                self.said += chunk.decode(errors="replace")
                self._more.set()
        finally:
            self._more.set()

    async def says(self, pattern: str) -> re.Match[str]:
        """Return the output up to a text, once that is printed."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := re.search(pattern, self.said)):
                    await self._hear()
        except TimeoutError:
            raise AssertionError(f"no {pattern!r} on the console: {self.said!r}") from None
        return found

    async def types(self, line: str, pattern: str) -> str:
        """Type a line; answers what is printed until that is there."""
        self.said = ""
        await self._send(line.encode() + b"\n")
        await self.says(pattern)
        return self.said

    async def log_in(self, user: str, password: str) -> None:
        """Answer whatever the guest asks until a shell does."""
        answers = {LOGIN: user, PASSWORD: password}
        await self._send(b"\n")  # a prompt that was printed before we came is printed again
        async with asyncio.timeout(PATIENCE):
            while not re.search(SHELL, self.said):
                asked = next((one for one in answers if re.search(one, self.said)), None)
                if asked is not None:
                    self.said = ""
                    await self._send(answers[asked].encode() + b"\n")
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await self._hear()
                except TimeoutError:
                    await self._send(b"\n")

    async def _hear(self) -> None:
        """Until it prints more."""
        if self._listening.done():
            self._listening.result()
            raise AssertionError(f"the console has ended: {self.said!r}")
        await self._more.wait()
        self._more.clear()

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)


@asynccontextmanager
async def talking(send: Send, heard: AsyncIterator[bytes]) -> AsyncIterator[Console]:
    """A console for the length of a block."""
    opened = Console(send, heard)
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def serial(guest: Guest) -> AsyncIterator[Console]:
    """The console of a guest that has no API around it."""
    line = await guest.console()

    async def heard() -> AsyncIterator[bytes]:
        while chunk := await line.read():
            yield chunk

    async with talking(line.write, heard()) as opened:
        yield opened
    line.close()


@asynccontextmanager
async def console(user: Outside, name: str, namespace: str = "default") -> AsyncIterator[Console]:
    """The console of an instance, as ``virtctl console`` opens it."""
    target = load(user.one.directory / "kubeconfig")
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"
    url = f"wss{target.server.removeprefix('https')}{path}/{name}/console"
    async with (
        Stream.open(url, headers=target.headers, tls=target.tls()) as stream,
        talking(stream.send, aiter(stream)) as opened,
    ):
        yield opened
