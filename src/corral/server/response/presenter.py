"""Encoding of stored objects for a client: in its version, and in the form that it accepts.

An object is encoded once, when it is written.  A plain response in the stored version reuses these
bytes; another version of the kind replaces the prefix with apiVersion and kind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from corral.aio import OBJECTS_PER_TURN, in_batches
from corral.api import table
from corral.api.encoding import encode
from corral.api.kind import Kind, Version
from corral.api.object import Document
from corral.server.request.accept import Form
from corral.server.request.call import Call
from corral.store import Record, split_kind

_LINE = b"]}\n"
"""The end of a list with a newline: appended before the list is joined, to avoid a copy."""
Encode = Callable[[Record], bytes]
"""Encodes one object for a call."""
EncodeMany = Callable[[Sequence[Record]], Iterable[bytes]]


def versioned(kind: Kind, version: Version) -> Encode:
    """Return an encoder of plain objects in a version of their kind."""
    own_version = _api_version(kind, version)
    if version.write is not None or version.spell is not None:
        return lambda record: encode(_spelled(record, version, own_version))
    if own_version == kind.api_version:
        return _data
    stored_head, own_head = _head(kind, kind.api_version), _head(kind, own_version)

    def swap(record: Record) -> bytes:
        if record.head == stored_head:
            return own_head + record.rest
        return encode(as_version(record.document(), version, own_version))

    return swap


_data: Encode = attrgetter("data")
_heads: Callable[[Record], bytes] = attrgetter("head")
_rest: Encode = attrgetter("rest")


def _api_version(kind: Kind, version: Version) -> str:
    return f"{kind.group}/{version.name}" if kind.group else version.name


def _head(kind: Kind, api_version: str) -> bytes:
    """Return the encoded apiVersion and kind with which the objects of a kind begin."""
    return f'{{"apiVersion":"{api_version}","kind":"{kind.name}",'.encode()


def _spelled(record: Record, version: Version, api_version: str) -> Document:
    """Return the document of a record as served in a version."""
    document = as_version(record.document(), version, api_version)
    if version.spell is not None:
        version.spell(document)
    return document


def as_version(document: Document, version: Version, api_version: str) -> Document:
    """Convert a stored document to a version of its kind, in place."""
    if version.write is not None:
        version.write(document)
    document["apiVersion"] = api_version
    return document


def listed(kind: Kind, version: Version) -> tuple[EncodeMany, bytes]:
    """Return an encoder of the items of a plain list, and the bytes before each item.

    Items of Kubernetes' own kinds have no apiVersion and kind, as in kube-apiserver's lists.
    """
    own_version, stored_head = _api_version(kind, version), {_head(kind, kind.api_version)}
    is_as_stored = version.write is None and version.spell is None

    def recode(record: Record) -> bytes:
        return split_kind(encode(_spelled(record, version, own_version)))[1]

    def encode_all(records: Sequence[Record]) -> Iterable[bytes]:
        if is_as_stored and stored_head.issuperset(map(_heads, records)):
            return map(_rest, records)
        return map(recode, records)

    return encode_all, b"{" if kind.native else _head(kind, own_version)


class Presenter:
    """Encodes the responses of one call, in any form; ``now`` is seconds since 1970."""

    def __init__(self, call: Call, now: Callable[[], float]) -> None:
        self._call = call
        self._now = now
        self._form, self._version = call.form, call.form_version
        self._plain = versioned(call.kind, call.version)
        self._include = call.query.get("includeObject", "Metadata")
        self._columns_sent = False
        if self._form is Form.TABLE:
            table.check_include(self._include)

    def one(self, record: Record) -> bytes:
        """Encode a single object."""
        if self._form is Form.PLAIN:
            return self._plain(record)
        if self._form is Form.METADATA:
            return self._partial(record)
        return self._page(record)

    def dry_run_result(self, document: Document) -> bytes:
        """Encode a document that is not stored: the result of a dry run."""
        version = self._call.version
        document = as_version(document, version, self._call.api_version)
        if version.spell is not None:
            version.spell(document)
        if self._form is Form.METADATA:
            document = table.partial(document["metadata"], self._version)
        return encode(document)

    @property
    def is_first(self) -> bool:
        """True if the next watch event has the column definitions of a Table."""
        return self._form is Form.TABLE and not self._columns_sent

    @property
    def variant(self) -> tuple[Form, str, int]:
        """The key of watch events besides the version: form, includeObject, second of ages.

        The form's version is part of the second element.
        """
        if self._form is Form.PLAIN:
            return self._form, "", 0
        if self._form is Form.METADATA:
            return self._form, self._version, 0
        return self._form, f"{self._version} {self._include}", int(self._now())

    def frame_object(self, record: Record) -> bytes:
        """Encode an object for a watch event; only the first Table has column definitions."""
        if self._form is not Form.TABLE:
            return self.one(record)
        page = self._page(record)
        self._columns_sent = True
        return page

    async def many(self, records: Sequence[Record], metadata: Mapping[str, object]) -> bytes:
        """Encode a list; yields to the event loop between chunks."""
        if self._form is Form.TABLE:
            response_head = encode(
                table.table(self._call.kind, metadata=metadata, version=self._version)
            )
            return _joined(
                response_head,
                b"rows",
                await _encode_in_turns(partial(map, self._row), records),
                end=_LINE,
            )
        if self._form is Form.METADATA:
            response_head = encode(table.partial_list(metadata=metadata, version=self._version))
            if not records:  # kube-apiserver's empty list of this form
                return response_head[:-1] + b',"items":null}'
            return _joined(
                response_head,
                b"items",
                await _encode_in_turns(partial(map, self._partial), records),
                end=_LINE,
            )
        kind, version = self._call.kind, self._call.api_version
        name = kind.list_name or f"{kind.name}List"
        response_head = encode({"kind": name, "apiVersion": version, "metadata": dict(metadata)})
        encode_all, head = listed(kind, self._call.version)
        items = await _encode_in_turns(encode_all, records)
        return _joined(response_head, b"items", items, end=_LINE, head=head)

    def _page(self, record: Record) -> bytes:
        """Encode a Table with one row."""
        metadata = {"resourceVersion": str(record.revision)}
        page = table.table(self._call.kind, metadata=metadata, version=self._version)
        if self._columns_sent:
            page["columnDefinitions"] = None
        return _joined(encode(page), b"rows", [self._row(record)])

    def _row(self, record: Record) -> bytes:
        """Encode a row of a Table; its cells are computed once per version of the object."""
        kind = self._call.kind
        if record.cells is None or record.cells[0] is not kind:
            record.cells = (kind, table.cells(kind, record.document()))
        cells = msgspec.json.encode(table.printed(record.cells[1], self._now()))
        return b'{"cells":%b,"object":%b}' % (cells, self._row_object(record))

    def _row_object(self, record: Record) -> bytes:
        if self._include == "None":
            return b"null"
        return self._plain(record) if self._include == "Object" else self._partial(record)

    def _partial(self, record: Record) -> bytes:
        return encode(table.partial(msgspec.Raw(record.metadata()), self._version))


def _joined(
    response_head: bytes,
    field: bytes,
    items: Sequence[bytes],
    *,
    end: bytes = b"]}",
    head: bytes = b"",
) -> bytes:
    """Return an encoded object with a list appended as a field; items are copied only once.

    ``head`` stands before each item.
    """
    start = b'%b,"%b":[' % (response_head[:-1], field)
    if not items:
        return start + end
    parts = [b"".join((start, head, items[0])), *items[1:]]
    parts[-1] = b"".join((parts[-1], end))
    return (b"," + head).join(parts)


async def _encode_in_turns(encode_all: EncodeMany, records: Sequence[Record]) -> list[bytes]:
    """Encode all records, yielding to the event loop between chunks."""
    encoded: list[bytes] = []
    async for chunk in in_batches(records, OBJECTS_PER_TURN):
        encoded += encode_all(chunk)
    return encoded
