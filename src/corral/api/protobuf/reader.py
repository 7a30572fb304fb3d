"""From a protobuf body to the document that the same client would have sent as JSON.

Unset and zero look alike in what Kubernetes sends, since most of its fields are not pointers: zero
values are left out, as JSON's ``omitempty`` leaves them out, but where the tables say otherwise.
"""

import base64
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from corral.api.encoding import MOST_VALUES, decode_json, too_many
from corral.api.errors import BadRequest
from corral.api.object import Document
from corral.api.protobuf.numbers import KINDS, NUMBERS
from corral.api.protobuf.wire import Field, fields, signed, varint
from corral.api.time import rfc3339, rfc3339_micro
from corral.api.types import Schema, object_schema

MAGIC: Final = b"k8s\0"
_LATEST: Final = 253402300799  # the last second of the year 9999


def decode(body: bytes) -> Document:
    """The document in a body of ``application/vnd.kubernetes.protobuf``.

    Raises BadRequest for what is none, for kinds that are not in the tables, and for fields that
    are not in them but say something: better refused than lost.  Raises TooLarge for more than
    ``MOST_VALUES`` fields.
    """
    if not body.startswith(MAGIC):
        raise BadRequest("the protobuf body does not begin with the magic bytes k8s\\0")
    try:
        return _Reader().unwrapped(body[len(MAGIC) :])
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"the protobuf body cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class _Field:
    """What the tables and the types say of one field.

    ``inlined`` is set where a number stands for a message whose fields are the object's own.
    """

    name: str
    schema: Schema
    flag: str
    keeps_zero: bool
    inlined: "_Layout | None" = None


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of a message by their numbers."""

    name: str
    fields: Mapping[int, _Field]


@cache
def _layout(name: str) -> _Layout:
    module, _, view = name.partition(".")
    found = getattr(importlib.import_module(f"lightkube.models.{module}"), view)
    schema = object_schema(found, lambda inner: {"$struct": _view_name(inner)})
    return _laid_out(name, schema)


def _laid_out(name: str, schema: Schema) -> _Layout:
    laid_out = {}
    for word in NUMBERS[name].split():
        field, _, told = word.partition("=")
        number = int(told.rstrip("*~!@"))
        flag = told.lstrip("0123456789")
        if field.startswith("+"):
            inlined = _laid_out(field[1:], schema)
            laid_out[number] = _Field(field, {}, flag, keeps_zero=False, inlined=inlined)
        else:
            keeps_zero = flag == "*" or field in schema.get("required", ())
            laid_out[number] = _Field(field, schema["properties"][field], flag, keeps_zero)
    return _Layout(name, laid_out)


def _view_name(view: type[msgspec.Struct]) -> str:
    return f"{view.__module__.rpartition('.')[2]}.{view.__name__}"


class _Reader:
    """Reads one body, and counts its fields: each may take but two bytes."""

    def __init__(self) -> None:
        self.fields_left = MOST_VALUES

    def fields(self, message: bytes) -> Iterator[Field]:
        """The fields of a message.  Raises ValueError and TooLarge."""
        for field in fields(message):
            self.count()
            yield field

    def count(self) -> None:
        self.fields_left -= 1
        if self.fields_left < 0:
            raise too_many()

    def unwrapped(self, message: bytes) -> Document:
        """Reads runtime.Unknown: what kind of object it wraps, and the object."""
        wrapper = dict(self.fields(message))
        named = dict(self.fields(_bytes(wrapper.get(1, b""))))
        api_version, kind = _text(named.get(1, b"")), _text(named.get(2, b""))
        name = KINDS.get((api_version, kind))
        if name is None:
            raise ValueError(
                f"{kind or 'the kind'} in version {api_version!r} is read as JSON only"
            )
        if wrapper.get(3) or _text(wrapper.get(4, b"")) not in (
            "",
            "application/vnd.kubernetes.protobuf",
        ):
            raise ValueError("encoded or compressed contents are not read")
        document = self.message(_bytes(wrapper.get(2, b"")), _layout(name))
        return {"apiVersion": api_version, "kind": kind} | document

    def message(self, message: bytes, layout: _Layout) -> Document:
        document: Document = {}
        for number, raw in self.fields(message):
            field = layout.fields.get(number)
            if field is None:
                if raw:
                    raise ValueError(f"field {number} of {layout.name} is read as JSON only")
            elif field.inlined is not None:
                document |= self.message(_bytes(raw), field.inlined)
            elif field.flag == "@":
                key, texts = self.texts(_bytes(raw))
                document.setdefault(field.name, {})[key] = texts
            elif field.schema.get("type") == "array":
                items = document.setdefault(field.name, [])
                items.extend(self.items(raw, field.schema["items"], field.flag))
            elif "additionalProperties" in field.schema:
                document.setdefault(field.name, {}).update([self.entry(_bytes(raw), field)])
            else:
                value = self.value(raw, field.schema, field.flag)
                if value is not None and (field.keeps_zero or value or isinstance(value, dict)):
                    document[field.name] = value
        return document

    def items(self, raw: int | bytes, schema: Schema, flag: str) -> list[Any]:
        """One item, or several numbers packed together."""
        if isinstance(raw, bytes) and schema.get("type") in ("integer", "boolean"):
            numbers, at = [], 0
            while at < len(raw):
                self.count()
                number, at = varint(raw, at)
                numbers.append(self.value(number, schema, flag))
            return numbers
        return [self.value(raw, schema, flag)]

    def entry(self, message: bytes, field: _Field) -> tuple[str, Any]:
        entry = dict(self.fields(message))
        key, raw = _text(entry.get(1, b"")), entry.get(2, b"")
        if field.flag == "!":
            return key, base64.b64encode(_bytes(raw)).decode()
        return key, self.value(raw, field.schema["additionalProperties"], field.flag)

    def texts(self, message: bytes) -> tuple[str, list[str]]:
        """An entry of a map to lists of texts, which are messages on the wire."""
        entry = dict(self.fields(message))
        return _text(entry.get(1, b"")), [
            _text(raw) for _, raw in self.fields(_bytes(entry.get(2, b"")))
        ]

    def value(self, raw: int | bytes, schema: Schema, flag: str) -> Any:
        """A value of the type that a schema tells; None for a time that is not set."""
        match schema.get("type"):
            case "boolean":
                return bool(_number(raw))
            case "integer":
                return signed(_number(raw))
            case "string" if schema.get("format") == "date-time":
                return self.time(_bytes(raw), micro=flag == "~")
            case "string" if flag == "!":
                return base64.b64encode(_bytes(raw)).decode()
            case "string":
                return _text(raw)
            case _:
                return self.wrapped(_bytes(raw), schema)

    def wrapped(self, message: bytes, schema: Schema) -> Any:
        """A value that is a message on the wire, also where it is none in JSON."""
        if "$struct" in schema:
            return self.message(message, _layout(schema["$struct"]))
        parts = dict(self.fields(message))
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return decode_json(_bytes(parts.get(1, b"{}")))
        if schema.get("format") == "quantity":
            return _text(parts.get(1, b""))
        return _text(parts.get(3, b"")) if parts.get(1) else signed(_number(parts.get(2, 0)))

    def time(self, message: bytes, *, micro: bool) -> str | None:
        parts = dict(self.fields(message))
        seconds, nanos = signed(_number(parts.get(1, 0))), _number(parts.get(2, 0))
        if not seconds and not nanos:
            return None
        if not 0 <= seconds <= _LATEST or nanos >= 10**9:
            raise ValueError(f"{seconds} seconds and {nanos} nanoseconds are no time since 1970")
        if micro:
            return f"{rfc3339_micro(float(seconds))[:-8]}.{nanos // 1000:06}Z"
        return rfc3339(float(seconds))


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number stands where text or a message must be")  # noqa: TRY004 (input)
    return raw


def _number(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise ValueError("text or a message stands where a number must be")  # noqa: TRY004 (input)
    return raw


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()
