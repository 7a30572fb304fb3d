"""Fetches a file from a web server that is not trusted: resumed, bounded, never led astray.

By the standard library's client in a thread, into buffers that are used again: that is several
times as fast as any client for asyncio.  Credentials and extra headers are sent to the server that
was named only, redirects are bounded and never lead from https to http, and proxies of the
environment are not asked.
"""

import base64
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import SplitResult, urljoin, urlsplit

from corral.failures import describe
from corral.node.host.destinations import FOR_TENANTS, Destinations, Refused
from corral.node.storage.population.error import NotFilled
from corral.node.storage.population.partial_content import Part

_MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_STALL_SECONDS = 60.0
_ATTEMPTS = 5
"""How often a connection may break without a byte before the whole attempt counts as failed."""
_PAUSE_SECONDS = 0.5
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII)
_AGENT = "corral"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to fetch, and how.

    headers: to be sent to the server of ``url`` and nowhere else.
    authorities: certificates (PEM) of authorities that may sign servers, besides the machine's.
    destinations: where a server, and whom it redirects to, may be.
    """

    url: str
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    authorities: str = ""
    destinations: Destinations = FOR_TENANTS


class _Broken(Exception):
    """The connection failed in a way that may pass."""


class _Unfit(_Broken):
    """What has arrived is of no use: from the start again."""


class Stop:
    """Ends a fetch from another thread: at once, also where a server is silent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.called = threading.Event()

    def hold(self, connection: socket.socket | None) -> None:
        """The socket that is to be shut."""
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


