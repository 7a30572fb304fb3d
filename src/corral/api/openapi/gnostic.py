"""OpenAPI v2 in protobuf: kubectl reads v2 in no other form, and before 1.27 requires it.

The messages are those of gnostic's OpenAPIv2.proto, as far as our documents use them.  They are
encoded from the JSON document, so that both are equal.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from corral.api.object import Document
from corral.api.protobuf.wire import block, double, number

_Encoder = Callable[[int, Any], bytes]
"""Encodes a value as the field of a number."""
_Fields = Mapping[str, tuple[int, _Encoder]]
"""The fields of a message by their names in JSON."""


def definitions(schemas: Mapping[str, Document]) -> bytes:
    """Encode schemas by name: a part of ``definitions``, to be joined with others."""
    return _map(_schema)(1, schemas)


def paths(items: Mapping[str, Document]) -> bytes:
    """Encode operations by path: a part of ``paths``, to be joined with others."""
    return _map(_path)(2, items)


def document(title: str, version: str, paths: bytes, definitions: bytes) -> bytes:
    """Encode a document of parts."""
    info = _text(1, title) + _text(2, version)
    return b"".join((_text(1, "2.0"), block(2, info), block(8, paths), block(9, definitions)))


# ------------------------------------------------------------- values of any message


def _text(at: int, value: str) -> bytes:
    return block(at, value.encode())


def _anything(at: int, value: Any) -> bytes:
    """Encode a value of any type as YAML text, of which JSON is a subset."""
    return block(at, block(2, msgspec.json.encode(value)))


def _list(write: _Encoder) -> _Encoder:
    """Return an encoder of a list: the field once for each value."""
    return lambda at, values: b"".join(write(at, value) for value in values)


def _map(write: _Encoder) -> _Encoder:
    """Return an encoder of a map: the field once for each entry, with key and value."""
    return lambda at, values: b"".join(
        block(at, _text(1, name) + write(2, value)) for name, value in values.items()
    )


def _nested(write: _Encoder, *numbers: int) -> _Encoder:
    """Return an encoder of a value in nested messages of one field; numbers outermost first."""

    def encode(at: int, value: Any) -> bytes:
        *outer, innermost = (at, *numbers)
        message = write(innermost, value)
        for each in reversed(outer):
            message = block(each, message)
        return message

    return encode


def _message(fields: _Fields, *, extensions: int = 0) -> _Encoder:
    """Return an encoder of a message; ``x-…`` fields go into the field number ``extensions``."""
    extension = _map(_anything)

    def encode(at: int, document: Document) -> bytes:
        parts = []
        for name, value in document.items():
            if name in fields:
                place, write = fields[name]
                parts.append(write(place, value))
            elif name.startswith("x-") and extensions:
                parts.append(extension(extensions, {name: value}))
        return block(at, b"".join(parts))

    return encode


# ------------------------------------------------------------------------- messages


def _schema(at: int, value: Document) -> bytes:
    return _write_schema(at, value)  # recursive: schemas contain schemas


def _additional(at: int, value: Any) -> bytes:
    """Encode ``additionalProperties``: a schema, or whether there may be any."""
    return block(at, number(2, value) if isinstance(value, bool) else _schema(1, value))


_write_schema = _message(
    {
        "$ref": (1, _text),
        "format": (2, _text),
        "title": (3, _text),
        "description": (4, _text),
        "multipleOf": (6, double),
        "maximum": (7, double),
        "exclusiveMaximum": (8, number),
        "minimum": (9, double),
        "exclusiveMinimum": (10, number),
        "maxLength": (11, number),
        "minLength": (12, number),
        "pattern": (13, _text),
        "maxItems": (14, number),
        "minItems": (15, number),
        "uniqueItems": (16, number),
        "maxProperties": (17, number),
        "minProperties": (18, number),
        "required": (19, _list(_text)),
        "enum": (20, _list(_anything)),
        "additionalProperties": (21, _additional),
        "type": (22, _nested(_text, 1)),
        "items": (23, _nested(_schema, 1)),
        "properties": (25, _nested(_map(_schema), 1)),
    },
    extensions=31,
)

_PARAMETERS: Mapping[str, _Encoder] = {
    "body": _nested(
        _message(
            {
                "description": (1, _text),
                "name": (2, _text),
                "in": (3, _text),
                "required": (4, number),
                "schema": (5, _schema),
            }
        ),
        *(1, 1),
    ),
    "query": _nested(
        _message(
            {
                "required": (1, number),
                "in": (2, _text),
                "description": (3, _text),
                "name": (4, _text),
                "type": (6, _text),
                "uniqueItems": (20, number),
            }
        ),
        *(1, 2, 3),
    ),
    "path": _nested(
        _message(
            {
                "required": (1, number),
                "in": (2, _text),
                "description": (3, _text),
                "name": (4, _text),
                "type": (5, _text),
                "uniqueItems": (19, number),
            }
        ),
        *(1, 2, 4),
    ),
}


def _parameter(at: int, value: Document) -> bytes:
    return _PARAMETERS[value["in"]](at, value)


_response = _message({"description": (1, _text), "schema": (2, _nested(_schema, 1))})
_operation = _message(
    {
        "tags": (1, _list(_text)),
        "description": (3, _text),
        "operationId": (5, _text),
        "produces": (6, _list(_text)),
        "consumes": (7, _list(_text)),
        "parameters": (8, _list(_parameter)),
        "responses": (9, lambda at, value: block(at, _map(_nested(_response, 1))(1, value))),
        "deprecated": (11, number),
    },
    extensions=13,
)
_path = _message(
    {
        "get": (2, _operation),
        "put": (3, _operation),
        "post": (4, _operation),
        "delete": (5, _operation),
        "options": (6, _operation),
        "head": (7, _operation),
        "patch": (8, _operation),
        "parameters": (9, _list(_parameter)),
    }
)
