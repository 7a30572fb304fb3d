"""HTTP probes, as a kubelet sends them, with the errors of Go's client.

The server is not trusted: header sizes are limited, bodies are not read, and only redirects on the
same host are followed.
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

MAX_REDIRECTS = 10
MAX_INFORMATIONAL = 5
"""Informational responses (1xx) that are skipped, as many as by Go's client."""
MAX_HEADER_BYTES = 64 * 1024
MAX_QUOTE_CHARACTERS = 500
"""Characters of a response, or of a URL, that an error contains."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADER_END = re.compile(rb"\n\r?\n")
_SAFE_CHARACTERS = "/%?&=:@+,;!$'()*~[]"  # of a URL's path and query
_ANY_CERTIFICATE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Probes do not verify certificates, as a kubelet's do not."""
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


class HttpError(Exception):
    """No response, or an invalid one."""


def url_of(action: HTTPGetAction, address: str, port: int) -> str:
    scheme = "https" if (action.scheme or "").upper() == "HTTPS" else "http"
    host = f"[{address}]" if ":" in address else address
    path = action.path or "/"
    return f"{scheme}://{host}:{port}{path if path.startswith('/') else f'/{path}'}"


async def get(ports: Ports, url: str, action: HTTPGetAction) -> int:
    """Return the status of the last response.  Raises HttpError.

    It is a redirect (3xx) if that leads to another host, or has no location.
    """
    try:
        first_host = urlsplit(url).hostname
    except ValueError as error:  # the probe names a host that cannot be one
        raise HttpError(f"{_get(url)}: {error}") from error
    for _ in range(MAX_REDIRECTS):
        status, location = await _request_once(ports, url, action)
        if status not in _REDIRECTS or not location:
            return status
        try:
            target_url = urljoin(url, location)
            is_other_host = urlsplit(target_url).hostname != first_host
        except ValueError as error:
            raise HttpError(f"{_get(url)}: failed to parse Location header") from error
        if is_other_host:
            return status
        url = target_url
    raise HttpError(f"{_get(url)}: stopped after {MAX_REDIRECTS} redirects")


async def _request_once(ports: Ports, url: str, action: HTTPGetAction) -> tuple[int, str]:
    """Send one request; return the status and the location of the response."""
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
            return await _read_response(line)
        finally:
            line.close()
    except (GuestError, HttpError, OSError, ValueError) as error:
        raise HttpError(f"{_get(url)}: {describe(error)}") from error


async def _read_response(line: Line) -> tuple[int, str]:
    """Return the status and the location of a response."""
    received = bytearray()
    for _ in range(MAX_INFORMATIONAL + 1):
        status, location = _parse_header(await _read_header(line, received))
        if status >= HTTPStatus.OK or status == HTTPStatus.SWITCHING_PROTOCOLS:
            return status, location
    raise HttpError("net/http: too many 1xx informational responses")


async def _read_header(line: Line, received: bytearray) -> bytes:
    """Return the next header, and remove it from the received bytes."""
    searched = 0
    while (header_end := _HEADER_END.search(received, searched)) is None:
        searched = max(0, len(received) - 2)
        if len(received) > MAX_HEADER_BYTES:
            raise HttpError(f"net/http: server response headers exceeded {MAX_HEADER_BYTES} bytes")
        if not (chunk := await line.read()):
            break
        received += chunk
    end = len(received) if header_end is None else header_end.end()
    header = bytes(received[:end])
    del received[:end]
    return header


def _request(action: HTTPGetAction, parts: SplitResult) -> bytes:
    """Return the request; headers of the probe replace those of a kubelet."""
    headers = {
        "Host": parts.netloc,
        "User-Agent": "kube-probe/1.37",
        "Accept": "*/*",
        "Connection": "close",
    }
    probe_headers = {header.name: header.value for header in action.httpHeaders or ()}
    names = {name.lower() for name in probe_headers}
    default_headers = {name: value for name, value in headers.items() if name.lower() not in names}
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [f"GET {quote(target or '/', safe=_SAFE_CHARACTERS)} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in {**default_headers, **probe_headers}.items()]
    printable = (
        "".join(character for character in line if character.isprintable()) for line in lines
    )
    return "".join(f"{line}\r\n" for line in (*printable, "")).encode("utf-8", "replace")


def _parse_header(header: bytes) -> tuple[int, str]:
    """Return the status and the location in a header.  Raises HttpError."""
    if not header:
        raise HttpError("EOF")
    first_host, *rest = header.decode(errors="replace").split("\n")
    version, _, status_text = first_host.partition(" ")
    code = status_text[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
        broken = "net/http: HTTP/1.x transport connection broken"
        raise HttpError(f'{broken}: malformed HTTP response "{_printable(first_host)}"')
    for line in rest:
        name, _, value = line.partition(":")
        if name.lower() == "location":
            return int(code), value.strip()
    return int(code), ""


def _get(url: str) -> str:
    """Return the failed request in Go's words."""
    return f'Get "{_printable(url)}"'


def _printable(text: str) -> str:
    return "".join(
        character for character in text[:MAX_QUOTE_CHARACTERS] if character.isprintable()
    )


def succeeds(status: int) -> bool:
    """Report whether a kubelet accepts a status as success."""
    return HTTPStatus.OK <= status < HTTPStatus.BAD_REQUEST
