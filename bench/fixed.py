"""A server that says the same to everybody: what HTTPS alone costs on this machine."""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from corral import pki

BODY = b"x" * 1500  # about as much as a VMI


async def app(scope: dict, receive: object, send: object) -> None:  # noqa: ARG001
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


@contextlib.contextmanager
def fixed() -> Iterator[str]:
    """The URL of such a server in a process of its own: uvicorn as it comes."""
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.fixed", directory], stdout=subprocess.PIPE, text=True
        )
        try:
            yield f"https://127.0.0.1:{process.stdout.readline().strip()}/"
        finally:
            process.terminate()
            process.wait()


async def main(directory: str) -> None:
    identity = pki.ensure(Path(directory) / "pki")
    server = uvicorn.Server(
        uvicorn.Config(
            app, port=0, lifespan="off", log_level="error", access_log=False, loop="asyncio",
            ssl_certfile=identity.certificate, ssl_keyfile=identity.key,
        )
    )  # fmt: skip
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
