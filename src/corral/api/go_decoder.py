"""Decoding errors of native kinds, in the words of Go's JSON decoder.

The real server decodes a body into Go types first, and stops at the first value that does not fit.
Here documents are checked against schemas; this only finds the message for one that does not fit.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from corral.api.errors import shortened
from corral.api.kind import Kind
from corral.api.object import QUANTITY_PATTERN, Document
from corral.api.time import parse_rfc3339
from corral.api.types import Schema, object_schema

_INVALID_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_QUANTITY: Final = re.compile(QUANTITY_PATTERN.removesuffix("$") + r"\Z", re.ASCII)
_INTEGERS: Final[Mapping[str, int]] = {"int32": 31, "int64": 63}


def decoding_error(kind: Kind, version: str, document: Document) -> str:
    """Return the error of the first value of an object that does not fit; "" if all do."""
    return first_error(kind.view_of(version), document)


def first_error(view: type[msgspec.Struct], document: Document) -> str:
    """Return the error of the first value that does not fit a type; "" if all do."""
    return next(_Decoder(()).struct(view, document), "")


@cache
def _properties(view: type[msgspec.Struct]) -> Mapping[str, Schema]:
    """Return the fields of a type, cached, because a document may have thousands of objects."""
    fields: Mapping[str, Schema] = object_schema(view, lambda inner: {"$struct": inner})[
        "properties"
    ]
    return fields


class _Decoder:
    """Checks the value at a path, which has no list indices and no keys of maps, as in Go."""

    def __init__(self, path: tuple[str, ...], owner: str = "") -> None:
        self.path = path
        self.owner = owner

    def struct(self, view: type[msgspec.Struct], document: Document) -> Iterator[str]:
        """Yield the errors in an object of a type."""
        properties = _properties(view)
        for name, value in document.items():
            schema = properties.get(name)
            if schema is None or value is None:
                continue
            yield from _Decoder((*self.path, name), view.__name__).value(schema, value)

    def value(self, schema: Schema, value: Any) -> Iterator[str]:
        if value is None:
            return
        if "$struct" in schema:
            if isinstance(value, dict):
                yield from self.struct(schema["$struct"], value)
            else:
                yield self.mismatch(value, _go_type(schema))
        elif schema.get("x-kubernetes-int-or-string"):
            yield from _int_or_string(schema, value)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            return
        elif schema["type"] in ("array", "object"):
            yield from self.collection(schema, value)
        else:
            yield from self.scalar(schema, value)

    def collection(self, schema: Schema, value: Any) -> Iterator[str]:
        """Yield the errors in a list or a map."""
        kind, inner = (
            (list, "items") if schema["type"] == "array" else (dict, "additionalProperties")
        )
        if not isinstance(value, kind):
            yield self.mismatch(value, _go_type(schema))
            return
        for each in value if isinstance(value, list) else value.values():
            yield from self.value(schema.get(inner, {"type": "string"}), each)

    def scalar(self, schema: Schema, value: Any) -> Iterator[str]:
        kind = schema["type"]
        if schema.get("format") == "date-time":
            yield from _time(value)
        elif schema.get("format") == "byte":
            yield from self.base64(value)
        elif kind == "integer":
            bits = _INTEGERS[schema.get("format", "int64")]
            if type(value) is float or (type(value) is int and not -(2**bits) <= value < 2**bits):
                yield self.mismatch(value, _go_type(schema), literal=True)
            elif type(value) is not int:
                yield self.mismatch(value, _go_type(schema))
        elif type(value) not in {"string": (str,), "boolean": (bool,)}.get(kind, (int, float)):
            yield self.mismatch(value, _go_type(schema))

    def base64(self, value: Any) -> Iterator[str]:
        if not isinstance(value, str):
            yield self.mismatch(value, "[]uint8")
            return
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            yield f"illegal base64 data at input byte {_invalid_offset(value)}"

    def mismatch(self, value: Any, go_type: str, *, literal: bool = False) -> str:
        found = f"number {value}" if literal else _json_type(value)
        field = f"{self.owner}.{'.'.join(self.path)}"
        return f"json: cannot unmarshal {found} into Go struct field {field} of type {go_type}"


def _int_or_string(schema: Schema, value: Any) -> Iterator[str]:
    if "pattern" in schema:
        fits = type(value) in (int, float) or (isinstance(value, str) and _QUANTITY.match(value))
        if not fits:
            yield _INVALID_QUANTITY
    elif type(value) is not str and (type(value) is not int or not -(2**31) <= value < 2**31):
        found = f"number {value}" if type(value) in (int, float) else _json_type(value)
        yield f"json: cannot unmarshal {found} into Go value of type int32"


def _time(value: Any) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"json: cannot unmarshal {_json_type(value)} into Go value of type string"
        return
    try:
        parse_rfc3339(value)
    except ValueError:
        shown = shortened(value)
        layout = "2006-01-02T15:04:05Z07:00"
        yield f'parsing time "{shown}" as "{layout}": cannot parse "{shown}" as "2006"'


def _invalid_offset(text: str) -> int:
    """Return the offset of the first invalid character of base64."""
    good = re.match(r"[A-Za-z0-9+/\r\n]*", text, re.ASCII)
    return good.end() if good else 0


def _json_type(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _go_type(schema: Schema) -> str:
    """Return the name of a schema's type in Go."""
    if "$struct" in schema:
        view = schema["$struct"]
        return f"{view.__module__.rpartition('_')[2]}.{view.__name__}"
    if schema.get("x-kubernetes-int-or-string"):
        return "resource.Quantity" if "pattern" in schema else "intstr.IntOrString"
    match schema.get("type"):
        case "array":
            return f"[]{_go_type(schema['items'])}"
        case "object":
            return f"map[string]{_go_type(schema.get('additionalProperties', {'type': 'string'}))}"
        case "integer":
            return str(schema.get("format", "int64"))
        case kind:
            plain = "[]uint8" if schema.get("format") == "byte" else "string"
            return {"boolean": "bool", "number": "float64"}.get(str(kind), plain)
