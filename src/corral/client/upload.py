"""Sends a file to where claims take their content (CDI's upload proxy).  Blocks.

By the standard library's client: a file of many gigabytes needs no event loop, and nothing of it is
kept in memory.
"""

import http.client
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import urlsplit

from corral.failures import describe

PATH = "/v1beta1/upload"
ASYNC_PATH = "/v1beta1/upload-async"
_PIECE = 1 << 20
_ANSWER_SECONDS = 3600.0
"""A server that does not know the asynchronous way answers when the disk is made."""
_LONGEST_ANSWER = 4096


class UploadError(Exception):
    """The upload was not taken; ``str()`` is what the server says, or what broke.

    may_pass: whether the same may be taken another time.
    """

    def __init__(self, message: str, *, may_pass: bool) -> None:
        self.may_pass = may_pass
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to send to, and in whose name."""

    url: str
    token: str = field(repr=False)
    tls: ssl.SSLContext


def path_at(target: Target) -> str:
    """Where at an upload proxy to send to: where it answers at once, if it knows that way."""
    try:
        status, _ = _ask(target, "HEAD", ASYNC_PATH)
    except (OSError, http.client.HTTPException):
        return PATH
    return ASYNC_PATH if status == http.client.OK else PATH


def send(
    target: Target, path: str, file: BinaryIO, size: int, advance: Callable[[int], None]
) -> None:
    """Send a file; ``advance`` hears of the bytes that are on their way.  Raises UploadError."""

    def pieces() -> Iterator[bytes]:
        while piece := file.read(_PIECE):
            yield piece
            advance(len(piece))

    try:
        status, said = _ask(target, "POST", path, pieces(), size)
    except (OSError, http.client.HTTPException) as error:
        raise UploadError(describe(error), may_pass=True) from error
    if status != http.client.OK:
        message = f"unexpected return value {status}, {said}"
        raise UploadError(message, may_pass=status >= http.client.INTERNAL_SERVER_ERROR)


def _ask(
    target: Target, method: str, path: str, body: Iterator[bytes] | None = None, size: int = 0
) -> tuple[int, str]:
    parts = urlsplit(target.url)
    connection: http.client.HTTPConnection
    if parts.scheme == "http":
        connection = http.client.HTTPConnection(parts.netloc, timeout=_ANSWER_SECONDS)
    else:
        connection = http.client.HTTPSConnection(
            parts.netloc, timeout=_ANSWER_SECONDS, context=target.tls
        )
    headers = {
        "Authorization": f"Bearer {target.token}",
        "Content-Type": "application/octet-stream",
    }
    if body is not None:
        headers["Content-Length"] = str(size)
    try:
        try:
            connection.request(method, f"{parts.path.rstrip('/')}{path}", body, headers)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # Who refuses an upload answers before all of it was sent: that answer says why.
        answer = connection.getresponse()
        return answer.status, answer.read(_LONGEST_ANSWER).decode(errors="replace").strip()
    finally:
        connection.close()
