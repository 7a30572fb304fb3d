"""HTTPS to an API server, and to web servers that are none: webhooks, Prometheus.

Importing httpx2 takes a tenth of a manager's start: only what is about to send imports this module.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import quote

import httpx2

from corral import sockets
from corral.api.errors import Unavailable
from corral.api.request import Request, Response
from corral.api.time import rfc3339
from corral.client.kubeconfig import Kubeconfig
from corral.client.server_clock import ServerClock
from corral.failures import describe

_IN_PATHS = "/%:@!$&'()*+,;=~"
"""Characters that are not escaped in a path; a question mark or hash in a name would end it."""
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
IDLE_CONNECTIONS = 20
_OUT_OF_TIME = (9, 10)
"""OpenSSL's errors of a certificate that is not valid yet, and of one that has expired."""
SILENT_SECONDS, PROBE_SECONDS = 45, 15
"""A connection whose peer answers no probe for so long is broken, a watch too: as client-go's."""


class Https:
    """The server that a kubeconfig names.  Use it as an async context manager.

    ``description`` names the server in errors; ``clock`` follows its time of day.
    """

    def __init__(self, kubeconfig: Kubeconfig, *, description: str = "the API server") -> None:
        self._description = description
        self._server = kubeconfig.server
        self._kubeconfig = kubeconfig
        self.tls = kubeconfig.tls()
        self.clock = ServerClock()
        self._client = httpx2.AsyncClient(
            base_url=kubeconfig.server,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
            transport=httpx2.AsyncHTTPTransport(
                verify=self.tls,
                # Each watch takes a connection: the garbage collector alone follows a hundred
                # kinds, and a bounded pool would leave none for requests.
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS
                ),
                trust_env=False,
                socket_options=sockets.keep_alive_options(SILENT_SECONDS, PROBE_SECONDS),
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def send(self, request: Request) -> Response:
        streamed = "watch=" in request.query or "follow=" in request.query
        # A watch is silent while nothing changes; its reader has the deadline.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None) if streamed else self._client.timeout
        path = quote(request.path, safe=_IN_PATHS)
        prepared = self._client.build_request(
            request.method,
            f"{path}?{request.query}" if request.query else path,
            headers={**self._kubeconfig.headers, **request.headers},
            content=request.body or None,
            timeout=timeout,
        )
        sent = self.clock.begin()
        try:
            response = await self._client.send(prepared, stream=True)
            self.clock.observe(response.headers.get("date", ""), sent)
            if streamed and response.status_code < 400:
                return self._response(response, self._stream(response))
            return self._response(response, await response.aread())
        except (httpx2.TransportError, ssl.SSLError) as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def download(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[int, AsyncIterator[bytes]], None]:
        """Request a path with its query; yield the status, and the content as it comes.

        Raises Unavailable, while the content is read, too.
        """
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        own = {**self._kubeconfig.headers, "accept-encoding": "identity", **headers}
        try:
            async with self._client.stream("GET", path, headers=own, timeout=timeout) as response:
                yield response.status_code, response.aiter_raw()
        except (httpx2.TransportError, ssl.SSLError) as error:
            raise self._unreachable(error) from error

    async def _stream(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        finally:
            await response.aclose()

    @staticmethod
    def _response(response: httpx2.Response, body: bytes | AsyncGenerator[bytes, None]) -> Response:
        return Response(
            status=response.status_code, headers=list(response.headers.multi_items()), body=body
        )

    def _unreachable(self, error: Exception) -> Unavailable:
        where = f"{self._description} at {self._server}"
        return Unavailable(f"{where} does not answer: {describe(error)}{_doubt(error)}")


class WebServer:
    """A client of a web server that is no API server; responses are bounded in size.

    ``description`` names the server in errors.  Redirects are not followed, and no proxy or
    password is read from the environment.  ``authorities`` are the CA certificates (PEM), if not
    the system's; ``name`` is the server name of TLS, if the URL has an address.  Callers must close
    it.  Raises ssl.SSLError for invalid authorities.
    """

    def __init__(
        self, url: str, *, description: str, authorities: str = "", name: str = ""
    ) -> None:
        self._url = url.rstrip("/")
        self._what = description
        self._extensions = {"sni_hostname": name} if name else {}
        self._client = httpx2.AsyncClient(
            verify=ssl.create_default_context(cadata=authorities) if authorities else True,
            headers={"Host": name} if name else {},
            trust_env=False,
            follow_redirects=False,
        )

    def __str__(self) -> str:
        return f"{self._what} at {self._url}"

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def post(
        self, path: str, body: bytes, *, content_type: str, seconds: float, max_bytes: int
    ) -> tuple[int, bytes]:
        """Post a body; return the status and the body of the response.

        Raises Unavailable if it does not come in time, or is larger than ``max_bytes`` bytes.
        """
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(
                    "POST",
                    self._url + path,
                    content=body,
                    headers={"Content-Type": content_type, "Accept-Encoding": "identity"},
                    timeout=httpx2.Timeout(seconds),
                    extensions=self._extensions,
                ) as response,
            ):
                return response.status_code, await self._read(response, max_bytes)
        except (TimeoutError, httpx2.TimeoutException):
            raise Unavailable(f"{self} does not answer within {seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
            raise Unavailable(f"{self} {_cause(error)}") from error

    async def _read(self, response: httpx2.Response, max_bytes: int) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():  # not decompressed: its size would be unbounded
            body += chunk
            if len(body) > max_bytes:
                raise Unavailable(f"{self} answers with more than {max_bytes} bytes")
        return bytes(body)


def _doubt(error: BaseException) -> str:
    """Return a question about this host's clock, where a certificate is out of its time."""
    found = _certificate_error(error)
    if found is None or found.verify_code not in _OUT_OF_TIME:
        return ""
    return f" (is the clock of this host right? It says {rfc3339(time.time())})"


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the failed check of a certificate below the libraries' wrapping exceptions."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _cause(error: BaseException) -> str:
    """Return what went wrong, from the root cause below the libraries' wrapping exceptions."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"is not trusted: {cause.verify_message}"
        if isinstance(cause, ConnectionRefusedError):
            return "does not answer: connection refused"
        below = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else None
        cause = below or cause.__cause__ or cause.__context__
    return f"does not answer: {describe(error)}"
