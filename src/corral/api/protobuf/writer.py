"""Encodes documents as protobuf, byte for byte as a real API server does.

Fields are in the order of their numbers, entries of maps in that of their keys.  Fields that are no
pointers in Go are written if they are zero, too.
"""

import base64
import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Final

import msgspec

from corral.api.object import Document
from corral.api.protobuf.messages import Field, kind_message, message
from corral.api.protobuf.reader import MAGIC
from corral.api.protobuf.wire import BYTES, FIXED_64, VARINT, block, number, tag, unsigned
from corral.api.time import parse_rfc3339

Write = Callable[[Any], bytes]
"""Encodes one value, with its length if it is length-delimited."""
_ENDING: Final = b"\x1a\x00\x22\x00"
"""The end of runtime.Unknown: empty contentEncoding and contentType."""
_ITEMS: Final = 2
_LENGTHS: Final = tuple(unsigned(length) for length in range(1 << 10))


class UnwritableError(ValueError):
    """A document whose kind has no message, or that does not fit it."""


def encode(document: Document) -> bytes:
    """Encode a document as ``application/vnd.kubernetes.protobuf``.  Raises UnwritableError."""
    name, head = _head(document)
    return wrapped(head, content(name, document))


def content(name: str, document: Document) -> bytes:
    """Encode a document as a message, without its wrapper.  Raises UnwritableError."""
    try:
        return _message(name)(document)
    except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise UnwritableError(f"{name} cannot be written: {error}") from None


def list_item(name: str, document: Document) -> bytes:
    """Encode an item of a list.  Raises UnwritableError."""
    return block(_ITEMS, content(name, document))


def begin_list(document: Document) -> tuple[str, bytes, bytes]:
    """Return the message of a list's items, and the begin of its wrapper and of the list itself.

    Raises UnwritableError.
    """
    name, head = _head(document)
    items = next((field for field in message(name).fields.values() if field.number == _ITEMS), None)
    if items is None or items.name != "items" or not items.is_message:
        raise UnwritableError(f"{name} is no list")
    return items.type, head, content(name, {"metadata": document.get("metadata")})


def wrapped(head: bytes, inner: bytes) -> bytes:
    """Return a body: the begin of its wrapper, and the object."""
    return b"".join((MAGIC, head, block(2, inner), _ENDING))


def frame(kind: str, inner: bytes) -> bytes:
    """Return a length-delimited watch event; ``inner`` is a body."""
    event = block(1, kind.encode()) + block(2, block(1, inner))
    return len(event).to_bytes(4) + event


def _head(document: Document) -> tuple[str, bytes]:
    kind = document.get("kind", "")
    api_version = document.get("apiVersion") or "v1"  # APIVersions has none in JSON
    name = kind_message(api_version, kind)
    if name is None:
        raise UnwritableError(f"{kind} in version {api_version} has no form in protobuf")
    return name, block(1, block(1, api_version.encode()) + block(2, kind.encode()))


@cache
def _message(name: str) -> Write:
    """Return the encoder of a message, without its length."""
    union = _UNIONS.get(name)
    steps = [_step(field) for field in message(name).fields.values()]

    def write(document: Any) -> bytes:
        if union is not None:
            document = union(document)
        if document.__class__ is not dict:
            raise TypeError(f"{document!r:.50} is no object")
        get = document.get
        return b"".join(
            [absent if (value := get(key)) is None else put(value) for key, absent, put in steps]
        )

    def write_inlined(document: Any) -> bytes:
        if document.__class__ is not dict:
            raise TypeError(f"{document!r:.50} is no object")
        found = [document.get(key) if key else document for key, _, _ in steps]
        return b"".join(
            [
                absent if value is None else put(value)
                for value, (_, absent, put) in zip(found, steps, strict=True)
            ]
        )

    return write if all(key for key, _, _ in steps) else write_inlined


def _step(field: Field) -> tuple[str, bytes, Write]:
    """Return the name of a field, the bytes written if it is absent, and its encoder."""
    if field.shape == "{}":
        return field.name, b"", _map(field)
    put = _field(field.number, field.type)
    if field.shape == "[]":
        return field.name, b"", lambda values: b"".join(map(put, values))
    absent = b"" if field.is_pointer or field.inlined else _absent(field)
    return "" if field.inlined else field.name, absent, put


def _absent(field: Field) -> bytes:
    """Return the zero value of a field that is no pointer, which is written if it is absent."""
    if field.is_message:
        return _field(field.number, field.type)({})
    zero = _ZEROS.get(field.type)
    return b"" if zero is None else tag(field.number, _wire(field.type)) + zero


