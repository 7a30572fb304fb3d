"""Request bodies to documents, whatever their encoding."""

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
"""What is larger may take long to read, if it is no JSON: some 15 ms, as YAML or as protobuf in
which two bytes are a field."""

_DELETING: Final = ("delete", "deletecollection")
"""Verbs whose options are Kubernetes' own, whatever kind they are about."""


def media_type(call: Call) -> str:
    """The body's media type without parameters; JSON where the client does not say."""
    return call.request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def read(call: Call) -> Document:
    """The object in the body.  Raises BadRequest, UnsupportedMedia and TooLarge."""
    if call.sent is not None:
        document, call.sent = call.sent, None
        return document
    body = call.request.body
    kind = media_type(call)
    if not body.strip():
        raise BadRequest(f"the request has no body: it must hold a {call.kind.name}")
    if kind == JSON:
        document = decode_json(body, call.kind.name)
        note_repeated(call, document)
        return document
    if kind == YAML:
        return read_yaml(call)
    readable = call.has_protobuf or call.verb in _DELETING
    if kind == PROTOBUF and readable:
        return protobuf.decode(body, call.kind.name)
    accepted = [JSON, YAML] + ([PROTOBUF] if readable else [])
    raise UnsupportedMedia(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )


def read_as(call: Call, api_version: str, kind: str) -> Document:
    """The object in the body; if it does not say what it is, it is what its path is for.

    Raises what ``read`` raises.
    """
    document = read(call)
    for name, meant in (("apiVersion", api_version), ("kind", kind)):
        document[name] = document.get(name) or meant
    return document


async def prepare(call: Call) -> None:
    """Read a large object beside the loop, where others would wait for it: for ``read``.

    Raises what that raises.
    """
    if call.verb in ("create", "update", *_DELETING) and media_type(call) in (YAML, PROTOBUF):
        call.sent = None
        call.sent = await asyncio.to_thread(read, call)


def read_yaml(call: Call) -> Document:
    """The object in a body of YAML, with the last of keys that come again.  Raises BadRequest."""
    found: list[str] = []
    document = yaml.load(call.request.body, found)
    if found:
        call.repeated = ["\n  ".join(("yaml: unmarshal errors:", *found))]
    return document


def note_repeated(call: Call, value: Any) -> None:
    """Find keys that the body holds twice; components of this process write none so."""
    if call.request.user is None:
        call.repeated = repeated(call.request.body, value)


def repeated(body: bytes, value: Any) -> list[str]:
    """Tells of keys that stand twice in an object of the text, of which decoding kept the last.

    Each key brings a colon.  Where the text has no more of them than what was read, and none that
    is written otherwise, nothing was lost, and the slow reader that would find it is spared.
    """
    escaped = b"\\u003a" in body or b"\\u003A" in body
    if not escaped and body.count(b":") == _colons(value):
        return []
    return [f'duplicate field "{path}"' for path in duplicate_keys(body)]


def _colons(value: Any) -> int:
    return msgspec.json.encode(value).count(b":")  # quicker than to walk through it
