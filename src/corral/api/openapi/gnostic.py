"""OpenAPI v2 in protobuf: the only form of it that kubectl reads, and that before 1.27 insists on.

The messages are those of gnostic's OpenAPIv2.proto, whose fields have numbers; here are those that
our documents use.  What is written is the document's JSON form, so that both forms say the same.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from corral.api.object import Document
from corral.api.protobuf.wire import block, double, number

_Write = Callable[[int, Any], bytes]
"""Writes a value as the field of that number."""
_Fields = Mapping[str, tuple[int, _Write]]
"""The fields of a message by the names that they have in JSON."""


def definitions(schemas: Mapping[str, Document]) -> bytes:
    """Schemas by name: a part of the ``definitions`` of a document, to be joined with others."""
    return _named(_schema)(1, schemas)


def paths(items: Mapping[str, Document]) -> bytes:
    """Operations by path: a part of the ``paths`` of a document, to be joined with others."""
    return _named(_path)(2, items)


def document(title: str, version: str, paths: bytes, definitions: bytes) -> bytes:
    """A whole document."""
    info = _text(1, title) + _text(2, version)
    return b"".join((_text(1, "2.0"), block(2, info), block(8, paths), block(9, definitions)))


# ------------------------------------------------------------- values of any message


def _text(at: int, value: str) -> bytes:
    return block(at, value.encode())


def _anything(at: int, value: Any) -> bytes:
    """A value of any type, as YAML text, of which JSON is a part."""
    return block(at, block(2, msgspec.json.encode(value)))


def _many(write: _Write) -> _Write:
    """A list: the field once for each of its values."""
    return lambda at, values: b"".join(write(at, value) for value in values)


def _named(write: _Write) -> _Write:
    """A map: the field once for each key, holding the key and the value."""
    return lambda at, values: b"".join(
        block(at, _text(1, name) + write(2, value)) for name, value in values.items()
    )


def _inside(write: _Write, *numbers: int) -> _Write:
    """A value in messages that hold nothing else; the numbers are of fields, outermost first."""

    def written(at: int, value: Any) -> bytes:
        *outer, innermost = (at, *numbers)
        message = write(innermost, value)
        for each in reversed(outer):
            message = block(each, message)
        return message

    return written


def _message(fields: _Fields, *, extensions: int = 0) -> _Write:
    """A message; what is named ``x-…`` goes into the field with the number ``extensions``."""
    extension = _named(_anything)

    def written(at: int, document: Document) -> bytes:
        parts = []
        for name, value in document.items():
            if name in fields:
                place, write = fields[name]
                parts.append(write(place, value))
            elif name.startswith("x-") and extensions:
                parts.append(extension(extensions, {name: value}))
        return block(at, b"".join(parts))

    return written


# ------------------------------------------------------------------------- messages


def _schema(at: int, value: Document) -> bytes:
    return _write_schema(at, value)  # schemas hold schemas


def _additional(at: int, value: Any) -> bytes:
    """The schema of properties that have no names, or whether there may be any."""
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
        "required": (19, _many(_text)),
        "enum": (20, _many(_anything)),
        "additionalProperties": (21, _additional),
        "type": (22, _inside(_text, 1)),
        "items": (23, _inside(_schema, 1)),
        "properties": (25, _inside(_named(_schema), 1)),
    },
    extensions=31,
)

_PARAMETERS: Mapping[str, _Write] = {
    "body": _inside(
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
    "query": _inside(
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
    "path": _inside(
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


_response = _message({"description": (1, _text), "schema": (2, _inside(_schema, 1))})
_operation = _message(
    {
        "tags": (1, _many(_text)),
        "description": (3, _text),
        "operationId": (5, _text),
        "produces": (6, _many(_text)),
        "consumes": (7, _many(_text)),
        "parameters": (8, _many(_parameter)),
        "responses": (9, lambda at, value: block(at, _named(_inside(_response, 1))(1, value))),
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
        "parameters": (9, _many(_parameter)),
    }
)
