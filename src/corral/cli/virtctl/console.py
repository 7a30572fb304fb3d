"""``corral console``: the serial console of a VMI."""

import asyncio
import sys
import time
from contextlib import suppress
from typing import Any

import click

from corral.aio import Background
from corral.api.errors import BadRequest
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl import stdio
from corral.cli.virtctl.signals import handle_signals
from corral.cli.virtctl.target import Target, vmi_target
from corral.client.stream import Stream, StreamLost

ESCAPE = b"\x1d"  # Ctrl+], which is Ctrl+5 on some keyboards, as virtctl has it
_NEW_LINE_SECONDS = 0.5
LOST = """\
The console was disconnected.  Either another client opened the console of this machine,
the machine stopped, or the connection broke."""


class _Timeout(click.ParamType[float]):
    """Seconds, from a number of minutes (virtctl) or a duration with a unit: ``90s``, ``3m``."""

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
    cls=options.Command,
    epilog="\b\nExample:\n  corral console testvdk4x\n  corral console testvdk4x --expect login:",
)
@click.argument("name")
@click.option(
    "--timeout", type=_Timeout(), default="5", show_default=True,
    help="How long to wait for the machine to run: minutes, or 90s, 3m.",
)  # fmt: skip
@click.option(
    "--expect",
    metavar="TEXT",
    help="Do not talk to the machine: print its console until TEXT appears there.",
)
@options.session
def console(*, session: Session, name: str, timeout: float, expect: str | None) -> None:
    """Connect to the serial console of a VirtualMachineInstance.

    NAME may be written as vmi/NAME, or vmi/NAME/NAMESPACE.  Ctrl+] leaves the console, and so does
    the end of the standard input: --expect needs none.
    """
    target = vmi_target(name, session.namespace)
    deadline = time.monotonic() + timeout
    with session.api_errors():
        asyncio.run(_console(session, target, deadline, expect))


async def _console(session: Session, target: Target, deadline: float, expect: str | None) -> None:
    while True:
        try:
            async with session.stream(target.path("console")) as stream:
                if expect is not None:
                    return await _expect(stream, expect, deadline)
                return await _attach(stream, target.name)
        except BadRequest as refusal:
            # The VMI does not run yet: retry each second, as virtctl does.
            if time.monotonic() > deadline:
                raise Problem(f"{target.name}: {refusal.message}") from refusal
            await asyncio.sleep(1)


async def _expect(stream: Stream, text: str, deadline: float) -> None:
    seen = b""
    expected = text.encode()
    # An earlier prompt is printed again after an empty line.
    await stream.send(b"\n")
    try:
        async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
            async for data in stream:
                await stdio.write(sys.stdout.fileno(), data)
                seen = seen[-len(expected) :] + data
                if expected in seen:
                    click.echo()
                    return
    except TimeoutError:
        raise Problem(f'the console did not show "{text}" in time') from None
    raise Problem(f'the console ended before it showed "{text}"')


async def _attach(stream: Stream, name: str) -> None:
    click.echo(
        f"Successfully connected to {name} console. Press Ctrl+] or Ctrl+5 to exit console.\n"
        "(Press Enter for a prompt where the guest shows none.)",
        err=True,
    )
    lost = False
    with handle_signals() as signal, stdio.raw(sys.stdin.fileno()):
        try:
            async with Background() as background:
                ends = {
                    background.start(_forward_input(stream), name="keyboard"),
                    background.start(_print_output(stream), name="screen"),
                    background.start(signal.wait(), name="signal"),
                }
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except* StreamLost:
            lost = True
    with suppress(TimeoutError):  # the terminal may be stopped (Ctrl+S)
        async with asyncio.timeout(_NEW_LINE_SECONDS):
            await stdio.write(sys.stderr.fileno(), b"\n")
    if lost:
        raise Problem(f"{LOST}\n{stream.close_reason}".rstrip())
    if stream.close_reason:
        raise Problem(stream.close_reason)
    if signal.number:
        raise click.exceptions.Exit(128 + signal.number)


async def _print_output(stream: Stream) -> None:
    async for data in stream:
        await stdio.write(sys.stdout.fileno(), data)


async def _forward_input(stream: Stream) -> None:
    """Send input to the stream, until the escape key or the end of the input."""
    async for data in stdio.read(sys.stdin.fileno()):
        typed, escape, _ = data.partition(ESCAPE)
        if typed:
            await stream.send(typed)
        if escape:
            return
    await stream.delivered()
