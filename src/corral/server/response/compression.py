"""Gzip compression of large responses, as in kube-apiserver.

One thread compresses in chunks, so that large lists use one processor at most, and other requests
go on.  Request bodies are never decompressed: no client of Kubernetes compresses them, and a small
one could expand to gigabytes.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from corral.api.errors import UnsupportedMedia
from corral.api.request import Request, Response
from corral.server.request.accept import MAX_HEADER_CHARACTERS

MIN_BYTES = 128 << 10
"""Smaller responses are not compressed (kube-apiserver's threshold)."""
LEVEL = 1
"""kube-apiserver's: higher levels are slower, and hardly smaller."""
_CHUNK_BYTES = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS  # zlib's flag for the gzip format

_thread = ThreadPoolExecutor(1, "corral-gzip")


def should_compress(request: Request, response: Response) -> bool:
    """Return whether to compress a response."""
    return (
        isinstance(response.body, bytes)
        and len(response.body) >= MIN_BYTES
        and response.status == 200
        and request.method == "GET"
        and not any(name == "content-encoding" for name, _ in response.headers)
        and accepts_gzip(request.headers.get("accept-encoding", ""))
    )


def accepts_gzip(header: str) -> bool:
    """Return whether a client accepts gzip; overlong headers are ignored."""
    return len(header) <= MAX_HEADER_CHARACTERS and _parse_accepts_gzip(header)


@lru_cache(maxsize=64)
def _parse_accepts_gzip(header: str) -> bool:
    for part in header.lower().split(","):
        name, *parameters = (chunk.strip() for chunk in part.split(";"))
        if name == "gzip":
            return not any(each.replace(" ", "") in _NEVER for each in parameters)
    return False


_NEVER = ("q=0", "q=0.0", "q=0.00", "q=0.000")


async def compressed(body: bytes) -> AsyncGenerator[bytes, None]:
    """Yield a body in gzip format, in chunks."""
    loop = asyncio.get_running_loop()
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    view = memoryview(body)
    while view:
        if chunk := await loop.run_in_executor(_thread, compressor.compress, view[:_CHUNK_BYTES]):
            yield chunk
        view = view[_CHUNK_BYTES:]
    yield compressor.flush()


def require_uncompressed(request: Request) -> None:
    """Check that a request body is not compressed.  Raises UnsupportedMedia."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMedia(
            f'the body of the request has the content encoding "{encoding[:50]}", which is not '
            "read: send it as it is"
        )
