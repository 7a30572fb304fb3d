"""``corral console``: a machine's serial console, in virtctl's grammar."""

import asyncio
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from corral.aio import Background
from corral.api.errors import ApiError, BadRequest, NotFound
from corral.cli import options
from corral.cli.cluster import cluster
from corral.cli.problem import Problem
from corral.client.kubeconfig import Kubeconfig
from corral.client.stream import Stream, StreamLost
from corral.config import Layout

ESCAPE = b"\x1d"  # Ctrl+], which is Ctrl+5 on some keyboards, as virtctl has it
LOST = """\
The console was disconnected.  Either another client opened the console of this machine,
the machine stopped, or the connection broke."""


class _Patience(click.ParamType[float]):
    """A time in seconds, written in minutes as virtctl has it, or with a unit: ``90s``, ``3m``."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
        try:
            return float(text[:-1]) * unit if unit else float(text) * 60
        except ValueError:
            self.fail(f"{text!r} is no time: write minutes, or 90s, 3m", param, ctx)


@click.command(
    epilog="\b\nExample:\n  corral console testvdk4x\n  corral console testvdk4x --expect login:"
)
@click.argument("name")
@options.namespace
@options.kubeconfig
@options.data_directory
@click.option(
    "--timeout", type=_Patience(), default="5", show_default=True,
    help="How long to wait for the machine to run: minutes, or 90s, 3m.",
)  # fmt: skip
@click.option(
    "--expect",
    metavar="TEXT",
    help="Do not talk to the machine: print its console until TEXT appears there.",
)
def console(
    *,
    name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    layout: Layout,
    timeout: float,
    expect: str | None,
) -> None:
    """Connect to the serial console of a VirtualMachineInstance.

    NAME may be written as vmi/NAME, or vmi/NAME/NAMESPACE.  Ctrl+] leaves the console.
    """
    target = cluster(layout, kubeconfig)
    name, space = _target(name, namespace or target.namespace)
    deadline = time.monotonic() + timeout
    try:
        asyncio.run(_console(target, space, name, deadline, expect))
    except NotFound as error:
        raise Problem(error.message, f"kubectl get vmi -n {space} lists the machines.") from error
    except ApiError as error:
        raise Problem(error.message) from error
    except StreamLost as error:
        raise Problem(LOST) from error
    except OSError as error:
        raise Problem(
            f"the API server at {target.server} does not answer: {error}",
            "Start it: corral up --detach",
        ) from error


def _target(name: str, namespace: str) -> tuple[str, str]:
    """Take ``NAME``, ``vmi/NAME`` or ``vmi/NAME/NAMESPACE`` apart."""
    match name.split("/"):
        case [only]:
            return only, namespace
        case ["vmi" | "vm", only]:
            return only, namespace
        case ["vmi" | "vm", only, other]:
            return only, other
    raise Problem(f"{name} does not name a machine", "Write NAME, vmi/NAME or vmi/NAME/NAMESPACE.")


async def _console(
    target: Kubeconfig, namespace: str, name: str, deadline: float, expect: str | None
) -> None:
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"
    url = f"wss{target.server.removeprefix('https')}{path}/{name}/console"
    while True:
        try:
            async with Stream.open(url, headers=target.headers, tls=target.tls()) as stream:
                if expect is not None:
                    return await _expect(stream, expect, deadline)
                return await _talk(stream, name)
        except BadRequest as refusal:
            # The machine is not running yet: virtctl asks again each second, and so do we.
            if time.monotonic() > deadline:
                raise Problem(f"{name}: {refusal.message}") from refusal
            await asyncio.sleep(1)


async def _expect(stream: Stream, text: str, deadline: float) -> None:
    seen = b""
    wanted = text.encode()
    # A prompt that was printed before we came is printed again on an empty line.
    await stream.send(b"\n")
    try:
        async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
            async for data in stream:
                sys.stdout.buffer.write(data)
                sys.stdout.flush()
                seen = seen[-len(wanted) :] + data
                if wanted in seen:
                    click.echo()
                    return
    except TimeoutError:
        raise Problem(f'the console did not show "{text}" in time') from None
    raise Problem(f'the console ended before it showed "{text}"')


async def _talk(stream: Stream, name: str) -> None:
    click.echo(
        f"Successfully connected to {name} console. Press Ctrl+] or Ctrl+5 to exit console.\n"
        "(Press Enter for a prompt where the guest shows none.)",
        err=True,
    )
    with _raw(sys.stdin.fileno()):
        async with Background() as background:
            typed = background.start(_type(stream), name="keyboard")
            shown = background.start(_show(stream), name="screen")
            await asyncio.wait({typed, shown}, return_when=asyncio.FIRST_COMPLETED)
    click.echo(err=True)
    if stream.close_reason:
        raise Problem(stream.close_reason)


async def _show(stream: Stream) -> None:
    async for data in stream:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


async def _type(stream: Stream) -> None:
    """Pass on what is typed, until the escape key or the end of the input."""
    async for data in _keys(sys.stdin.fileno()):
        typed, escape, _ = data.partition(ESCAPE)
        if typed:
            await stream.send(typed)
        if escape:
            return


async def _keys(descriptor: int) -> AsyncIterator[bytes]:
    """What is typed, as it comes.

    It is read where it is known to be there: a read that waits would stop the screen as well.
    """
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        data = os.read(descriptor, 4096)
        keys.put_nowait(data)
        if not data:
            loop.remove_reader(descriptor)

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:
        # Standard input is a file or /dev/null, which cannot be waited for, nor need it be.
        yield await asyncio.to_thread(sys.stdin.buffer.read)
        await asyncio.Event().wait()
    try:
        while data := await keys.get():
            yield data
    finally:
        loop.remove_reader(descriptor)


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Give every key to the machine, Ctrl+C too, while the block runs."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
