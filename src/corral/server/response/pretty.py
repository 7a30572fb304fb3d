"""Formatting of JSON responses: on one line, or indented.

As in kube-apiserver, each ends with a newline, and is indented with ``?pretty=true``, and for
interactive programs: curl, wget, browsers.  Not for scripts of a page, which browsers mark: nobody
reads what they fetch.
"""

from itertools import accumulate
from typing import Final

import msgspec

from corral.api.errors import BadRequest
from corral.api.request import Request, Response
from corral.server.request import query

MAX_BYTES: Final = 1 << 20
"""Larger responses are not indented: it would block the event loop."""
MAX_INDENTED_BYTES: Final = 4 << 20
"""Nor those that would be larger when indented: deep nesting multiplies the size."""
_INDENT: Final = 2
_STEPS: Final = bytes.maketrans(b"{[}],", b"\x01\x01\xff\xff\x00")
"""Characters that start a new line, with the change of depth as a signed byte."""
_DELETED: Final = bytes(set(range(256)) - set(b"{[}],"))
_CHUNK: Final = 4096
_INTERACTIVE_AGENTS: Final = ("curl", "Wget", "Mozilla/5.0")
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_ROOTS: Final = ("/api", "/apis", "/api/", "/apis/")
_JSON: Final = "application/json"


def is_api_document(request: Request, response: Response) -> bool:
    """Return whether a response is an object, a list or a discovery document, in JSON."""
    is_api_path = request.path.startswith(_ROOTS[2:]) or request.path in _ROOTS
    return is_api_path and bool(response.body) and media_type(response).partition(";")[0] == _JSON


def _is_error(response: Response) -> bool:
    return response.status >= 400 and media_type(response) == _JSON


def media_type(response: Response) -> str:
    return next((value for name, value in response.headers if name == "content-type"), "")


def format_body(request: Request, response: Response) -> None:
    """Indent a JSON response, or append a newline; others and streams are left unchanged.

    An indented response has no ETag, because its bytes differ.
    """
    body = response.body
    if not isinstance(body, bytes) or not (
        _is_error(response) or is_api_document(request, response)
    ):
        return
    if len(body) <= MAX_BYTES and _is_indent_requested(request) and _is_small_indented(body):
        response.headers = [each for each in response.headers if each[0] != "etag"]
        response.body = indented(body)
    elif not body.endswith(b"\n"):
        response.body = body + b"\n"


def indented(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=_INDENT)


def _is_small_indented(body: bytes) -> bool:
    """Return whether JSON stays within ``MAX_INDENTED_BYTES`` when indented.

    Computed in advance, because indenting may multiply the size by hundreds.
    """
    length = len(body)
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(body.split(b'"')[::2])  # of strings
    bytes_left, depth = MAX_INDENTED_BYTES - length - outside.count(b":"), 0
    marks = outside.replace(b"{}", b"0").replace(b"[]", b"0")
    steps = memoryview(marks.translate(_STEPS, _DELETED)).cast("b")
    for start in range(0, len(steps), _CHUNK):
        depths = list(accumulate(steps[start : start + _CHUNK], initial=depth))
        depth = depths.pop()
        bytes_left -= len(depths) + _INDENT * sum(depths)
        if bytes_left < 0:
            return False
    return True


def _is_indent_requested(request: Request) -> bool:
    """Return whether to indent; invalid queries were rejected before."""
    if "pretty" in request.query and (pretty := _pretty_parameter(request.query)):
        return pretty in _TRUE
    by_script = request.headers.get("sec-fetch-dest") == "empty"
    return not by_script and request.headers.get("user-agent", "").startswith(_INTERACTIVE_AGENTS)


def _pretty_parameter(text: str) -> str:
    try:
        return query.parse(text).get("pretty", "")
    except BadRequest:
        return ""
