"""How answers in JSON are laid out: in one line, or indented for people who read them.

The real server ends each with the end of a line, so that what comes next on a terminal does not
stand behind it, and indents it for who asks so (``?pretty=true``), as well as for programs that
show their users what they get.
"""

from itertools import accumulate
from typing import Final

import msgspec

from corral.api.errors import BadRequest
from corral.api.request import Request, Response
from corral.server.request import query

LARGEST_BYTES: Final = 1 << 20
"""Answers above this are not indented: nobody reads them, and others would wait for it."""
LARGEST_INDENTED: Final = 4 << 20
"""Neither are those that have more bytes then: each line is indented by how deep it lies."""
_INDENT: Final = 2
_STEPS: Final = bytes.maketrans(b"{[}],", b"\x01\x01\xff\xff\x00")
"""What begins a line, and how much deeper that lies than the one before: a signed byte."""
_BESIDE: Final = bytes(set(range(256)) - set(b"{[}],"))
_AT_ONCE: Final = 4096
_SHOWING: Final = ("curl", "Wget", "Mozilla/5.0")
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_ROOTS: Final = ("/api", "/apis", "/api/", "/apis/")
_JSON: Final = "application/json"


def is_told(request: Request, response: Response) -> bool:
    """Whether an answer is an object, a list or a document of discovery, in JSON."""
    ours = request.path.startswith(_ROOTS[2:]) or request.path in _ROOTS
    return ours and bool(response.body) and media_type(response).partition(";")[0] == _JSON


def _is_refusal(response: Response) -> bool:
    return response.status >= 400 and media_type(response) == _JSON


def media_type(response: Response) -> str:
    return next((value for name, value in response.headers if name == "content-type"), "")


def lay_out(request: Request, response: Response) -> None:
    """Indent an answer, or end its line; what is no JSON, or streamed, stays as it is.

    One that is indented has no ETag: that is of other bytes.
    """
    body = response.body
    if not isinstance(body, bytes) or not (_is_refusal(response) or is_told(request, response)):
        return
    if len(body) <= LARGEST_BYTES and _wants_lines(request) and _is_small_indented(body):
        response.headers = [each for each in response.headers if each[0] != "etag"]
        response.body = indented(body)
    elif not body.endswith(b"\n"):
        response.body = body + b"\n"


def indented(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=_INDENT)


def _is_small_indented(body: bytes) -> bool:
    """Whether JSON in one line takes no more than LARGEST_INDENTED with lines of its own.

    That is told before it is written: it may become hundreds of times as much.
    """
    length = len(body)
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(body.split(b'"')[::2])  # of strings
    left, depth = LARGEST_INDENTED - length - outside.count(b":"), 0
    marks = outside.replace(b"{}", b"0").replace(b"[]", b"0")
    steps = memoryview(marks.translate(_STEPS, _BESIDE)).cast("b")
    for start in range(0, len(steps), _AT_ONCE):
        depths = list(accumulate(steps[start : start + _AT_ONCE], initial=depth))
        depth = depths.pop()
        left -= len(depths) + _INDENT * sum(depths)
        if left < 0:
            return False
    return True


def _wants_lines(request: Request) -> bool:
    """Whether somebody reads the answer; a query that cannot be read was refused already."""
    if "pretty" in request.query and (asked := _asked(request.query)):
        return asked in _TRUE
    return request.headers.get("user-agent", "").startswith(_SHOWING)


def _asked(text: str) -> str:
    try:
        return query.parse(text).get("pretty", "")
    except BadRequest:
        return ""
