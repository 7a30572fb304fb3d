"""Downloads a file from an untrusted web server: resumable, bounded, to allowed addresses only.

Uses http.client in a thread, with reused buffers: several times as fast as any asyncio client.
Credentials and extra headers are sent to the URL's own origin only, redirects are bounded and never
lead from https to http, and proxies of the environment are ignored.
"""

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Self
from urllib.parse import SplitResult, urljoin, urlsplit

from corral.failures import describe
from corral.node.host.destinations import FOR_TENANTS, Destinations, Refused
from corral.node.storage.population.error import PopulationError
from corral.node.storage.population.partial_content import PartialContent

_MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_STALL_SECONDS = 60.0
_ATTEMPTS = 5
"""Connections in a row that may break without progress before the download fails."""
_PAUSE_SECONDS = 0.5
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII)
_AGENT = "corral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A download request.

    headers: sent to the origin of ``url`` only, not to redirect targets.
    authorities: CA certificates (PEM), in addition to the system's.
    destinations: allowed addresses, of redirect targets too.
    """

    url: str
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    authorities: str = ""
    destinations: Destinations = FOR_TENANTS


class _ConnectionBroken(Exception):
    """The connection failed; a new one may succeed."""


class _NotResumable(_ConnectionBroken):
    """The partial content cannot be continued: start from the beginning."""


class Stop:
    """Cancels a download from another thread, at once, even if the server is silent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.called = threading.Event()

    def attach(self, connection: socket.socket | None) -> None:
        """Set the socket to shut down on cancellation."""
        with self._lock:
            self._socket = connection
        if self.called.is_set():
            self()

    def __call__(self) -> None:
        self.called.set()
        with self._lock:
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return


def fetch(
    request: Request, content: PartialContent, progress: Callable[[int, int], None], stop: Stop
) -> None:
    """Download a file, resuming an earlier attempt.

    progress: called with the received and the total bytes; 0 for an unknown total.
    Raises PopulationError, and OSError for errors of the disk.
    """
    tls = cache(partial(_tls, request.authorities))  # it reads the host's authorities: 30 ms
    if request.authorities:
        tls()  # invalid ones are reported, whatever the URL
    failures = farthest = 0
    while True:
        try:
            _fetch_once(request, content, progress, stop, tls)
        except _ConnectionBroken as error:
            received = content.received
            if isinstance(error, _NotResumable):
                content.discard()
            failures = 0 if received > farthest else failures + 1
            farthest = max(received, farthest)
            if stop.called.is_set():
                raise PopulationError("cancelled") from error
            if failures >= _ATTEMPTS:
                raise PopulationError(f"Unable to connect to http data source: {error}") from error
            stop.called.wait(_PAUSE_SECONDS * 2**failures)
        else:
            return


