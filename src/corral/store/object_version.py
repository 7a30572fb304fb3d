"""One version of one object, and the step from one version to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any, Final, Self

import msgspec

from corral.api.errors import TooLarge
from corral.api.object import Document, Key
from corral.store.packing import Packed, pack

MAX_OBJECT_BYTES: Final = 3 << 19
"""Largest encoded object, etcd's default.  The cost of every write and watch event grows with
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
"""Occurs in no JSON string, where quotes are escaped."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Record:
    """An object at one revision.

    ``kind`` is the kind's resource name, ``head`` and ``rest`` are the encoded document, divided by
    ``split_kind``: all responses and watch events share these bytes until the version is packed.
    ``size`` is their number, ``written`` is seconds since 1970.
    """

    kind: str
    key: Key
    revision: int
    written: int
    head: bytes
    _rest: bytes | Packed = field(repr=False)
    size: int
    labels: Mapping[str, str]
    fields: Mapping[str, str] | None = field(default=None, repr=False)
    """Cache of the fields that field selectors read; filled by readers."""

    cells: tuple[object, tuple[Any, ...]] | None = field(default=None, repr=False)
    """Cache of the cells of a Table row, with the kind that defines them; filled by readers."""

    @classmethod
    def of(
        cls, kind: str, key: Key, revision: int, written: int, data: bytes, *,
        labels: Mapping[str, str],
    ) -> Self:  # fmt: skip
        """Return the version whose encoded document is ``data``."""
        return cls(intern(kind), key, revision, written, *split_kind(data), len(data), labels)

    @property
    def rest(self) -> bytes:
        """The encoded document without its head."""
        rest = self._rest  # read once: threads encode versions, too
        return rest if isinstance(rest, bytes) else rest.unpack()

    @property
    def data(self) -> bytes:
        """The encoded document, joined."""
        return self.head + self.rest

    def pack(self, sample: bytes) -> None:
        """Compress the document in memory, for a version that is read seldom from now on."""
        if isinstance(self._rest, bytes):
            self._rest = pack(self._rest, sample) or self._rest

    def metadata(self) -> bytes:
        """Return the encoded metadata."""
        return bytes(_decode_metadata(self.data).metadata)

    def document(self) -> Document:
        """Return a decoded copy of the object, which the caller may modify."""
        return _decode(self.data)


def require_size(data: bytes, metadata: Document, before: Record | None) -> None:
    """Check the size of an object to be stored.  Raises TooLarge.

    An object may shrink while it is too large, and a deletionTimestamp may always be added.
    """
    if len(data) <= MAX_OBJECT_BYTES:
        return
    if before is not None:
        is_deleting = "deletionTimestamp" in metadata
        if len(data) <= before.size or (is_deleting and not _is_deleting(before)):
            return
    raise TooLarge(
        f"Request entity too large: limit is {MAX_OBJECT_BYTES} bytes "
        f"for an object as it is stored, and this one would have {len(data)}"
    )


def may_be_deleting(record: Record) -> bool:
    """Return whether it may have a deletionTimestamp: a search in its bytes, without decoding."""
    return b'"deletionTimestamp"' in record.rest


def _is_deleting(record: Record) -> bool:
    return may_be_deleting(record) and "deletionTimestamp" in record.document()["metadata"]


def split_kind(data: bytes) -> tuple[bytes, bytes]:
    """Divide an encoded document into its apiVersion and kind, and the rest from its metadata on.

    The first part is equal for all objects of a kind, so one copy is kept, and lists in another
    version, or without it, reuse the rest.  The rest is copied to its exact size: the encoder's
    buffer is up to half as large again.
    """
    end = max(data.find(_METADATA), 0)
    return _interned(data[:end]), data[end:] if end else bytes(memoryview(data))


@lru_cache(maxsize=1024)
def _interned(head: bytes) -> bytes:
    return head


def key_of(namespace: str, name: str) -> Key:
    """Return a key with an interned namespace: one copy for all its objects."""
    return Key(intern(namespace), name)


def labels_of(data: bytes) -> Mapping[str, str]:
    return _decode_labels(data).metadata.labels or NO_LABELS


@dataclass(slots=True, eq=False)
class Event:
    """A change: ``record`` is the new version, or the final state of a deleted object."""

    record: Record
    previous: Record | None
    deleted: bool = False

    @property
    def revision(self) -> int:
        return self.record.revision
