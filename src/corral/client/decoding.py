"""From the bytes of an API server to objects, where one that is unreadable hides no other."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from corral.api.errors import Gone, InternalError, error_from_status
from corral.api.kind import Kind
from corral.api.object import Key, ObjectMeta

T = TypeVar("T", bound=msgspec.Struct)

log = structlog.get_logger()

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised for bytes that are not what was asked for."""
_ANSWERS = 256
"""So many objects that were answered are remembered until a watch tells of them."""
_LARGEST_ANSWER = 32 << 10
"""Bytes of the largest of them: users decide how large their objects are."""
_COMPLAINTS = 256
"""So many objects that cannot be read are remembered, so that each is spoken of once."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """A change: ``type`` is ADDED, MODIFIED or DELETED; a deleted object is its last state."""

    type: str
    object: T


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that the view cannot hold, or that is gone and was not read; ``type`` is as there.

    Its metadata can be read: whoever keeps the object gives it up, as it does not know it any more.
    """

    type: str
    key: Key
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to this version has been sent."""

    resource_version: str


class _ListMeta(msgspec.Struct, rename={"continue_": "continue"}):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = ""


class Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Names(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Named(msgspec.Struct):
    metadata: _Names


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Marked(msgspec.Struct):
    metadata: _Version


_PAGE_DECODER = msgspec.json.Decoder(Page)
_LINE_DECODER = msgspec.json.Decoder(_Line)
_MARK_DECODER = msgspec.json.Decoder(_Marked)
_NAMED_DECODER = msgspec.json.Decoder(_Named)

_PREFIXES = {
    change: (prefix := b'{"type":"%s","object":' % change.encode(), len(prefix))
    for change in ("MODIFIED", "ADDED", "DELETED")
}
"""How servers written by us or in Go begin a line: the object need not be looked for."""


class Answered:
    """The objects that a server answered last, by their bytes.

    Who writes and watches gets the same bytes twice, within moments: they are read once.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[type[Any], bytes], Any] = {}

    def put(self, view: type[T], body: bytes, item: T) -> None:
        """Remember an object, which nobody changes from now on; a large one is read again."""
        if len(body) > _LARGEST_ANSWER:
            return
        self._objects[view, body] = item
        if len(self._objects) > _ANSWERS:
            del self._objects[next(iter(self._objects))]

    def take(self, view: type[T], raw: msgspec.Raw | memoryview) -> T | None:
        """The object of these bytes, if it is among them."""
        item: T | None = self._objects.get((view, bytes(raw))) if self._objects else None
        return item


class Reader:
    """Reads what a server lists and what it watches."""

    def __init__(self) -> None:
        self._complain = lru_cache(maxsize=_COMPLAINTS)(_complain)
        self.answered = Answered()
        """Of the clients of one process whose objects the same caches hold."""

    def items(self, view: type[T], kind: Kind, page: Page) -> Iterator[T]:
        """The objects of a page that the view can hold."""
        for raw in page.items:
            if (item := self.lenient(view, kind, raw)) is not None:
                yield item

    def event(
        self, view: type[T], kind: Kind, line: bytes
    ) -> WatchEvent[T] | Unreadable | Bookmark:
        """Raises Gone, and what the server says in the stream."""
        for change, (prefix, length) in _PREFIXES.items():
            if line.startswith(prefix):
                return self._change(view, kind, change, memoryview(line)[length:-1])
        try:
            told = _LINE_DECODER.decode(line)
            if told.type == "BOOKMARK":
                return Bookmark(_MARK_DECODER.decode(told.object).metadata.resource_version)
            if told.type == "ERROR":
                raise error_from_status(msgspec.json.decode(told.object), Gone.code)
        except UNREADABLE as error:
            raise Gone(f"a line of the watch of {kind.resource} cannot be read: {error}") from error
        return self._change(view, kind, told.type, told.object)

    def _change(
        self, view: type[T], kind: Kind, change: str, raw: msgspec.Raw | memoryview
    ) -> WatchEvent[T] | Unreadable:
        """What is deleted is known by its metadata alone: what else it was need not be readable."""
        item = self.answered.take(view, raw) or self.lenient(view, kind, raw)
        if item is not None:
            return WatchEvent(change, item)
        try:
            metadata = _NAMED_DECODER.decode(raw).metadata
        except UNREADABLE as error:
            raise Gone(f"it is not known what changed among {kind.resource}: {error}") from error
        key = Key(metadata.namespace, metadata.name)
        return Unreadable(change, key, metadata.uid, metadata.resource_version)

    def lenient(self, view: type[T], kind: Kind, raw: msgspec.Raw | memoryview) -> T | None:
        """One object, or None for one that the view cannot hold, which is said once."""
        try:
            return read(view, raw)
        except UNREADABLE as error:
            self._complain(kind.resource, _name_in(raw), str(error))
            return None


@cache
def decoder(view: type[Any]) -> "msgspec.json.Decoder[Any]":
    """The one decoder of a view: it is compiled when first asked for."""
    return msgspec.json.Decoder(view)


def page_of(body: bytes) -> Page:
    """Raises InternalError."""
    try:
        return _PAGE_DECODER.decode(body)
    except UNREADABLE as error:
        raise InternalError(f"the server's answer is no list: {error}") from error


def _name_in(raw: msgspec.Raw | memoryview) -> str:
    try:
        metadata = _NAMED_DECODER.decode(raw).metadata
    except UNREADABLE:
        return "?"
    return str(Key(metadata.namespace, metadata.name))


def _complain(resource: str, name: str, error: str) -> None:
    log.warning("object cannot be read and counts as gone", kind=resource, name=name, error=error)


def read(view: type[T], raw: bytes | msgspec.Raw | memoryview) -> T:
    """Raises one of UNREADABLE."""
    item: T = decoder(view).decode(raw)
    metadata: Any = getattr(item, "metadata", None)
    if isinstance(metadata, ObjectMeta):
        metadata.managed_fields = []
    elif hasattr(metadata, "managedFields"):
        metadata.managedFields = None
    return item


async def lines_of(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            if line:
                yield line
