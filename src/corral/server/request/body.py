"""Decoding of request bodies: JSON, YAML, protobuf."""

import asyncio
from typing import Any, Final

import msgspec

from corral.api import yaml
from corral.api.encoding import decode_json, duplicate_keys
from corral.api.errors import BadRequest, UnsupportedMedia
from corral.api.object import Document
from corral.api.protobuf import reader as protobuf
from corral.server.request.call import Call

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = protobuf.MEDIA_TYPE

LARGE_BYTES: Final = 16 << 10
"""Larger bodies are decoded in a thread if they are not JSON: they take 15 ms and more, as YAML or
as protobuf with two-byte fields."""

_DELETE_VERBS: Final = ("delete", "deletecollection")
"""Verbs whose body is meta/v1 DeleteOptions, which have protobuf whatever the kind."""


def media_type(call: Call) -> str:
    """Return the body's media type without parameters; JSON if there is no Content-Type."""
    return call.request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def read(call: Call) -> Document:
    """Decode the object in the body.  Raises BadRequest, UnsupportedMedia and TooLarge."""
    if call.decoded_body is not None:
        document, call.decoded_body = call.decoded_body, None
        return document
    body = call.request.body
    kind = media_type(call)
    if not body.strip():
        raise BadRequest(f"the request has no body: it must hold a {call.kind.name}")
    if kind == JSON:
        document = decode_json(body, call.kind.name)
        check_duplicates(call, document)
        return document
    if kind == YAML:
        return read_yaml(call)
    readable = call.has_protobuf or call.verb in _DELETE_VERBS
    if kind == PROTOBUF and readable:
        return protobuf.decode(body, call.kind.name)
    accepted = [JSON, YAML] + ([PROTOBUF] if readable else [])
    raise UnsupportedMedia(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )


def read_as(call: Call, api_version: str, kind: str) -> Document:
    """Decode the object in the body; default its apiVersion and kind to the path's.

    Raises what ``read`` raises.
    """
    document = read(call)
    for name, default in (("apiVersion", api_version), ("kind", kind)):
        document[name] = document.get(name) or default
    return document


async def decode_in_thread(call: Call) -> None:
    """Decode a large object in a thread, so that it does not block the loop; ``read`` returns it.

    Raises what that raises.
    """
    if call.verb in ("create", "update", *_DELETE_VERBS) and media_type(call) in (YAML, PROTOBUF):
        call.decoded_body = None
        call.decoded_body = await asyncio.to_thread(read, call)


def read_yaml(call: Call) -> Document:
    """Decode a body of YAML; the last of duplicate keys counts.  Raises BadRequest."""
    duplicates: list[str] = []
    document = yaml.load(call.request.body, duplicates)
    if duplicates:
        call.duplicate_faults = ["\n  ".join(("yaml: unmarshal errors:", *duplicates))]
    return document


def check_duplicates(call: Call, value: Any) -> None:
    """Record duplicate keys of a body; components of this process never send any."""
    if not call.request.is_in_process:
        call.duplicate_faults = duplicate_faults(call.request.body, value)


def duplicate_faults(body: bytes, value: Any) -> list[str]:
    """Return faults for duplicate keys in a JSON text, of which decoding kept the last.

    Each key has a colon.  If the text has as many as the decoded value, and no escaped ones, there
    are no duplicates, and the slow parser that finds them is not needed.
    """
    escaped = b"\\u003a" in body or b"\\u003A" in body
    if not escaped and body.count(b":") == _colons(value):
        return []
    return [f'duplicate field "{path}"' for path in duplicate_keys(body)]


def _colons(value: Any) -> int:
    return msgspec.json.encode(value).count(b":")  # faster than a recursive count
