"""YAML responses, for clients that prefer them.

JSON responses are re-encoded.  That takes a second per megabyte, so all but the smallest are
encoded in one thread, item by item, one response at a time.  Users are served round-robin: each
waits for at most one response of every other user.  Pending responses count towards a memory
budget, and wait no longer than their request's deadline.
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
from corral.server.response.pretty import is_api_document, media_type

MAX_BYTES: Final = 1 << 20
"""Larger JSON responses are not encoded as YAML."""
MAX_VALUES: Final = 100_000
"""Nor those with more values: the time depends on them, not on long strings."""
MAX_YAML_BYTES: Final = 4 << 20
"""Nor those that are larger as YAML: indentation makes deep nesting up to 200 times as large."""
PENDING_BUDGET: Final = 2 << 20, 16 << 20
"""Bytes pending to be encoded for one user, and for all."""
_SMALL_BYTES: Final = 1 << 10
"""Most errors are smaller; more would block the event loop."""
_JSON: Final = "application/json"

_thread = ThreadPoolExecutor(1, "corral-yaml")


class YamlEncoder:
    """The YAML encoder of a server; ``responses`` is the memory budget of responses."""

    def __init__(self, responses: Budget) -> None:
        self._responses = responses
        self._pending = Budget(*PENDING_BUDGET, small=_SMALL_BYTES)
        self._users: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._thread_lock = asyncio.Lock()

    async def text(
        self, request: Request, response: Response, deadline: float | None
    ) -> bytes | None:
        """Return a response in YAML; None if it stays JSON.

        Raises NotAcceptable if it is too large, TooManyRequests and Timeout.
        """
        header = request.headers.get("accept", "")
        body = response.body
        if "yaml" not in header.lower() or not isinstance(body, bytes):
            return None
        if not is_api_document(request, response) or not _prefers_yaml(header, response):
            return None
        try:
            return await within(deadline, partial(self._text, request, body))
        except (NotAcceptable, TooManyRequests, Timeout):
            # A completed write, or an error, is not failed because of its encoding.
            if request.method != "GET" or response.status >= 400 or accept.accepts_json(header):
                return None
            raise

    async def _text(self, request: Request, body: bytes) -> bytes:
        if len(body) <= _SMALL_BYTES:
            return encode(body)
        sender = request.sender
        size = len(body) + len(request.body)
        if len(body) <= MAX_BYTES:
            self._pending.check_room(sender, size)
        _check_size(body)
        user_lock = self._users.setdefault(sender, asyncio.Lock())
        with self._pending.reserve(sender, size):
            loop = asyncio.get_running_loop()
            async with (
                user_lock,
                self._thread_lock,
            ):  # on cancellation held until the thread is free
                text = await finished(loop.run_in_executor(_thread, encode, body))
        self._responses.check_room(sender, len(text))
        return text


def in_yaml(response: Response, text: bytes) -> Response:
    """Replace the body of a response by YAML, and adapt its headers."""
    response.headers = [_header(*each) for each in response.headers]
    response.body = text
    return response


def _header(name: str, value: str) -> tuple[str, str]:
    """Return a header of a response as it is for YAML."""
    if name == "content-type":
        return name, value.replace(_JSON, accept.YAML, 1)
    return name, tag_in_yaml(value) if name == "etag" else value


def _prefers_yaml(header: str, response: Response) -> bool:
    """Return whether a client prefers YAML for a response's form."""
    if media_type(response) == _JSON:
        return accept.prefers_yaml(header)
    aggregated = accept.aggregated(header)
    return aggregated is not None and aggregated.type == accept.YAML


def _check_size(body: bytes) -> None:
    """Check the size of a response.  Raises NotAcceptable."""
    if len(body) <= MAX_BYTES and values_at_most(body) <= MAX_VALUES:
        return
    raise _too_large(f"{MAX_BYTES} bytes or {MAX_VALUES} values")


def _too_large(limit: str) -> NotAcceptable:
    return NotAcceptable(
        f"the response has more than {limit}, and is only available as application/json: accept "
        "that, or request pages (limit)"
    )


class _BoundedText:
    """A YAML text of bounded size."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self._bytes_left = MAX_YAML_BYTES

    def write(self, chunk: str) -> None:
        """Append text.  Raises NotAcceptable over the limit."""
        encoded = chunk.encode(errors="replace")
        self._bytes_left -= len(encoded)
        if self._bytes_left < 0:
            raise _too_large(f"{MAX_YAML_BYTES} bytes as YAML")
        self.chunks.append(encoded)


def encode(body: bytes) -> bytes:
    """Encode an object in YAML, item by item in its lists.  Raises NotAcceptable."""
    text = _BoundedText()
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
    return b"".join(text.chunks)


def _items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    is_list = bytes(memoryview(raw)[:1]) == b"["
    return msgspec.json.decode(raw, type=list[msgspec.Raw]) if is_list else []