def _fetch_once(
    request: Request,
    content: PartialContent,
    progress: Callable[[int, int], None],
    stop: Stop,
    tls: Callable[[], ssl.SSLContext],
) -> None:
    """Download over one connection.  Raises _ConnectionBroken, PopulationError and OSError."""
    deadline = _Deadline()
    position = content.received if _can_resume(content, request.url) else 0
    with _Exchange(request, tls, stop, position, content.record.validator) as response:
        start, total = response.start, response.total
        content.check_size(total)
        content.begin(request.url, response.validator, start)
        done = start
        progress(done, total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            deadline.check(count)
            progress(done, total)

        try:
            content.write_from(response.read, advance)
        except (http.client.HTTPException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None and not _of_network(error):
                raise
            raise _ConnectionBroken(_message(error)) from error
    if stop.called.is_set():
        raise _ConnectionBroken("cancelled")
    if total and content.received != total:
        raise _ConnectionBroken(f"the connection ended after {content.received} of {total} bytes")
    content.finish()


class _Deadline:
    """Enforces a minimum rate: a socket timeout alone allows one byte a minute for ever."""

    _SECONDS, _MIN_BYTES = 120.0, 120 * 1024

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._count = 0

    def check(self, count: int) -> None:
        self._count += count
        now = time.monotonic()
        if self._count >= self._MIN_BYTES:
            self._since, self._count = now, 0
        elif now - self._since > self._SECONDS:
            raise TimeoutError("the server sends less than 1 KiB a second")


def _can_resume(content: PartialContent, url: str) -> bool:
    return content.record.origin == url and bool(content.record.validator)


class _Exchange:
    """A request and its response, after redirects.  Use as a context manager."""

    def __init__(
        self,
        request: Request,
        tls: Callable[[], ssl.SSLContext],
        stop: Stop,
        position: int,
        validator: str,
    ) -> None:
        self._request = request
        self._tls = tls
        self._stop = stop
        self._position = position
        self._validator = validator
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        url = self._request.url
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                self._response = self._send(url)
            except BaseException:
                self._close()
                raise
            if self._response.status not in _REDIRECTS:
                break
            url = _redirected(url, self._response.getheader("location") or "")
            self._close()
        else:
            raise PopulationError("Unable to connect to http data source: it redirects without end")
        try:
            self._check_response()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._stop.attach(None)
        self._opened.close()

    def _send(self, url: str) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        headers = {"User-Agent": _AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        if self._position:
            headers["Range"] = f"bytes={self._position}-"
            headers["If-Range"] = self._validator
        if _origin(parts) == _origin(urlsplit(self._request.url)):
            headers |= dict(self._request.headers)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = self._opened.enter_context(closing(_connection(parts, self._tls)))
        try:
            connection.sock = self._connect(parts, connection.port)
            self._stop.attach(connection.sock)
            connection.request("GET", path, headers=headers)
            return self._opened.enter_context(connection.getresponse())
        except Refused as error:
            raise PopulationError(f"Unable to connect to http data source: {error}") from error
        except ssl.SSLCertVerificationError as error:
            raise PopulationError(
                f"Unable to connect to http data source: {parts.hostname}: "
                f"{error.verify_message}: name the authority in certConfigMap"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _ConnectionBroken(f"{parts.hostname}: {_message(error)}") from error
        except (ValueError, UnicodeError) as error:
            raise PopulationError(f"{self._request.url} cannot be requested: {error}") from error

    def _connect(self, parts: SplitResult, port: int) -> socket.socket:
        """Open a connection, with TLS for https.  Raises Refused, OSError and ValueError."""
        host = parts.hostname or ""
        plain = self._request.destinations.connect(host, port, seconds=_STALL_SECONDS)
        if parts.scheme != "https":
            return plain
        try:
            return self._tls().wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def _check_response(self) -> None:
        """Check status and encoding; set start, total and validator of the response."""
        status, response = self._response.status, self._response
        whole = self._continued() if status == 206 else 0
        if status == 416 or (status == 206 and not whole):
            raise _NotResumable("the server has nothing to follow what has arrived")
        if status == 429 or status >= 500:
            raise _ConnectionBroken(f"the server answered {status}")
        if status not in (200, 206):
            raise PopulationError(
                "Unable to connect to http data source: expected status code 200, got "
                f"{status}. Status: {status} {response.reason}"
            )
        if (response.getheader("content-encoding") or "identity").lower() != "identity":
            raise PopulationError("the server compresses the file though identity was requested")
        self.start = self._position if status == 206 else 0
        self.total = whole or response.length or 0
        self.validator = _validator(response)

    def _continued(self) -> int:
        """Return the total length if the response continues the content; else 0."""
        found = _RANGE.fullmatch(self._response.getheader("content-range") or "")
        if found is None or int(found[1]) != self._position:
            return 0
        whole = int(found[2]) + 1
        rest = whole - self._position
        fits = found[3] in ("*", str(whole)) and self._response.length in (None, rest)
        # A 206 repeats its validator (RFC 9110, 15.3.7): not every server honours If-Range.
        is_another = _validator(self._response) not in ("", self._validator)
        return whole if fits and not is_another else 0

    def read(self, buffer: memoryview) -> int:
        """Read into a buffer; return the count, 0 at the end."""
        return self._response.readinto(buffer)


def _connection(
    parts: SplitResult, tls: Callable[[], ssl.SSLContext]
) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    try:
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, parts.port, timeout=_STALL_SECONDS, context=tls()
            )
        return http.client.HTTPConnection(host, parts.port, timeout=_STALL_SECONDS)
    except (ValueError, http.client.InvalidURL) as error:
        raise PopulationError(f"{parts.geturl()} is no address: {error}") from error


def _redirected(url: str, location: str) -> str:
    target = ""
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PopulationError("Unable to connect to http data source: it redirects to no address")
    if parts.scheme == "http" and urlsplit(url).scheme == "https":
        raise PopulationError(
            "Unable to connect to http data source: it redirects from https to http"
        )
    return target


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def _validator(response: http.client.HTTPResponse) -> str:
    """Return a strong validator of the file's version (RFC 9110, 13.1.5); may be empty."""
    tag = response.getheader("etag") or ""
    if tag and not tag.startswith("W/"):
        return tag
    return response.getheader("last-modified") or ""


def _tls(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except ssl.SSLError as error:
            raise PopulationError("certConfigMap has no valid PEM certificates") from error
    return context


def authorities_of(config: Mapping[str, bytes]) -> str:
    """Return the certificates (PEM) of a ConfigMap."""
    return "\n".join(value.decode(errors="replace") for value in config.values())


def _of_network(error: OSError) -> bool:
    """Report whether an error is of the connection rather than of the disk."""
    return isinstance(error, ConnectionError | TimeoutError | ssl.SSLError | socket.gaierror)


def _message(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended too early"
    return describe(error)
