"""A Prometheus in miniature: answers what a test has put into its mouth, and notes the queries."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

NOW = 1_767_225_600.25
"""When everything was measured: 2026-01-01T00:00:00Z, and a quarter."""


class FakePrometheus:
    """``answer`` makes the body of an answer of a query."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.status = "200 OK"
        self.encoding = "identity"
        self.answer: Callable[[str], bytes] = lambda query: vector()
        self.silent = False
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakePrometheus"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                headers = head.decode().lower()
                length = int(headers.partition("content-length:")[2].split()[0])
                form = parse_qs((await reader.readexactly(length)).decode())
                assert headers.startswith("post /api/v1/query http")
                (query,) = form["query"]
                self.queries.append(query)
                if self.silent:
                    await asyncio.Event().wait()
                body = self.answer(query)
                writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n".encode())
                writer.write(f"Content-Encoding: {self.encoding}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def vector(*series: tuple[dict[str, str], float | str]) -> bytes:
    """A good answer: the labels and the value of each series."""
    result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in series]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()
