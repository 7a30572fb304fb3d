"""Protobuf responses, for typed clients that accept nothing else.

JSON responses are re-encoded: objects of Kubernetes' kinds, lists of them, errors, and metadata of
all kinds.  Others are served as JSON to clients that accept it.  A pod takes some 0.2 ms, so long
lists yield between items, large objects are encoded in a thread, and each user's responses one at a
time.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from corral.aio import finished
from corral.api.errors import NotAcceptable, Timeout, TooManyRequests
from corral.api.object import Document
from corral.api.protobuf import writer
from corral.api.request import Request, Response
from corral.server.flowcontrol.memory_budget import SMALL_BYTES, Budget
from corral.server.request import accept
from corral.server.request.timeout import within
from corral.server.response.pretty import is_api_document, media_type

_BYTES_A_TURN: Final = 32 << 10
"""Some 4 ms of work with small values, and 15 ms with the smallest: the longest block of the
loop."""
_JSON: Final = "application/json"


class ProtobufEncoder:
    """The protobuf encoder of a server; ``responses`` is the memory budget of responses."""

    def __init__(self, responses: Budget) -> None:
        self._responses = responses
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def message(
        self, request: Request, response: Response, deadline: float | None
    ) -> bytes | None:
        """Return a response in protobuf; None if it stays JSON.

        Raises NotAcceptable if it has no protobuf, TooManyRequests and Timeout.
        """
        header = request.headers.get("accept", "")
        body = response.body
        if not accept.prefers_protobuf(header) or not isinstance(body, bytes) or not body:
            return None
        if media_type(response) != _JSON or not (
            is_api_document(request, response) or response.status >= 400
        ):
            return None
        try:
            return await within(deadline, partial(self._encode, request.sender, body))
        except writer.UnwritableError as error:
            # A completed write, or an error, is not failed because of its encoding.
            if request.method != "GET" or response.status >= 400 or accept.accepts_json(header):
                return None
            raise NotAcceptable(str(error)) from None
        except (TooManyRequests, Timeout):
            if request.method != "GET" or response.status >= 400:
                return None
            raise

    async def _encode(self, sender: str, body: bytes) -> bytes:
        if len(body) <= SMALL_BYTES:
            return await encode(body)
        user_lock = self._users.setdefault(sender, asyncio.Lock())
        self._responses.check_room(sender, len(body))
        with self._responses.reserve(sender, len(body)):
            async with user_lock:
                encoded = await encode(body)
        self._responses.check_room(sender, len(encoded))
        return encoded


def in_protobuf(response: Response, body: bytes) -> Response:
    """Replace the body of a response by protobuf; drop the ETag, because the bytes differ."""
    other_headers = [each for each in response.headers if each[0] not in ("content-type", "etag")]
    response.headers = [("content-type", accept.PROTOBUF), *other_headers]
    response.body = body
    return response


class _Response(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    items: msgspec.Raw = msgspec.Raw()


async def encode(body: bytes) -> bytes:
    """Re-encode an object or a list in JSON as protobuf.  Raises UnwritableError."""
    try:
        response_fields = msgspec.json.decode(body, type=_Response)
    except msgspec.DecodeError as error:
        raise writer.UnwritableError(f"the answer is no object: {error}") from None
    if not bytes(response_fields.items) or not response_fields.kind.endswith("List"):
        return await _encode_item(writer.encode, body)
    list_head = {"apiVersion": response_fields.api_version, "kind": response_fields.kind}
    list_head["metadata"] = msgspec.json.decode(response_fields.metadata)
    name, head, start = writer.begin_list(list_head)
    items = msgspec.json.decode(response_fields.items, type=list[msgspec.Raw] | None) or []
    encoded, turn_bytes = [start], 0
    for item in items:
        size = len(memoryview(item))
        turn_bytes += size
        if turn_bytes > _BYTES_A_TURN:
            await asyncio.sleep(0)
            turn_bytes = size
        encoded.append(await _encode_item(partial(writer.list_item, name), item))
    return writer.wrapped(head, b"".join(encoded))


async def _encode_item(write: Callable[[Document], bytes], data: bytes | msgspec.Raw) -> bytes:
    """Re-encode an object, in a thread if it is large.

    On cancellation the thread is awaited, so that each user has one at most.  Raises
    UnwritableError.
    """

    def work() -> bytes:
        return write(msgspec.json.decode(data))

    if len(memoryview(data)) <= _BYTES_A_TURN:
        return work()
    return await finished(asyncio.to_thread(work))
