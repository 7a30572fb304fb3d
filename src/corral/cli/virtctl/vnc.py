"""``corral vnc``: a VMI's screen in a VNC viewer, or as a screenshot."""

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from corral.aio import Background
from corral.cli import options
from corral.cli.errors import Problem, reason
from corral.cli.session import Session
from corral.cli.virtctl.signals import handle_signals
from corral.cli.virtctl.target import Target, vmi_target
from corral.client.stream import Stream

VIEWERS: Final = {
    "remote-viewer": ("remote-viewer", "vnc://{}:{}"),
    "tiger": ("vncviewer", "{}:{}"),
}
"""Kind of viewer → program and format of its address argument; the first found is started."""
VIEWER_SECONDS: Final = 60.0
_CHUNK: Final = 65536


class _Vnc(options.Command):
    """``vnc NAME`` with the subcommand ``vnc screenshot NAME``, which cobra permits."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == ["screenshot"]:
            return screenshot.make_context(f"{info_name} screenshot", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """The options of a local VNC proxy; port 0 means a free one."""

    address: str
    port: int
    proxy_only: bool
    viewer: Sequence[str] = ()


@click.command(
    cls=_Vnc,
    epilog="\b\nExample:\n"
    "  corral vnc testvdk4x\n"
    "  corral vnc testvdk4x --proxy-only --port 5901\n"
    "  corral vnc screenshot testvdk4x --file screen.png",
)
@click.argument("name")
@click.option(
    "--proxy-only", is_flag=True, help="Start no viewer: print the local port for one of your own."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=0,
    help="The local port.  [default: a free one]",
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Where it is opened.")
@click.option(
    "--preserve-session", is_flag=True, help="Refuse, instead of displacing another client."
)
@click.option(
    "--vnc-type",
    type=click.Choice(list(VIEWERS)),
    help="Kind of viewer.  [default: the first found]",
)
@click.option("--vnc-path", default="", help="The viewer's program.  [default: found in $PATH]")
@options.session
def vnc(
    *,
    session: Session,
    name: str,
    proxy_only: bool,
    port: int,
    address: str,
    preserve_session: bool,
    vnc_type: str | None,
    vnc_path: str,
) -> None:
    """Open a machine's screen in a VNC viewer.

    The viewer is remote-viewer or vncviewer (TigerVNC).  corral vnc screenshot NAME takes a
    picture instead.
    """
    viewer = () if proxy_only else viewer_of(vnc_type, vnc_path)
    proxy = ProxyOptions(address=address, port=port, proxy_only=proxy_only, viewer=viewer)
    target = vmi_target(name, session.namespace)
    path = target.path("vnc") + "?preserveSession=true" * preserve_session
    with session.api_errors(f"Can't access VMI {target.name}"):
        asyncio.run(_show(session, path, proxy))


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral vnc screenshot testvdk4x --file screen.png\n"
    "  corral vnc screenshot testvdk4x --file - | display",
)
@click.argument("name")
@click.option("-f", "--file", required=True, help="Where the PNG goes; - is standard output.")
@click.option("-m", "--move-cursor", is_flag=True, help="Wake a screen that saves itself.")
@options.session
def screenshot(*, session: Session, name: str, file: str, move_cursor: bool) -> None:
    """Take a picture of a machine's screen."""
    target = vmi_target(name, session.namespace)
    with session.api_errors(f"Can't access VMI {target.name}"):
        picture = asyncio.run(_picture(session, target, move_cursor=move_cursor))
    if file == "-":
        sys.stdout.buffer.write(picture)
    else:
        Path(file).write_bytes(picture)


async def _picture(session: Session, target: Target, *, move_cursor: bool) -> bytes:
    query = "moveCursor=true" if move_cursor else ""
    async with session.client() as client:
        return await client.request("GET", target.path("vnc/screenshot"), query=query)


def viewer_of(kind: str | None, path: str) -> Sequence[str]:
    """Return the viewer's program and the format of its address argument.  Raises Problem."""
    if path:
        kind = kind or ("remote-viewer" if "remote-viewer" in Path(path).name else "tiger")
        return path, VIEWERS[kind][1]
    candidates = [VIEWERS[kind]] if kind else list(VIEWERS.values())
    for program, form in candidates:
        if found := shutil.which(program):
            return found, form
    names = " or ".join(program for program, _ in candidates)
    raise Problem(
        f"could not find {names} binary in $PATH",
        "Install one, or use --proxy-only with a viewer of your own.",
    )


async def _show(session: Session, path: str, proxy: ProxyOptions) -> None:
    # Connect to the VMI first: an error there is printed here, and would not be by a viewer.
    async with AsyncExitStack() as opened:
        stream = await opened.enter_async_context(session.stream(path))
        client: asyncio.Future[_Client] = asyncio.get_running_loop().create_future()
        port = await _listen(opened, client, proxy)
        with handle_signals() as signal:
            async with Background() as background:
                ends = {
                    background.start(_to_machine(stream, client), name="to the machine"),
                    background.start(_to_viewer(stream, client), name="to the viewer"),
                    background.start(signal.wait(), name="signal"),
                }
                if proxy.proxy_only:
                    click.echo(json.dumps({"port": port}, separators=(",", ":")))
                else:
                    ends.add(background.start(_run_viewer(proxy, port), name="viewer"))
                    ends.add(background.start(_wait_for_viewer(client), name="timeout"))
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if stream.close_reason:
        raise Problem(stream.close_reason)


_Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _listen(
    opened: AsyncExitStack, client: asyncio.Future[_Client], proxy: ProxyOptions
) -> int:
    """Listen for one viewer and return the local port."""

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if client.done():
            writer.close()
            return
        opened.callback(writer.close)
        client.set_result((reader, writer))

    try:
        server = await asyncio.start_server(connected, proxy.address, proxy.port)
    except OSError as error:
        raise Problem(
            f"cannot listen on {proxy.address}:{proxy.port}: {reason(error)}",
            "Without --port a free one is taken.",
        ) from error
    opened.callback(server.close)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _to_machine(stream: Stream, client: asyncio.Future[_Client]) -> None:
    reader, _ = await client
    with suppress(ConnectionError):  # the viewer may close without a shutdown
        while data := await reader.read(_CHUNK):
            await stream.send(data)
    await stream.delivered()


async def _to_viewer(stream: Stream, client: asyncio.Future[_Client]) -> None:
    async for data in stream:
        _, writer = await client
        writer.write(data)
        with suppress(ConnectionError):
            await writer.drain()


async def _wait_for_viewer(client: asyncio.Future[_Client]) -> None:
    """Raises Problem if no viewer connects in time; otherwise never returns."""
    try:
        async with asyncio.timeout(VIEWER_SECONDS):
            await asyncio.shield(client)
    except TimeoutError:
        raise Problem(f"the viewer did not connect within {VIEWER_SECONDS:.0f} s") from None
    await asyncio.Event().wait()


async def _run_viewer(proxy: ProxyOptions, port: int) -> None:
    program, form = proxy.viewer
    host = "127.0.0.1" if proxy.address in ("0.0.0.0", "") else proxy.address  # noqa: S104
    try:
        viewer = await asyncio.create_subprocess_exec(
            program, form.format(host, port), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
        )
    except OSError as error:
        raise Problem(f"{program} cannot be started: {reason(error)}") from error
    try:
        _, stderr = await viewer.communicate()
    except asyncio.CancelledError:
        if viewer.returncode is None:
            viewer.terminate()
            await viewer.communicate()
        raise
    if viewer.returncode:
        last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Problem(f"{program} ended with exit code {viewer.returncode}", last)
