"""Answers of the API in protobuf, for typed clients that take nothing else.

What is answered is made as JSON, and written anew: objects of Kubernetes' kinds, lists of them,
refusals, and metadata of all kinds.  What has no such form is told in JSON to those who take it.
That takes some 0.2 ms for a pod, so a long list is written piece by piece, what is large by itself
in a thread, and of one user's one at a time.
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
from corral.server.response.pretty import is_told, media_type

_BYTES_A_TURN: Final = 32 << 10
"""Some 4 ms of work with small values, and 15 ms with the smallest: others wait for no more."""
_JSON: Final = "application/json"


class ProtobufAnswers:
    """Writes the answers of one server; ``answers`` counts those that are on their way."""

    def __init__(self, answers: Budget) -> None:
        self._answers = answers
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def message(
        self, request: Request, response: Response, deadline: float | None
    ) -> bytes | None:
        """An answer in protobuf; None where it is told as it is.

        Raises NotAcceptable where it has no such form, TooManyRequests and Timeout.
        """
        header = request.headers.get("accept", "")
        body = response.body
        if not accept.wants_protobuf(header) or not isinstance(body, bytes) or not body:
            return None
        if media_type(response) != _JSON or not (
            is_told(request, response) or response.status >= 400
        ):
            return None
        try:
            return await within(deadline, partial(self._written, request.sender, body))
        except writer.UnwritableError as error:
            # what was done, or refused already, is not refused for how it would be told
            if request.method != "GET" or response.status >= 400 or accept.takes_json(header):
                return None
            raise NotAcceptable(str(error)) from None
        except (TooManyRequests, Timeout):
            if request.method != "GET" or response.status >= 400:
                return None
            raise

    async def _written(self, sender: str, body: bytes) -> bytes:
        if len(body) <= SMALL_BYTES:
            return await written(body)
        own = self._users.setdefault(sender, asyncio.Lock())
        self._answers.check_room(sender, len(body))
        with self._answers.reserve(sender, len(body)):
            async with own:
                made = await written(body)
        self._answers.check_room(sender, len(made))
        return made


def in_protobuf(response: Response, body: bytes) -> Response:
    """An answer with its body in protobuf; an ETag would be that of other bytes."""
    kept = [each for each in response.headers if each[0] not in ("content-type", "etag")]
    response.headers = [("content-type", accept.PROTOBUF), *kept]
    response.body = body
    return response


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    items: msgspec.Raw = msgspec.Raw()


async def written(body: bytes) -> bytes:
    """An object or a list in JSON, as protobuf.  Raises UnwritableError."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError as error:
        raise writer.UnwritableError(f"the answer is no object: {error}") from None
    if not bytes(answer.items) or not answer.kind.endswith("List"):
        return await _beside(writer.encode, body)
    begun = {"apiVersion": answer.api_version, "kind": answer.kind}
    begun["metadata"] = msgspec.json.decode(answer.metadata)
    name, head, start = writer.begin_list(begun)
    items = msgspec.json.decode(answer.items, type=list[msgspec.Raw] | None) or []
    made, turn = [start], 0
    for item in items:
        size = len(memoryview(item))
        turn += size
        if turn > _BYTES_A_TURN:
            await asyncio.sleep(0)
            turn = size
        made.append(await _beside(partial(writer.list_item, name), item))
    return writer.wrapped(head, b"".join(made))


async def _beside(write: Callable[[Document], bytes], data: bytes | msgspec.Raw) -> bytes:
    """Write an object in JSON, beside the loop where it would take more than a turn.

    Who gives up waits for the thread, so that each user has one.  Raises UnwritableError.
    """

    def work() -> bytes:
        return write(msgspec.json.decode(data))

    if len(memoryview(data)) <= _BYTES_A_TURN:
        return work()
    return await finished(asyncio.to_thread(work))
