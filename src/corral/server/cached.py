"""Documents that change seldom: clients keep them, and ask whether theirs is still the last one."""

from corral.api.tagged import Tagged
from corral.api.wire import Request, Response


def cached(kept: Tagged, media_type: str, request: Request) -> Response:
    """A document that a client may keep for as long as its ETag stays."""
    tag = f'"{kept.tag}"'
    headers = [("content-type", media_type), ("etag", tag), ("vary", "Accept")]
    if request.headers.get("if-none-match") == tag:
        return Response(status=304, headers=headers)
    return Response(headers=headers, body=kept.body)
