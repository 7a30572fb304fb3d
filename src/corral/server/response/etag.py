"""Responses with an ETag, for documents that clients cache: discovery, OpenAPI."""

from corral.api.etag import Tagged
from corral.api.request import Request, Response


def cached(
    document: Tagged,
    media_type: str,
    request: Request,
    *,
    as_yaml: bool = False,
    as_protobuf: bool = False,
) -> Response:
    """Return a document, or 304 if the client has the current version.

    ``as_yaml``: the response will be re-encoded as YAML, if possible.  ``as_protobuf``: as
    protobuf, which has no ETag, so If-None-Match is ignored.
    """
    tag = f'"{document.tag}"'
    current_tag = tag_in_yaml(tag) if as_yaml else tag
    vary = ("vary", "Accept")
    if not as_protobuf and request.headers.get("if-none-match") == current_tag:
        return Response(status=304, headers=[("etag", current_tag), vary])
    return Response(headers=[("content-type", media_type), ("etag", tag), vary], body=document.body)


def tag_in_yaml(tag: str) -> str:
    """Return the ETag of the YAML encoding, from that of the JSON encoding: the bytes differ."""
    return f'{tag[:-1]}-yaml"'
