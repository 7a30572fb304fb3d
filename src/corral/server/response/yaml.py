"""Answers of the API in YAML, for clients that want it so.

What is answered is made as JSON, and written anew.  That takes a second for a megabyte, so all but
the smallest are written in one thread beside the loop, item by item, one answer at a time.  Users
take turns: who asks for much waits for himself, and others wait for one answer of his at most.
What waits is counted as all that users have the server hold, and waits no longer than its request
may take.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from corral.aio import finished
from corral.api import yaml
from corral.api.encoding import values_at_most
from corral.api.errors import NotAcceptable, Timeout, TooManyRequests
from corral.api.request import Request, Response
from corral.server.flowcontrol.memory_budget import Budget
from corral.server.request import accept
from corral.server.request.timeout import within
from corral.server.response.etag import tag_in_yaml
from corral.server.response.pretty import is_told, media_type

LARGEST_BYTES: Final = 1 << 20
"""Answers in JSON above this are not written as YAML."""
MAX_VALUES: Final = 100_000
"""Neither are those of more values: what takes long are they, not long texts."""
LARGEST_WRITTEN: Final = 4 << 20
"""Nor those that have more bytes as YAML: each line is indented, so what is deep becomes 200 times
as large."""
WAITING: Final = 2 << 20, 16 << 20
"""Bytes that wait to be written for one user, and for all."""
_SMALL_BYTES: Final = 1 << 10
"""Most refusals are smaller; of more the loop would be kept waiting."""
_JSON: Final = "application/json"

_thread = ThreadPoolExecutor(1, "corral-yaml")


class YamlAnswers:
    """Writes the answers of one server; ``answers`` counts those that are on their way."""

    def __init__(self, answers: Budget) -> None:
        self._answers = answers
        self._waiting = Budget(*WAITING, small=_SMALL_BYTES)
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._free = asyncio.Lock()

    async def text(
        self, request: Request, response: Response, deadline: float | None
    ) -> bytes | None:
        """An answer in YAML; None where it is told as it is.

        Raises NotAcceptable where it is too large, TooManyRequests and Timeout.
        """
        header = request.headers.get("accept", "")
        body = response.body
        if "yaml" not in header.lower() or not isinstance(body, bytes):
            return None
        if not is_told(request, response) or not _is_wanted(header, response):
            return None
        try:
            return await within(deadline, partial(self._text, request, body))
        except (NotAcceptable, TooManyRequests, Timeout):
            # what was done, or refused already, is not refused for how it would be told
            if request.method != "GET" or response.status >= 400 or accept.takes_json(header):
                return None
            raise

    async def _text(self, request: Request, body: bytes) -> bytes:
        if len(body) <= _SMALL_BYTES:
            return written(body)
        sender = request.sender
        size = len(body) + len(request.body)
        if len(body) <= LARGEST_BYTES:
            self._waiting.check_room(sender, size)
        _require_moderate(body)
        own = self._users.setdefault(sender, asyncio.Lock())
        with self._waiting.reserve(sender, size):
            loop = asyncio.get_running_loop()
            async with own, self._free:  # who gives up has his turn until the thread is free again
                text = await finished(loop.run_in_executor(_thread, written, body))
        self._answers.check_room(sender, len(text))
        return text


def in_yaml(response: Response, text: bytes) -> Response:
    """An answer, as it is in YAML."""
    response.headers = [_header(*each) for each in response.headers]
    response.body = text
    return response


def _header(name: str, value: str) -> tuple[str, str]:
    """A header of an answer, as it is where that is in YAML."""
    if name == "content-type":
        return name, value.replace(_JSON, accept.YAML, 1)
    return name, tag_in_yaml(value) if name == "etag" else value


def _is_wanted(header: str, response: Response) -> bool:
    """Whether who sends an Accept header wants an answer in YAML; they say so for each form."""
    if media_type(response) == _JSON:
        return accept.wants_yaml(header)
    aggregated = accept.aggregated(header)
    return aggregated is not None and aggregated.type == accept.YAML


def _require_moderate(body: bytes) -> None:
    """Raises NotAcceptable."""
    if len(body) <= LARGEST_BYTES and values_at_most(body) <= MAX_VALUES:
        return
    raise _too_large(f"{LARGEST_BYTES} bytes or {MAX_VALUES} values")


def _too_large(limit: str) -> NotAcceptable:
    return NotAcceptable(
        f"the answer has more than {limit}, and is only given as application/json: accept that, "
        "or ask for pages (limit)"
    )


class _Text:
    """The YAML of one answer, as far as it is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._left = LARGEST_WRITTEN

    def write(self, piece: str) -> None:
        """Raises NotAcceptable."""
        encoded = piece.encode(errors="replace")
        self._left -= len(encoded)
        if self._left < 0:
            raise _too_large(f"{LARGEST_WRITTEN} bytes as YAML")
        self.pieces.append(encoded)


def written(body: bytes) -> bytes:
    """An object in YAML; of its fields that are lists each item by itself, as they may be many.

    Raises NotAcceptable.
    """
    text = _Text()
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    for name in sorted(fields):
        raw = fields[name]
        items = _items(raw)
        if items:
            text.write(yaml.dump({name: []}).removesuffix(" []\n") + "\n")
            for item in items:
                yaml.write([msgspec.json.decode(item)], text)
        else:
            yaml.write({name: msgspec.json.decode(raw)}, text)
    return b"".join(text.pieces)


def _items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    is_list = bytes(memoryview(raw)[:1]) == b"["
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if is_list else []