def _map(field: Field) -> Write:
    key, value = _field(1, "s"), _field(2, field.type)
    put = _prefixed(tag(field.number, BYTES))

    def write(entries: Mapping[str, Any]) -> bytes:
        ordered = sorted(entries.items(), key=itemgetter(0))
        return b"".join([put(key(name) + value(each)) for name, each in ordered])

    return write


@cache
def _field(at: int, type_name: str) -> Write:
    """Return the encoder of a field: its tag and its value."""
    head = tag(at, _wire(type_name))
    if type_name in _SCALARS:
        plain = _SCALARS[type_name]
        return lambda value: head + plain(value)
    put = _prefixed(head)
    if type_name in _WRITERS:
        inner = _WRITERS[type_name]
        return lambda value: put(inner(value))
    encoders: list[Write] = []

    def write(value: Any) -> bytes:  # built on the first call, because messages may be recursive
        if not encoders:
            encoders.append(_message(type_name))
        return put(encoders[0](value))

    return write


def _prefixed(head: bytes) -> Callable[[bytes], bytes]:
    """Return a function that puts a tag and the length before a value."""
    short = tuple(head + length for length in _LENGTHS[:128])

    def put(inner: bytes) -> bytes:
        size = len(inner)
        if size < 128:
            return short[size] + inner
        return head + (_LENGTHS[size] if size < len(_LENGTHS) else unsigned(size)) + inner

    return put


def _wire(type_name: str) -> int:
    return VARINT if type_name in ("b", "i", "l") else FIXED_64 if type_name == "d" else BYTES


def _number(value: Any) -> bytes:
    if value.__class__ is int and 0 <= value < 128:
        return _LENGTHS[value]
    if value != int(value):
        raise ValueError(f"{value} is no whole number")
    return unsigned(int(value) % 2**64)


def _bool(value: Any) -> bytes:
    if value.__class__ is not bool:
        raise TypeError(f"{value!r:.50} is not true or false")
    return b"\x01" if value else b"\x00"


def _text(value: Any) -> bytes:
    return bytes(value.encode(errors="replace"))


def _time(value: str) -> bytes:
    return b"" if not value else _moment(value)[0]


def _micro_time(value: str) -> bytes:
    return b"" if not value else _moment(value)[1]


@lru_cache(maxsize=256)
def _moment(text: str) -> tuple[bytes, bytes]:
    """Encode a moment as Time, of whole seconds, and as MicroTime."""
    moment = parse_rfc3339(text)
    seconds = number(1, int(moment.replace(microsecond=0).timestamp()))
    return seconds + number(2, 0), seconds + number(2, moment.microsecond * 1000)


def _quantity(value: Any) -> bytes:
    return block(1, str(value).encode())


def _int_or_text(value: Any) -> bytes:
    if isinstance(value, str):
        return number(1, 1) + number(2, 0) + block(3, value.encode())
    return number(1, 0) + number(2, int(value)) + block(3, b"")


def _json(value: Any) -> bytes:
    return block(1, msgspec.json.encode(value))


def _strings(values: Any) -> bytes:
    return b"".join(block(1, each.encode()) for each in values)


def _schemas(value: Any) -> Document:
    return {"jSONSchemas": value} if isinstance(value, list) else {"schema": value}


def _schema_or_bool(value: Any) -> Document:
    return {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": value}


def _schema_or_strings(value: Any) -> Document:
    return {"property": value} if isinstance(value, list) else {"schema": value}


_SCALARS: Final[Mapping[str, Write]] = {
    "b": _bool,
    "i": _number,
    "l": _number,
    "d": lambda value: struct.pack("<d", value),
}
_WRITERS: Final[Mapping[str, Write]] = {
    "s": _text,
    "y": lambda value: base64.b64decode(value, validate=True),
    "t": _time,
    "u": _micro_time,
    "q": _quantity,
    "x": _int_or_text,
    "j": _json,
    "w": _strings,
}
_ZEROS: Final[Mapping[str, bytes]] = {
    **dict.fromkeys("sbiltu", b"\x00"),
    "d": bytes(8),
    "q": b"\x03\n\x010",
    "x": b"\x06\x08\x00\x10\x00\x1a\x00",
    "j": b"\x00",
}
"""The encoding of zero values; strings and bytes are not written."""
_UNIONS: Final[Mapping[str, Callable[[Any], Document]]] = {
    f"apiextensions.v1.JSONSchemaPropsOr{each}": read
    for each, read in (
        ("Array", _schemas),
        ("Bool", _schema_or_bool),
        ("StringArray", _schema_or_strings),
    )
}
