"""How stored objects look to a client: in its version, and in the form that it accepts.

The bytes of an object are made once, when it is written.  A plain answer in the stored version is
made of exactly these bytes; another version of a kind replaces the prefix that names it.
"""

from collections.abc import Callable, Mapping, Sequence

from corral.api import table
from corral.api.encoding import encode
from corral.api.kind import Kind, Version
from corral.api.object import Document
from corral.server.accept import Form
from corral.server.call import Call
from corral.store import Record

Show = Callable[[Record], bytes]
"""What makes the bytes of one object for one call."""


def versioned(kind: Kind, version: Version) -> Show:
    """Plain bytes of a record in one version of its kind."""
    own = f"{kind.group}/{version.name}" if kind.group else version.name
    if version.write is not None:
        return lambda record: encode(as_version(record.document(), version, own))
    stored = f'{{"apiVersion":"{kind.api_version}",'.encode()
    if own == kind.api_version:
        return lambda record: record.data
    shown = f'{{"apiVersion":"{own}",'.encode()

    def swap(record: Record) -> bytes:
        if record.data.startswith(stored):
            return shown + record.data[len(stored) :]
        return encode(as_version(record.document(), version, own))

    return swap


def as_version(document: Document, version: Version, api_version: str) -> Document:
    """A stored document turned into one of its kind's versions, in place."""
    if version.write is not None:
        version.write(document)
    document["apiVersion"] = api_version
    return document


class Presenter:
    """The answers of one call, whichever form they have; ``now`` is seconds since 1970."""

    def __init__(self, call: Call, now: Callable[[], float]) -> None:
        self._call = call
        self._now = now
        self._form = call.form
        self._plain = versioned(call.kind, call.version)
        self._include = call.query.get("includeObject", "Metadata")
        self._columns_told = False

    def one(self, record: Record) -> bytes:
        """A single object."""
        if self._form is Form.PLAIN:
            return self._plain(record)
        if self._form is Form.METADATA:
            return encode(table.partial(record.document()))
        return encode(self._table([record], {"resourceVersion": str(record.revision)}))

    def shown(self, document: Document) -> bytes:
        """A single object that is not stored: the answer to a dry run."""
        document = as_version(document, self._call.version, self._call.api_version)
        if self._form is Form.METADATA:
            document = table.partial(document)
        return encode(document)

    @property
    def is_first(self) -> bool:
        """Whether the next frame is to tell the columns of a Table."""
        return self._form is Form.TABLE and not self._columns_told

    @property
    def variant(self) -> tuple[Form, str, int]:
        """What frames of one version differ in: form, what stands in rows, the second of ages."""
        if self._form is not Form.TABLE:
            return self._form, "", 0
        return self._form, self._include, int(self._now())

    def frame_object(self, record: Record) -> bytes:
        """A single object as a watch event holds it: of Tables only the first tells its columns."""
        if self._form is not Form.TABLE:
            return self.one(record)
        page = self._table([record], {"resourceVersion": str(record.revision)})
        if self._columns_told:
            page["columnDefinitions"] = []
        self._columns_told = True
        return encode(page)

    def many(self, records: Sequence[Record], metadata: Mapping[str, object]) -> bytes:
        """A list."""
        call = self._call
        if self._form is Form.TABLE:
            return encode(self._table(records, metadata))
        if self._form is Form.METADATA:
            documents = (record.document() for record in records)
            return encode(table.partial_list(documents, metadata=metadata))
        head = encode(
            {
                "kind": call.kind.list_name or f"{call.kind.name}List",
                "apiVersion": call.api_version,
                "metadata": dict(metadata),
            }
        )
        items_text = b",".join(map(self._plain, records))
        return b"".join((head[:-1], b',"items":[', items_text, b"]}"))

    def _table(self, records: Sequence[Record], metadata: Mapping[str, object]) -> Document:
        return table.table(
            self._call.kind,
            [record.document() for record in records],
            metadata=metadata,
            include=self._include,
            now=self._now(),
        )
