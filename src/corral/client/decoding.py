"""Decoding of lists and watch events, in which an undecodable object hides no other."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from corral.api.errors import ApiError, Gone, InternalError, error_from_status
from corral.api.kind import Kind
from corral.api.object import Key, ObjectMeta

T = TypeVar("T", bound=msgspec.Struct)

log = structlog.get_logger()

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of decoding bytes that are not of the requested type."""
_MAX_RESPONSES = 256
"""Responses cached until their watch events arrive."""
_MAX_RESPONSE_BYTES = 32 << 10
"""Larger responses are not cached: users decide how large their objects are."""
_MAX_WARNED = 256
"""Undecodable objects remembered, so that each is logged once."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """A change: ``type`` is ADDED, MODIFIED or DELETED; DELETED carries the last state."""

    type: str
    object: T


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A change of an object that the view cannot decode; ``type`` as in ``WatchEvent``.

    Its metadata can be decoded, so that caches drop the object, whose state they no longer know.
    """

    type: str
    key: Key
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A BOOKMARK event: all changes up to this version have been sent."""

    resource_version: str


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[_Cause] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


def error_from(body: bytes, code: int) -> ApiError:
    """Return the error of a response; ``code`` is its HTTP status.

    A body that is no Status is the message.
    """
    try:
        status = msgspec.to_builtins(msgspec.json.decode(body, type=_Status))
    except UNREADABLE:
        status = {"message": body[:500].decode(errors="replace").strip()}
    return error_from_status(status, code)


class _ListMeta(msgspec.Struct, rename={"continue_": "continue"}):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = ""


class Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Identity(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Identified(msgspec.Struct):
    metadata: _Identity


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Bookmarked(msgspec.Struct):
    metadata: _Version


_PAGE_DECODER = msgspec.json.Decoder(Page)
_LINE_DECODER = msgspec.json.Decoder(_Line)
_BOOKMARK_DECODER = msgspec.json.Decoder(_Bookmarked)
_IDENTITY_DECODER = msgspec.json.Decoder(_Identified)

_PREFIXES = {
    change: (prefix := b'{"type":"%s","object":' % change.encode(), len(prefix))
    for change in ("MODIFIED", "ADDED", "DELETED")
}
"""Line prefixes of corral's and Go's servers: behind them the object begins."""


class ResponseCache:
    """Decoded objects of recent responses, by their bytes.

    A client that writes and watches receives the same bytes twice within moments: they are decoded
    once.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[type[Any], bytes], Any] = {}

    def put(self, view: type[T], body: bytes, item: T) -> None:
        """Cache a decoded object, unless it is large; callers must not modify it from now on."""
        if len(body) > _MAX_RESPONSE_BYTES:
            return
        self._objects[view, body] = item
        if len(self._objects) > _MAX_RESPONSES:
            del self._objects[next(iter(self._objects))]

    def get(self, view: type[T], raw: msgspec.Raw | memoryview) -> T | None:
        """Return the object decoded from these bytes, or None."""
        item: T | None = self._objects.get((view, bytes(raw))) if self._objects else None
        return item


class Reader:
    """A decoder of lists and watch events."""

    def __init__(self) -> None:
        self._warn_unreadable = lru_cache(maxsize=_MAX_WARNED)(_warn_unreadable)
        self.responses = ResponseCache()
        """Responses to the clients of this process that share informers."""

    def items(self, view: type[T], kind: Kind, page: Page) -> Iterator[T]:
        """Yield the objects of a page that the view can decode."""
        for raw in page.items:
            if (item := self.decode_or_warn(view, kind, raw)) is not None:
                yield item

    def event(
        self, view: type[T], kind: Kind, line: bytes
    ) -> WatchEvent[T] | Unreadable | Bookmark:
        """Decode a line of a watch.  Raises Gone, and the ApiError of an ERROR event."""
        for change, (prefix, length) in _PREFIXES.items():
            if line.startswith(prefix):
                return self._change(view, kind, change, memoryview(line)[length:-1])
        try:
            event = _LINE_DECODER.decode(line)
            if event.type == "BOOKMARK":
                return Bookmark(_BOOKMARK_DECODER.decode(event.object).metadata.resource_version)
            if event.type == "ERROR":
                raise error_from_status(msgspec.json.decode(event.object), Gone.code)
        except UNREADABLE as error:
            raise Gone(
                f"an event of the watch of {kind.resource} cannot be decoded: {error}"
            ) from error
        return self._change(view, kind, event.type, event.object)

    def _change(
        self, view: type[T], kind: Kind, change: str, raw: msgspec.Raw | memoryview
    ) -> WatchEvent[T] | Unreadable:
        """Decode a changed object, or its metadata alone if the view cannot decode it."""
        item = self.responses.get(view, raw) or self.decode_or_warn(view, kind, raw)
        if item is not None:
            return WatchEvent(change, item)
        try:
            metadata = _IDENTITY_DECODER.decode(raw).metadata
        except UNREADABLE as error:
            raise Gone(
                f"the metadata of a changed object of {kind.resource} cannot be decoded: {error}"
            ) from error
        key = Key(metadata.namespace, metadata.name)
        return Unreadable(change, key, metadata.uid, metadata.resource_version)

    def decode_or_warn(self, view: type[T], kind: Kind, raw: msgspec.Raw | memoryview) -> T | None:
        """Decode an object; None, with a warning logged once, if the view cannot decode it."""
        try:
            return read(view, raw)
        except UNREADABLE as error:
            self._warn_unreadable(kind.resource, _name_in(raw), str(error))
            return None


@cache
def decoder(view: type[Any]) -> "msgspec.json.Decoder[Any]":
    """Return the decoder of a view, compiled on first use."""
    return msgspec.json.Decoder(view)


def page_of(body: bytes) -> Page:
    """Decode a page of a list.  Raises InternalError."""
    try:
        return _PAGE_DECODER.decode(body)
    except UNREADABLE as error:
        raise InternalError(f"the server's answer is no list: {error}") from error


def _name_in(raw: msgspec.Raw | memoryview) -> str:
    try:
        metadata = _IDENTITY_DECODER.decode(raw).metadata
    except UNREADABLE:
        return "?"
    return str(Key(metadata.namespace, metadata.name))


def _warn_unreadable(resource: str, name: str, error: str) -> None:
    log.warning(
        "object cannot be decoded and counts as deleted", kind=resource, name=name, error=error
    )


def read(view: type[T], raw: bytes | msgspec.Raw | memoryview) -> T:
    """Decode an object without its managedFields.  Raises one of UNREADABLE."""
    item: T = decoder(view).decode(raw)
    metadata: Any = getattr(item, "metadata", None)
    if isinstance(metadata, ObjectMeta):
        metadata.managed_fields = []
    elif hasattr(metadata, "managedFields"):
        metadata.managedFields = None
    return item


async def lines_of(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the non-empty lines of a stream."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            if line:
                yield line
