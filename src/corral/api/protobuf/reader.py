"""Decodes a protobuf body into the document that the same client would have sent as JSON.

Most fields are no pointers in Go, so unset and zero are the same on the wire: zero values are left
out, as ``omitempty`` does in JSON, unless the table says otherwise.  Unknown fields are ignored, as
every protobuf reader does.
"""

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from corral.api.encoding import (
    DEEPEST,
    MAX_VALUES,
    decode_any,
    summary,
    too_deep,
    too_many,
    values_at_most,
)
from corral.api.errors import BadRequest
from corral.api.object import Document
from corral.api.protobuf.messages import Field, Message, kind_message, message
from corral.api.protobuf.wire import BYTES, FIXED_64, VARINT, Part, parts, signed, varint
from corral.api.time import rfc3339, rfc3339_micro

MAGIC: Final = b"k8s\0"
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_YEARS: Final = range(-62135596800, 253402300800)  # the seconds of 1 to 9999
_INT_32: Final = 1 << 32
_PREFIX: Final = (
    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
)
_WIRE_TYPES: Final = {"b": VARINT, "i": VARINT, "l": VARINT, "d": FIXED_64}


def decode(body: bytes, expected: str = "") -> Document:
    """Decode a body of ``application/vnd.kubernetes.protobuf``.

    ``expected`` is the kind that it should have, for messages.  Raises BadRequest for an invalid
    body, an unknown kind and too deep nesting, and TooLarge for more than ``MAX_VALUES`` fields.
    """
    reader = _Reader()
    try:
        document = reader.unwrapped(body)
    except (ValueError, OverflowError) as error:
        raise _refused(body, expected, reader, _message_of(error)) from None
    if too_deep(document):
        raise _refused(body, expected, reader, f"exceeded max depth of {DEEPEST}")
    return document


def _refused(body: bytes, expected: str, reader: "_Reader", reason: str) -> BadRequest:
    if reader.kind:
        version = reader.api_version.rpartition("/")[2]
        prefix = f'{reader.kind} in version "{version}" cannot be handled as a'
        return BadRequest(f"{prefix} {expected or reader.kind}: {reason}")
    must = f" (must be of type {expected})" if expected else ""
    return BadRequest(f"the object provided is unrecognized{must}: {reason} ({summary(body)})")


def _message_of(error: Exception) -> str:
    return "string field contains invalid UTF-8" if isinstance(error, UnicodeError) else str(error)


