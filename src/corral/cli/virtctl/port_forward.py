"""``corral port-forward``: forwards local ports to ports of a VMI."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import click

from corral.aio import Background
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl import stdio
from corral.cli.virtctl.forwarding import Forwarder, Port, ports_of, relay
from corral.cli.virtctl.signals import handle_signals
from corral.cli.virtctl.target import Target, parse_target


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral port-forward vmi/testvdk4x 8080:80\n"
    "  corral port-forward vmi/testvdk4x/default 2222:22 udp/5353",
)
@click.argument("machine", metavar="TYPE/NAME[/NAMESPACE]")
@click.argument("ports", metavar="[PROTOCOL/]LOCAL[:REMOTE]...", nargs=-1, required=True)
@click.option(
    "--stdio", "use_stdio", is_flag=True, help="Forward one port to standard input and output."
)
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Where the local ports are opened."
)
@options.session
def port_forward(
    *, session: Session, machine: str, ports: Sequence[str], use_stdio: bool, address: str
) -> None:
    """Forward local ports to ports of a machine.

    PROTOCOL is tcp, unless it is udp; REMOTE is LOCAL, unless given.  LOCAL 0 takes a free port.
    Ctrl+C ends it.
    """
    target = parse_target(machine, session.namespace)
    forwarded = ports_of(ports)
    if use_stdio and len(forwarded) != 1:
        raise Problem("only one port supported when forwarding to stdout")
    with session.api_errors(f"can't access {target}"):
        if use_stdio:
            asyncio.run(_forward_stdio(session, target, forwarded[0]))
        else:
            asyncio.run(_listen(session, target, forwarded, address))


async def _forward_stdio(session: Session, target: Target, port: Port) -> None:
    """Forward one connection over standard input and output."""
    async with session.stream(target.path(port.subresource)) as stream:
        source, sink = sys.stdin.fileno(), sys.stdout.fileno()
        await relay(stream, stdio.read(source), lambda data: stdio.write(sink, data))


async def _listen(session: Session, target: Target, ports: Sequence[Port], address: str) -> None:
    with handle_signals() as signal:
        async with Background() as background:
            with ExitStack() as opened:
                forwarder = Forwarder(session, target, background, opened)
                await _open(forwarder, address, ports)
                await signal.wait()


async def _open(forwarder: Forwarder, address: str, ports: Sequence[Port]) -> None:
    for port in ports:
        local = await forwarder.listen(address, port)
        host = f"[{address}]" if ":" in address else address
        click.echo(f"forwarding {port.protocol} {host}:{local} to {port.remote}")
