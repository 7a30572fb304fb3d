"""The HTTP request of a probe, as a kubelet makes it, in the words of Go's client.

Who answers is not trusted: heads are bounded, bodies are not read, and a redirect is followed on
the host that was asked only.
"""

import re
import ssl
from http import HTTPStatus
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from lightkube.models.core_v1 import HTTPGetAction

from corral.failures import describe
from corral.node.hypervisor import GuestError
from corral.node.network.guest_ports import Ports
from corral.node.streams import Line

MOST_REDIRECTS = 10
MOST_AHEAD = 5
"""Answers that only say that the answer will come (1xx), as many as Go's client passes over."""
LONGEST_HEAD = 64 * 1024
LONGEST_QUOTE = 500
"""Characters of an answer, or of where it leads, that an error repeats."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADS_END = re.compile(rb"\n\r?\n")
_KEPT = "/%?&=:@+,;!$'()*~[]"  # of a URL's path and query
_ANY_CERTIFICATE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Probes trust whoever answers, as a kubelet's do."""
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


class HttpError(Exception):
    """There is no answer, or none that is HTTP."""


def url_of(action: HTTPGetAction, address: str, port: int) -> str:
    scheme = "https" if (action.scheme or "").upper() == "HTTPS" else "http"
    host = f"[{address}]" if ":" in address else address
    path = action.path or "/"
    return f"{scheme}://{host}:{port}{path if path.startswith('/') else f'/{path}'}"


async def get(ports: Ports, url: str, action: HTTPGetAction) -> int:
    """The status of the last answer.  Raises HttpError.

    That is a redirect (3xx) where it leads to another host, or nowhere.
    """
    try:
        first = urlsplit(url).hostname
    except ValueError as error:  # the probe names a host that cannot be one
        raise HttpError(f"{_get(url)}: {error}") from error
    for _ in range(MOST_REDIRECTS):
        status, location = await _ask(ports, url, action)
        if status not in _REDIRECTS or not location:
            return status
        try:
            onward = urljoin(url, location)
            leads_away = urlsplit(onward).hostname != first
        except ValueError as error:
            raise HttpError(f"{_get(url)}: failed to parse Location header") from error
        if leads_away:
            return status
        url = onward
    raise HttpError(f"{_get(url)}: stopped after {MOST_REDIRECTS} redirects")


async def _ask(ports: Ports, url: str, action: HTTPGetAction) -> tuple[int, str]:
    """One request: the status of its answer, and where that leads."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        line: Line = (
            await ports.tls(host, port, _ANY_CERTIFICATE)
            if parts.scheme == "https"
            else await ports.tcp(host, port)
        )
        try:
            await line.write(_request(action, parts))
            return await _answer(line)
        finally:
            line.close()
    except (GuestError, HttpError, OSError, ValueError) as error:
        raise HttpError(f"{_get(url)}: {describe(error)}") from error


async def _answer(line: Line) -> tuple[int, str]:
    """The status of an answer, and where it leads."""
    received = bytearray()
    for _ in range(MOST_AHEAD + 1):
        status, location = _understood(await _head(line, received))
        if status >= HTTPStatus.OK or status == HTTPStatus.SWITCHING_PROTOCOLS:
            return status, location
    raise HttpError("net/http: too many 1xx informational responses")


async def _head(line: Line, received: bytearray) -> bytes:
    """The next head, which is taken out of what was received."""
    looked = 0
    while (blank := _HEADS_END.search(received, looked)) is None:
        looked = max(0, len(received) - 2)
        if len(received) > LONGEST_HEAD:
            raise HttpError(f"net/http: server response headers exceeded {LONGEST_HEAD} bytes")
        if not (piece := await line.read()):
            break
        received += piece
    end = len(received) if blank is None else blank.end()
    head = bytes(received[:end])
    del received[:end]
    return head


def _request(action: HTTPGetAction, parts: SplitResult) -> bytes:
    """Headers that the probe names replace those of a kubelet."""
    headers = {
        "Host": parts.netloc,
        "User-Agent": "kube-probe/1.37",
        "Accept": "*/*",
        "Connection": "close",
    }
    asked = {header.name: header.value for header in action.httpHeaders or ()}
    names = {name.lower() for name in asked}
    kept = {name: value for name, value in headers.items() if name.lower() not in names}
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {quote(target or '/', safe=_KEPT)} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in {**kept, **asked}.items()]
    plain = ("".join(one for one in line if one.isprintable()) for line in lines)
    return "".join(f"{line}\r\n" for line in (*plain, "")).encode("utf-8", "replace")


def _understood(head: bytes) -> tuple[int, str]:
    """The status in an answer's head, and its Location.  Raises HttpError."""
    if not head:
        raise HttpError("EOF")
    first, *rest = head.decode(errors="replace").split("\n")
    version, _, told = first.partition(" ")
    code = told[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        broken = "net/http: HTTP/1.x transport connection broken"
        raise HttpError(f'{broken}: malformed HTTP response "{_quoted(first)}"')
    for line in rest:
        name, _, value = line.partition(":")
        if name.lower() == "location":
            return int(code), value.strip()
    return int(code), ""


def _get(url: str) -> str:
    """What was tried, in Go's words."""
    return f'Get "{_quoted(url)}"'


def _quoted(text: str) -> str:
    return "".join(one for one in text[:LONGEST_QUOTE] if one.isprintable())


def succeeds(status: int) -> bool:
    """Whether a kubelet takes a status for a yes."""
    return HTTPStatus.OK <= status < HTTPStatus.BAD_REQUEST
