"""How a request reaches an API server: over HTTPS, or into a server of this process.

Other servers are reached by ``Site``.  The only module that imports httpx2.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import quote

import httpx2

from corral.api.errors import Unavailable
from corral.api.request import Request, Response, User
from corral.client.kubeconfig import Kubeconfig
from corral.failures import describe

_IN_PATHS = "/%:@!$&'()*+,;=~"
"""What stands for itself in a path; a question mark or hash in a name would end it."""
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0


class Transport(Protocol):
    """Carries a request to a server; raises Unavailable when none can be reached."""

    async def send(self, request: Request) -> Response: ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """A server of this process, asked in the name of a component that needs no credentials."""

    handle: Callable[[Request], Awaitable[Response]]
    user: User

    async def send(self, request: Request) -> Response:
        request.user = self.user
        return await self.handle(request)


class Https:
    """The server that a kubeconfig names.  Use it as an async context manager."""

    def __init__(self, kubeconfig: Kubeconfig) -> None:
        self._server = kubeconfig.server
        self._client = httpx2.AsyncClient(
            base_url=kubeconfig.server,
            headers=kubeconfig.headers,
            verify=kubeconfig.tls(),
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def send(self, request: Request) -> Response:
        streamed = "watch=" in request.query or "follow=" in request.query
        # A stream may be silent for as long as nothing happens; whoever reads it has the deadline.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None) if streamed else self._client.timeout
        path = quote(request.path, safe=_IN_PATHS)
        prepared = self._client.build_request(
            request.method,
            f"{path}?{request.query}" if request.query else path,
            headers=dict(request.headers),
            content=request.body or None,
            timeout=timeout,
        )
        try:
            answer = await self._client.send(prepared, stream=True)
            if streamed and answer.status_code < 400:
                return self._response(answer, self._lines(answer))
            return self._response(answer, await answer.aread())
        except (httpx2.TransportError, ssl.SSLError) as error:
            raise self._unreachable(error) from error

    async def _lines(self, answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in answer.aiter_bytes():
                yield chunk
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        finally:
            await answer.aclose()

    @staticmethod
    def _response(answer: httpx2.Response, body: bytes | AsyncGenerator[bytes, None]) -> Response:
        return Response(
            status=answer.status_code, headers=list(answer.headers.multi_items()), body=body
        )

    def _unreachable(self, error: Exception) -> Unavailable:
        what = describe(error)
        return Unavailable(f"the API server at {self._server} does not answer: {what}")


class Site:
    """A web server that is no API server, asked for answers of bounded size.

    ``what`` it is people are told when it does not answer.  Redirects are not followed, and the
    environment names no proxy and no password.  ``authorities`` are certificates (PEM) of those
    who vouch for the server, if not the system's; ``name`` is the server's, where its address in
    the URL is not.  To be closed in the end.  Raises ssl.SSLError for authorities that are none.
    """

    def __init__(self, url: str, *, what: str, authorities: str = "", name: str = "") -> None:
        self._url = url.rstrip("/")
        self._what = what
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
        """End its connections."""
        await self._client.aclose()

    async def post(
        self, path: str, body: bytes, *, content_type: str, seconds: float, most: int
    ) -> tuple[int, bytes]:
        """The status and the body of an answer.

        Raises Unavailable where there is none in time, or one of more than ``most`` bytes.
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
                ) as answer,
            ):
                return answer.status_code, await self._read(answer, most)
        except (TimeoutError, httpx2.TimeoutException):
            raise Unavailable(f"{self} does not answer within {seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
            raise Unavailable(f"{self} {_why(error)}") from error

    async def _read(self, answer: httpx2.Response, most: int) -> bytes:
        body = bytearray()
        async for chunk in answer.aiter_raw():  # nothing is unpacked: that has no bounds
            body += chunk
            if len(body) > most:
                raise Unavailable(f"{self} answers with more than {most} bytes")
        return bytes(body)


def _why(error: BaseException) -> str:
    """What a server did not do, from the cause below what the libraries make of it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"is not trusted: {cause.verify_message}"
        if isinstance(cause, ConnectionRefusedError):
            return "does not answer: connection refused"
        below = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else None
        cause = below or cause.__cause__ or cause.__context__
    return f"does not answer: {describe(error)}"
