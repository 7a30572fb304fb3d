"""``corral dashboard``: the page of the server, opened in a browser that is signed in."""

import asyncio
import hashlib
import html
import os
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click
import msgspec

import corral
from corral.api.errors import Unavailable
from corral.api.request import Request, Response
from corral.cli import options
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.client.decoding import error_from
from corral.client.https import Https
from corral.failures import describe
from corral.files import replace

PATH: Final = "/dashboard/"
_SIGN_IN: Final = "/dashboard/sign-in"
_PAGE: Final = Path(corral.__file__).parent / "server/dashboard/page"
_SCREENS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
"""Variables of which a session with a graphical browser has one.

Without them Python finds browsers in a terminal, which cannot show the page.
"""
_BY_HAND: Final = "corral dashboard --no-browser prints the address to open by hand."
_CONNECT_SECONDS: Final = 10.0


class _Code(msgspec.Struct):
    code: str


class Door(NamedTuple):
    """The address of the page, a one-use code, and the certificate's fingerprint.

    The fingerprint is empty if the certificate is of an authority that browsers may know.
    """

    address: str
    code: str
    fingerprint: str

    @property
    def url(self) -> str:
        """The address with the code in its fragment, which browsers neither send nor log."""
        return f"{self.address}#code={self.code}"


@click.command(
    cls=options.Command,
    epilog="\b\nExample:\n"
    "  corral dashboard\n"
    "  corral dashboard --no-browser\n"
    "  corral dashboard --print-url --kubeconfig lab1.kubeconfig",
)
@click.option("--browser/--no-browser", default=True, help="Open it, or print its address only.")
@click.option("--print-url", is_flag=True, help="Print the address alone, for scripts.")
@options.session
def dashboard(*, session: Session, browser: bool, print_url: bool) -> None:
    """Open the dashboard in a browser, signed in as the user of the kubeconfig.

    The address has a code that is good once, for a minute; the page gets a token for it, for twelve
    hours at most, which it forgets when it is closed or loaded again.
    """
    with session.api_errors("the dashboard cannot be opened"):
        door = asyncio.run(_door(session))
    if print_url:
        click.echo(door.url)
        return
    opened = browser and has_screen(os.environ) and _open(door)
    for line in lines(door, opened=opened):
        click.echo(line)


def has_screen(environment: Mapping[str, str]) -> bool:
    """Return whether a graphical browser can be started here."""
    return any(environment.get(each) for each in _SCREENS)


def _open(door: Door) -> bool:
    """Open the address in a browser; return whether one was found.

    Every user of this host can read the arguments of a process, and would have the code first.  So
    the browser is told a file that leads there, which nobody else can read.
    """
    path = _redirect_file(os.environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(path, redirect(door).encode())
    except OSError as error:
        raise Problem(f"{path} cannot be written: {describe(error)}", _BY_HAND) from error
    return webbrowser.open(path.as_uri())


def _redirect_file(environment: Mapping[str, str]) -> Path:
    """Return the file that leads a browser to the page; its code is void after a minute."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    directory = Path(runtime) if runtime else Path.home() / ".cache"
    return directory / "corral" / "dashboard.html"


def redirect(door: Door) -> str:
    """Return an HTML document that leads to the page at once."""
    url = html.escape(door.url)
    return (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={url}"><title>corral</title>'
        f'<a href="{url}">The dashboard of corral</a>\n'
    )


def lines(door: Door, *, opened: bool) -> list[str]:
    """Return what is printed; the code only if somebody has to open the address by hand."""
    if opened:
        found = [
            f"{door.address} opens in your browser, signed in.",
            f"If it shows no page: {_BY_HAND}",
        ]
    else:
        found = [
            "Open this address within a minute; it is good once:",
            f"  {door.url}",
        ]
        host, port = _host_and_port(door.address)
        if host in ("127.0.0.1", "localhost", "::1"):
            found += [
                "In a browser of another computer, forward the port there first:",
                f"  ssh -L {port}:{host}:{port} {os.uname().nodename}",
            ]
    if door.fingerprint:
        found += [
            "The browser asks whether it may trust the server, as the authority is corral's own.",
            "The certificate's SHA-256 fingerprint:",
            f"  {door.fingerprint}",
        ]
    return found


async def _door(session: Session) -> Door:
    """Request a code.  Raises ApiError, and Problem for a server without the page."""
    async with Https(session.config) as transport:
        page = await transport.send(Request(method="GET", path=PATH))
        if page.status in (403, 404):
            raise _missing(_body(page).decode(errors="replace"))
        if page.status != 200:
            raise error_from(_body(page), page.status)
        answer = await transport.send(Request(method="POST", path=_SIGN_IN))
        if answer.status != 201:
            raise error_from(_body(answer), answer.status)
    code = msgspec.json.decode(_body(answer), type=_Code).code
    address = session.config.server.rstrip("/") + PATH
    return Door(address, code, await _fingerprint(session))


def _body(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


def _missing(said: str) -> Problem:
    """Return the error of a server without a page: another Kubernetes, or a corral without it."""
    if said.startswith("This corral has no dashboard"):
        first, _, hint = said.strip().partition("\n")
        return Problem(first, hint)
    if not (_PAGE / "index.html").exists():
        return Problem("the server has no dashboard", "corral version shows how old it is.")
    return Problem(
        "the server has no dashboard: it is no corral, or an older one",
        f"It is served by:  kubectl proxy --www={_PAGE} --www-prefix={PATH}\n"
        f"       which has it at http://127.0.0.1:8001{PATH}",
    )


async def _fingerprint(session: Session) -> str:
    """Return the SHA-256 of the server's certificate, as browsers show it.  Raises ApiError."""
    if not session.config.authority and not session.config.insecure:
        return ""
    host, port = _host_and_port(session.config.server)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=session.config.tls())
    except OSError as error:
        raise Unavailable(f"{session.config.server} does not answer: {describe(error)}") from error
    try:
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return hashlib.sha256(certificate).digest().hex(":").upper()


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or 443
