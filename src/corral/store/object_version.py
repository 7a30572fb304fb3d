"""One version of one object, and the step from one version to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any, Final, Self

import msgspec

from corral.api.errors import TooLarge
from corral.api.object import Document, Key

LARGEST_BYTES: Final = 3 << 19
"""Of an encoded object, as etcd keeps them.  What every write and every watcher pays for grows with
it."""

_decode = msgspec.json.Decoder(Document).decode


class _Whole(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_decode_metadata = msgspec.json.Decoder(_Whole).decode


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Labels = msgspec.field(default_factory=_Labels)


_decode_labels = msgspec.json.Decoder(_Labelled).decode
NO_LABELS: Mapping[str, str] = {}
_METADATA: Final = b'"metadata":'
"""It stands in no text of JSON, whose quotes are marked there."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Record:
    """An object as it was at one revision.

    ``kind`` is the kind's resource name, ``opening`` and ``rest`` the encoded document, as
    ``parts`` parts it: every answer and every watcher shares these bytes.  ``written`` is seconds
    since 1970.
    """

    kind: str
    key: Key
    revision: int
    written: int
    opening: bytes
    rest: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str] | None = field(default=None, repr=False)
    """What field selectors look at, once somebody asked: readers may keep their findings here."""

    cells: tuple[object, tuple[Any, ...]] | None = field(default=None, repr=False)
    """What a row of a Table shows, and the kind by which: readers keep it here, likewise."""

    @classmethod
    def of(
        cls, kind: str, key: Key, revision: int, written: int, data: bytes, *,
        labels: Mapping[str, str],
    ) -> Self:  # fmt: skip
        """The version of which ``data`` are the bytes."""
        return cls(intern(kind), key, revision, written, *parts(data), labels)

    @property
    def data(self) -> bytes:
        """The encoded document, put together."""
        return self.opening + self.rest

    @property
    def size(self) -> int:
        """How many bytes the encoded document has."""
        return len(self.opening) + len(self.rest)

    def metadata(self) -> bytes:
        """The encoded metadata."""
        return bytes(_decode_metadata(self.data).metadata)

    def document(self) -> Document:
        """A copy of the object that the caller may change."""
        return _decode(self.data)


def require_size(data: bytes, metadata: Document, before: Record | None) -> None:
    """Raises TooLarge for an object that may not be kept.

    One that was even larger before may be, and one may always be marked as about to be deleted.
    """
    if len(data) <= LARGEST_BYTES:
        return
    if before is not None:
        is_marked = "deletionTimestamp" in metadata
        if len(data) <= before.size or (is_marked and not _is_marked(before)):
            return
    raise TooLarge(
        f"Request entity too large: limit is {LARGEST_BYTES} bytes for an object as it is stored, "
        f"and this one would have {len(data)}"
    )


def may_be_marked(record: Record) -> bool:
    """Whether it may be about to be deleted, without a look at more than its bytes."""
    return b'"deletionTimestamp"' in record.rest


def _is_marked(record: Record) -> bool:
    return may_be_marked(record) and "deletionTimestamp" in record.document()["metadata"]


def parts(data: bytes) -> tuple[bytes, bytes]:
    """An encoded document in two: what tells its kind, and the rest, from its metadata on.

    The first is the same for all objects of a kind, so it is held once, and lists that tell it
    otherwise, or not at all, take the rest as it is.  No room is left behind the rest, which the
    encoder's bytes have: up to half as much.
    """
    end = max(data.find(_METADATA), 0)
    return _shared(data[:end]), data[end:] if end else bytes(memoryview(data))


@lru_cache(maxsize=1024)
def _shared(opening: bytes) -> bytes:
    return opening


def key_of(namespace: str, name: str) -> Key:
    """A key for a record: the objects of a namespace have one copy of its name."""
    return Key(intern(namespace), name)


def labels_of(data: bytes) -> Mapping[str, str]:
    return _decode_labels(data).metadata.labels or NO_LABELS


@dataclass(slots=True, eq=False)
class Event:
    """A change: ``record`` is the new version, or the last words of an object that was deleted."""

    record: Record
    previous: Record | None
    deleted: bool = False

    @property
    def revision(self) -> int:
        return self.record.revision
