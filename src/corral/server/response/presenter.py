"""How stored objects look to a client: in its version, and in the form that it accepts.

The bytes of an object are made once, when it is written.  A plain answer in the stored version is
made of exactly these bytes; another version of a kind replaces the prefix that names it.
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
"""The end of a list, and of its line: it is put there before the list is as large as it gets."""
Show = Callable[[Record], bytes]
"""What makes the bytes of one object for one call."""
ShowMany = Callable[[Sequence[Record]], Iterable[bytes]]


def versioned(kind: Kind, version: Version) -> Show:
    """Plain bytes of a record in one version of its kind."""
    own = _api_version(kind, version)
    if version.write is not None or version.spell is not None:
        return lambda record: encode(_spelled(record, version, own))
    if own == kind.api_version:
        return _data
    stored, shown = _opening(kind, kind.api_version), _opening(kind, own)

    def swap(record: Record) -> bytes:
        if record.head == stored:
            return shown + record.rest
        return encode(as_version(record.document(), version, own))

    return swap


_data: Show = attrgetter("data")
_openings: Callable[[Record], bytes] = attrgetter("head")
_rest: Show = attrgetter("rest")


def _api_version(kind: Kind, version: Version) -> str:
    return f"{kind.group}/{version.name}" if kind.group else version.name


def _opening(kind: Kind, api_version: str) -> bytes:
    """How the bytes of an object of a kind begin, before its metadata."""
    return f'{{"apiVersion":"{api_version}","kind":"{kind.name}",'.encode()


def _spelled(record: Record, version: Version, api_version: str) -> Document:
    """The document of a record as it is shown in a version."""
    document = as_version(record.document(), version, api_version)
    if version.spell is not None:
        version.spell(document)
    return document


def as_version(document: Document, version: Version, api_version: str) -> Document:
    """A stored document turned into one of its kind's versions, in place."""
    if version.write is not None:
        version.write(document)
    document["apiVersion"] = api_version
    return document


def listed(kind: Kind, version: Version) -> tuple[ShowMany, bytes]:
    """What shows records in a plain list, and how each item begins before that.

    Items of Kubernetes' own kinds do not say what they are, as the list does: Go's types know it.
    """
    own, usual = _api_version(kind, version), {_opening(kind, kind.api_version)}
    is_as_stored = version.write is None and version.spell is None

    def anew(record: Record) -> bytes:
        return split_kind(encode(_spelled(record, version, own)))[1]

    def show(records: Sequence[Record]) -> Iterable[bytes]:
        if is_as_stored and usual.issuperset(map(_openings, records)):
            return map(_rest, records)
        return map(anew, records)

    return show, b"{" if kind.native else _opening(kind, own)


class Presenter:
    """The answers of one call, whichever form they have; ``now`` is seconds since 1970."""

    def __init__(self, call: Call, now: Callable[[], float]) -> None:
        self._call = call
        self._now = now
        self._form, self._version = call.form, call.form_version
        self._plain = versioned(call.kind, call.version)
        self._include = call.query.get("includeObject", "Metadata")
        self._columns_told = False
        if self._form is Form.TABLE:
            table.check_include(self._include)

    def one(self, record: Record) -> bytes:
        """A single object."""
        if self._form is Form.PLAIN:
            return self._plain(record)
        if self._form is Form.METADATA:
            return self._partial(record)
        return self._page(record)

    def shown(self, document: Document) -> bytes:
        """A single object that is not stored: the answer to a dry run."""
        version = self._call.version
        document = as_version(document, version, self._call.api_version)
        if version.spell is not None:
            version.spell(document)
        if self._form is Form.METADATA:
            document = table.partial(document["metadata"], self._version)
        return encode(document)

    @property
    def is_first(self) -> bool:
        """Whether the next frame is to tell the columns of a Table."""
        return self._form is Form.TABLE and not self._columns_told

    @property
    def variant(self) -> tuple[Form, str, int]:
        """What frames of one version differ in: form, what stands in rows, the second of ages.

        The form's version is told with what stands in rows.
        """
        if self._form is Form.PLAIN:
            return self._form, "", 0
        if self._form is Form.METADATA:
            return self._form, self._version, 0
        return self._form, f"{self._version} {self._include}", int(self._now())

    def frame_object(self, record: Record) -> bytes:
        """A single object as a watch event holds it: of Tables only the first tells its columns."""
        if self._form is not Form.TABLE:
            return self.one(record)
        page = self._page(record)
        self._columns_told = True
        return page

    async def many(self, records: Sequence[Record], metadata: Mapping[str, object]) -> bytes:
        """A list; while a long one is made, others have their turn."""
        if self._form is Form.TABLE:
            head = encode(table.table(self._call.kind, metadata=metadata, version=self._version))
            return _joined(head, b"rows", await _each(partial(map, self._row), records), end=_LINE)
        if self._form is Form.METADATA:
            head = encode(table.partial_list(metadata=metadata, version=self._version))
            if not records:  # the real server's empty list of this form
                return head[:-1] + b',"items":null}'
            return _joined(
                head, b"items", await _each(partial(map, self._partial), records), end=_LINE
            )
        kind, version = self._call.kind, self._call.api_version
        name = kind.list_name or f"{kind.name}List"
        head = encode({"kind": name, "apiVersion": version, "metadata": dict(metadata)})
        show, opening = listed(kind, self._call.version)
        items = await _each(show, records)
        return _joined(head, b"items", items, end=_LINE, opening=opening)

    def _page(self, record: Record) -> bytes:
        """A Table of one object; of those of a watch only the first tells its columns."""
        metadata = {"resourceVersion": str(record.revision)}
        page = table.table(self._call.kind, metadata=metadata, version=self._version)
        if self._columns_told:
            page["columnDefinitions"] = None
        return _joined(encode(page), b"rows", [self._row(record)])

    def _row(self, record: Record) -> bytes:
        """A row of a Table; what stands in its cells is worked out once for each version."""
        kind = self._call.kind
        if record.cells is None or record.cells[0] is not kind:
            record.cells = (kind, table.cells(kind, record.document()))
        cells = msgspec.json.encode(table.printed(record.cells[1], self._now()))
        return b'{"cells":%b,"object":%b}' % (cells, self._beside(record))

    def _beside(self, record: Record) -> bytes:
        if self._include == "None":
            return b"null"
        return self._plain(record) if self._include == "Object" else self._partial(record)

    def _partial(self, record: Record) -> bytes:
        return encode(table.partial(msgspec.Raw(record.metadata()), self._version))


def _joined(
    head: bytes,
    field: bytes,
    items: Sequence[bytes],
    *,
    end: bytes = b"]}",
    opening: bytes = b"",
) -> bytes:
    """An encoded object with one field more: a list.  What may be large is copied once.

    ``opening`` stands before each item.
    """
    begun = b'%b,"%b":[' % (head[:-1], field)
    if not items:
        return begun + end
    pieces = [b"".join((begun, opening, items[0])), *items[1:]]
    pieces[-1] = b"".join((pieces[-1], end))
    return (b"," + opening).join(pieces)


async def _each(show: ShowMany, records: Sequence[Record]) -> list[bytes]:
    """All records shown."""
    shown: list[bytes] = []
    async for some in in_batches(records, OBJECTS_PER_TURN):
        shown += show(some)
    return shown