class _Reader:
    """Reads one body, and counts its fields, because a field may take only two bytes.

    api_version, kind: of the object, once they are read.
    """

    def __init__(self) -> None:
        self.fields_left = MAX_VALUES
        self.depth = 0
        self.api_version = self.kind = ""

    def parts(self, content: bytes, name: str) -> Iterator[Part]:
        """Yield the fields of a message.  Raises ValueError and TooLarge."""
        for part in parts(content, name):
            self.count()
            yield part

    def count(self, values: int = 1) -> None:
        self.fields_left -= values
        if self.fields_left < 0:
            raise too_many()

    def unwrapped(self, body: bytes) -> Document:
        """Read runtime.Unknown, and the object that it wraps."""
        if not body.startswith(MAGIC):
            raise ValueError(_PREFIX)
        if len(body) == len(MAGIC):
            raise ValueError("empty body")
        wrapper = self.entry(body[len(MAGIC) :], "Unknown")
        named = self.entry(wrapper.get(1, b""), "TypeMeta")
        api_version, kind = _text(named.get(1, b"")), _text(named.get(2, b""))
        if not kind:
            raise ValueError("Object 'Kind' is missing in the body")
        if not api_version:
            raise ValueError("Object 'apiVersion' is missing in the body")
        self.api_version, self.kind = api_version, kind
        name = kind_message(api_version, kind)
        if name is None:
            raise ValueError(f'no kind "{kind}" is registered for version "{api_version}"')
        if wrapper.get(3) or _text(wrapper.get(4, b"")) not in ("", MEDIA_TYPE):
            raise ValueError("encoded or compressed contents are not read")
        document: Document = {"apiVersion": api_version, "kind": kind}
        return self.message(_bytes(wrapper.get(2, b"")), message(name), document)

    def entry(self, content: int | bytes, name: str) -> Mapping[int, int | bytes]:
        """Read a small message; the last of repeated fields counts."""
        return {number: raw for number, _, raw in self.parts(_bytes(content), name)}

    def message(self, content: bytes, layout: Message, document: Document) -> Document:
        """Read a message into a document, which may have earlier fields of the same message."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"exceeded max depth of {DEEPEST}")
        fields = layout.fields
        for number, wire, raw in parts(content, layout.name):
            self.fields_left -= 1
            if self.fields_left < 0:
                raise too_many()
            field = fields.get(number)
            if field is not None:
                self.field(field, wire, raw, document)
        self.depth -= 1
        return document

    def field(self, field: Field, wire: int, raw: int | bytes, document: Document) -> None:
        type_name, name = field.type, field.name
        if field.shape == "[]":
            document.setdefault(name, []).extend(self.items(field, wire, raw))
            return
        if wire != _WIRE_TYPES.get(type_name, BYTES) or (field.shape == "{}" and wire != BYTES):
            raise _misplaced(field, wire)
        if field.shape == "{}":
            key, value = self.pair(field, raw)
            document.setdefault(name, {})[key] = value
        elif field.inlined:
            self.message(_bytes(raw), message(type_name), document)
        elif field.is_message and isinstance(earlier := document.get(name), dict):
            document[name] = self.value(type_name, raw, earlier)
        else:
            value = self.value(type_name, raw)
            if value is not None and (value or field.keeps_zero):
                document[name] = value
            elif name in document:
                del document[name]

    def items(self, field: Field, wire: int, raw: int | bytes) -> list[Any]:
        """Read one item, or several packed numbers."""
        if wire != BYTES or field.type not in _WIRE_TYPES or not isinstance(raw, bytes):
            if wire != _WIRE_TYPES.get(field.type, BYTES):
                raise _misplaced(field, wire)
            return [self.value(field.type, raw)]
        numbers, at = [], 0
        while at < len(raw):
            self.count()
            number, at = varint(raw, at)
            numbers.append(self.value(field.type, number))
        return numbers

    def pair(self, field: Field, raw: int | bytes) -> tuple[str, Any]:
        entry = self.entry(raw, field.name)
        empty = 0 if field.type in _WIRE_TYPES else b""
        return _text(entry.get(1, b"")), self.value(field.type, entry.get(2, empty))

    def value(self, type_name: str, raw: int | bytes, earlier: Document | None = None) -> Any:
        """Read a value of a type of the table; None for a time that is not set."""
        simple = _SIMPLE.get(type_name)
        if simple is not None:
            return simple(raw)
        if type_name in _WRAPPED:
            return _WRAPPED[type_name](self, self.entry(raw, type_name))
        if type_name == "w":
            return [_text(text) for _, _, text in self.parts(_bytes(raw), "items")]
        value = self.message(_bytes(raw), message(type_name), {} if earlier is None else earlier)
        union = _UNIONS.get(type_name)
        return value if union is None else union(value)

    def json(self, entry: Mapping[int, int | bytes]) -> Any:
        raw = _bytes(entry.get(1, b""))
        self.count(values_at_most(raw))
        try:
            return decode_any(raw) if raw else None
        except BadRequest as error:
            raise ValueError(error.message) from None


def _misplaced(field: Field, wire: int) -> ValueError:
    name = field.name[:1].upper() + field.name[1:]
    return ValueError(f"proto: wrong wireType = {wire} for field {name}")


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("proto: wrong wireType = 0")  # noqa: TRY004 (input)
    return raw


def _number(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise ValueError("proto: wrong wireType = 2")  # noqa: TRY004 (input)
    return raw


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()


def _int_32(raw: int | bytes) -> int:
    """Return the low half of a number, as Go does."""
    low = _number(raw) % _INT_32
    return low - _INT_32 if low >= _INT_32 // 2 else low


def _double(raw: int | bytes) -> float:
    (value,) = struct.unpack("<d", _bytes(raw).ljust(8, b"\0")[:8])
    if not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {value}")
    return int(value) if value.is_integer() else value


def _base64(raw: int | bytes) -> str:
    return base64.b64encode(_bytes(raw)).decode()


def _time(_reader: _Reader, entry: Mapping[int, int | bytes]) -> str | None:
    moment = _moment(entry)
    return None if moment is None else rfc3339(float(moment[0]))


def _micro_time(_reader: _Reader, entry: Mapping[int, int | bytes]) -> str | None:
    moment = _moment(entry)
    if moment is None:
        return None
    return f"{rfc3339_micro(float(moment[0]))[:-8]}.{moment[1] // 1000:06}Z"


def _moment(entry: Mapping[int, int | bytes]) -> tuple[int, int] | None:
    seconds, nanos = signed(_number(entry.get(1, 0))), _number(entry.get(2, 0))
    if not seconds and not nanos:
        return None
    if seconds not in _YEARS or nanos >= 10**9:
        raise ValueError("Time.MarshalJSON: year outside of range [0,9999]")
    return seconds, nanos


def _quantity(_reader: _Reader, entry: Mapping[int, int | bytes]) -> str:
    return _text(entry.get(1, b"0"))


def _int_or_text(_reader: _Reader, entry: Mapping[int, int | bytes]) -> int | str:
    return _text(entry.get(3, b"")) if entry.get(1) else _int_32(entry.get(2, 0))


def _schemas(value: Document) -> Any:
    """JSONSchemaPropsOrArray."""
    return value.get("jSONSchemas") or value.get("schema")


def _schema_or_bool(value: Document) -> Any:
    """JSONSchemaPropsOrBool."""
    return value["schema"] if "schema" in value else value.get("allows", False)


def _schema_or_texts(value: Document) -> Any:
    """JSONSchemaPropsOrStringArray."""
    return value.get("property") or value.get("schema")


_SIMPLE: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "s": _text,
    "b": lambda raw: bool(_number(raw)),
    "i": _int_32,
    "l": lambda raw: signed(_number(raw)),
    "d": _double,
    "y": _base64,
}
_WRAPPED: Final[Mapping[str, Callable[[_Reader, Mapping[int, int | bytes]], Any]]] = {
    "t": _time,
    "u": _micro_time,
    "q": _quantity,
    "x": _int_or_text,
    "j": _Reader.json,
}
_UNIONS: Final[Mapping[str, Callable[[Document], Any]]] = {
    "apiextensions.v1.JSONSchemaPropsOrArray": _schemas,
    "apiextensions.v1.JSONSchemaPropsOrBool": _schema_or_bool,
    "apiextensions.v1.JSONSchemaPropsOrStringArray": _schema_or_texts,
}
"""Unions: one of several types in JSON, and a message with a field for each on the wire."""
