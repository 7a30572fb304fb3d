"""Large answers are compressed for clients that take them so, as the real server does.

It is done in one thread beside the loop, piece by piece: whoever asks for much uses one processor
at most, and the others' requests go on.  Bodies of requests are never unpacked: no client of
Kubernetes packs them, and a small one could become gigabytes.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from corral.api.errors import UnsupportedMedia
from corral.api.request import Request, Response
from corral.server.request.accept import LONGEST

SMALLEST_BYTES = 128 << 10
"""Answers below this are sent as they are (the real server's bound)."""
LEVEL = 1
"""The real server's: more of it is slower, and hardly smaller."""
_PIECE_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS  # what zlib takes for gzip's format

_thread = ThreadPoolExecutor(1, "corral-gzip")


def wanted(request: Request, response: Response) -> bool:
    """Whether an answer is to be compressed."""
    return (
        isinstance(response.body, bytes)
        and len(response.body) >= SMALLEST_BYTES
        and response.status == 200
        and request.method == "GET"
        and not any(name == "content-encoding" for name, _ in response.headers)
        and _accepted(request.headers.get("accept-encoding", ""))
    )


def _accepted(header: str) -> bool:
    """Whether a client takes gzip; who says it in a header of many kilobytes is not read."""
    return len(header) <= LONGEST and _takes_gzip(header)


@lru_cache(maxsize=64)
def _takes_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name == "gzip":
            return not any(each.replace(" ", "") in _NEVER for each in parameters)
    return False


_NEVER = ("q=0", "q=0.0", "q=0.00", "q=0.000")


async def compressed(body: bytes) -> AsyncGenerator[bytes, None]:
    """A body in gzip's format, piece by piece."""
    loop = asyncio.get_running_loop()
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    view = memoryview(body)
    while view:
        if piece := await loop.run_in_executor(_thread, packer.compress, view[:_PIECE_BYTES]):
            yield piece
        view = view[_PIECE_BYTES:]
    yield packer.flush()


def require_plain(request: Request) -> None:
    """Raises UnsupportedMedia for a body that is compressed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMedia(
            f'the body of the request has the content encoding "{encoding[:50]}", which is not '
            "read: send it as it is"
        )