def basic(user: str, password: str) -> tuple[str, str]:
    """The header of a name and password (RFC 7617)."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return ("Authorization", f"Basic {pair}")


def fetch(request: Request, part: Part, told: Callable[[int, int], None], stop: Stop) -> None:
    """Fetch all of a file into a part, from where an earlier attempt has left it.

    ``told`` hears how much there is and how much there will be, 0 where that is unknown.
    Raises NotFilled, and OSError for what the disk refuses.
    """
    tls = _tls(request.authorities)
    failures = farthest = 0
    while True:
        try:
            _fetch_on(request, part, told, stop, tls)
        except _Broken as error:
            arrived = part.received
            if isinstance(error, _Unfit):
                part.discard()
            failures = 0 if arrived > farthest else failures + 1
            farthest = max(arrived, farthest)
            if stop.called.is_set():
                raise NotFilled("broken off") from error
            if failures >= _ATTEMPTS:
                raise NotFilled(f"Unable to connect to http data source: {error}") from error
            stop.called.wait(_PAUSE_SECONDS * 2**failures)
        else:
            return


def _fetch_on(
    request: Request, part: Part, told: Callable[[int, int], None], stop: Stop, tls: ssl.SSLContext
) -> None:
    """One connection's worth."""
    deadline = _Deadline()
    position = part.received if _can_resume(part, request.url) else 0
    with _Exchange(request, tls, stop, position, part.record.validator) as answer:
        start, total = answer.start, answer.total
        part.check(total)
        part.begin(request.url, answer.validator, start)
        done = start
        told(done, total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            deadline.check(count)
            told(done, total)

        try:
            part.take(answer.read, advance)
        except (http.client.HTTPException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None and not _of_network(error):
                raise
            raise _Broken(_words(error)) from error
    if stop.called.is_set():
        raise _Broken("broken off")
    if total and part.received != total:
        raise _Broken(f"the connection ended after {part.received} of {total} bytes")
    part.finish()


class _Deadline:
    """A server may be slow, but not send one byte a minute for ever."""

    _SECONDS, _LEAST = 120.0, 120 * 1024

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._count = 0

    def check(self, count: int) -> None:
        self._count += count
        now = time.monotonic()
        if self._count >= self._LEAST:
            self._since, self._count = now, 0
        elif now - self._since > self._SECONDS:
            raise TimeoutError("the server sends less than 1 KiB a second")


def _can_resume(part: Part, url: str) -> bool:
    return part.record.origin == url and bool(part.record.validator)


class _Exchange:
    """A request that was answered, after redirects.  Use as a context manager."""

    def __init__(
        self, request: Request, tls: ssl.SSLContext, stop: Stop, position: int, validator: str
    ) -> None:
        self._request = request
        self._tls = tls
        self._stop = stop
        self._position = position
        self._validator = validator
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        url = self._request.url
        for _ in range(_MOST_REDIRECTS + 1):
            try:
                self._answer = self._ask(url)
            except BaseException:
                self._close()
                raise
            if self._answer.status not in _REDIRECTS:
                break
            url = _redirected(url, self._answer.getheader("location") or "")
            self._close()
        else:
            raise NotFilled("Unable to connect to http data source: it redirects without end")
        try:
            self._understand()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._stop.hold(None)
        self._opened.close()

    def _ask(self, url: str) -> http.client.HTTPResponse:
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
            connection.sock = self._dialled(parts, connection.port)
            self._stop.hold(connection.sock)
            connection.request("GET", path, headers=headers)
            return self._opened.enter_context(connection.getresponse())
        except Refused as error:
            raise NotFilled(f"Unable to connect to http data source: {error}") from error
        except ssl.SSLCertVerificationError as error:
            raise NotFilled(
                f"Unable to connect to http data source: {parts.hostname}: "
                f"{error.verify_message}: name the authority in certConfigMap"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(f"{parts.hostname}: {_words(error)}") from error
        except (ValueError, UnicodeError) as error:
            raise NotFilled(f"{self._request.url} cannot be asked for: {error}") from error

    def _dialled(self, parts: SplitResult, port: int) -> socket.socket:
        """A connection that is ready for requests.  Raises Refused, OSError and ValueError."""
        host = parts.hostname or ""
        plain = self._request.destinations.connect(host, port, seconds=_STALL_SECONDS)
        if parts.scheme != "https":
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def _understand(self) -> None:
        """What comes: from where on, how much, of which version."""
        status, answer = self._answer.status, self._answer
        whole = self._continued() if status == 206 else 0
        if status == 416 or (status == 206 and not whole):
            raise _Unfit("the server has nothing to follow what has arrived")
        if status == 429 or status >= 500:
            raise _Broken(f"the server answered {status}")
        if status not in (200, 206):
            raise NotFilled(
                "Unable to connect to http data source: expected status code 200, got "
                f"{status}. Status: {status} {answer.reason}"
            )
        if (answer.getheader("content-encoding") or "identity").lower() != "identity":
            raise NotFilled("the server packs the file though it was asked not to")
        self.start = self._position if status == 206 else 0
        self.total = whole or answer.length or 0
        self.validator = _validator(answer)

    def _continued(self) -> int:
        """The length of the whole file, of which the rest comes; 0 where something else comes."""
        found = _RANGE.fullmatch(self._answer.getheader("content-range") or "")
        if found is None or int(found[1]) != self._position:
            return 0
        whole = int(found[2]) + 1
        rest = whole - self._position
        fits = found[3] in ("*", str(whole)) and self._answer.length in (None, rest)
        # A rest says of which version it is (RFC 9110, 15.3.7): not every server heeds If-Range.
        is_another = _validator(self._answer) not in ("", self._validator)
        return whole if fits and not is_another else 0

    def read(self, buffer: memoryview) -> int:
        """Fill a buffer as far as what has arrived and the end allow."""
        return self._answer.readinto(buffer)


def _connection(parts: SplitResult, tls: ssl.SSLContext) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    try:
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, parts.port, timeout=_STALL_SECONDS, context=tls
            )
        return http.client.HTTPConnection(host, parts.port, timeout=_STALL_SECONDS)
    except (ValueError, http.client.InvalidURL) as error:
        raise NotFilled(f"{parts.geturl()} is no address: {error}") from error


def _redirected(url: str, location: str) -> str:
    target = ""
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotFilled("Unable to connect to http data source: it redirects to no address")
    if parts.scheme == "http" and urlsplit(url).scheme == "https":
        raise NotFilled("Unable to connect to http data source: it redirects from https to http")
    return target


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def _validator(answer: http.client.HTTPResponse) -> str:
    """What names this version of the file, byte by byte (RFC 9110, 13.1.5)."""
    tag = answer.getheader("etag") or ""
    if tag and not tag.startswith("W/"):
        return tag
    return answer.getheader("last-modified") or ""


def _tls(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except ssl.SSLError as error:
            raise NotFilled("certConfigMap holds no certificates that can be read") from error
    return context


def authorities_of(config: Mapping[str, bytes]) -> str:
    """The certificates of a ConfigMap."""
    return "\n".join(value.decode(errors="replace") for value in config.values())


def _of_network(error: OSError) -> bool:
    """Whether an error is the connection's, rather than the disk's."""
    return isinstance(error, ConnectionError | TimeoutError | ssl.SSLError | socket.gaierror)


def _words(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended too early"
    return describe(error)
