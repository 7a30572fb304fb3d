"""Documents that change seldom: clients keep them, and ask whether theirs is still the last one."""

from corral.api.etag import Tagged
from corral.api.request import Request, Response


def cached(
    kept: Tagged,
    media_type: str,
    request: Request,
    *,
    wants_yaml: bool = False,
    wants_protobuf: bool = False,
) -> Response:
    """A document that a client may keep for as long as its ETag stays.

    ``wants_yaml`` says that it will be written so, if there is room and time for that.  What will
    be in protobuf has no ETag, so whoever has one is told the document, and not that it is theirs.
    """
    tag = f'"{kept.tag}"'
    told = tag_in_yaml(tag) if wants_yaml else tag
    vary = ("vary", "Accept")
    if not wants_protobuf and request.headers.get("if-none-match") == told:
        return Response(status=304, headers=[("etag", told), vary])
    return Response(headers=[("content-type", media_type), ("etag", tag), vary], body=kept.body)


def tag_in_yaml(tag: str) -> str:
    """The ETag of what is written in YAML, by that of the same in JSON: they are other bytes."""
    return f'{tag[:-1]}-yaml"'
