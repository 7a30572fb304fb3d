"""What does not fit the types of Kubernetes' own kinds, as Go's decoder words it.

The real server decodes what it is sent into Go's types before it looks at anything else, and gives
up at the first value that has no place there.  Documents here are checked against schemas; this is
asked only once one is known not to fit.
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

_NO_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_QUANTITY: Final = re.compile(QUANTITY_PATTERN.removesuffix("$") + r"\Z", re.ASCII)
_INTEGERS: Final[Mapping[str, int]] = {"int32": 31, "int64": 63}


def misfit(kind: Kind, version: str, document: Document) -> str:
    """What is wrong with the first value of an object that does not fit; "" where all do."""
    return first_fault(kind.view_of(version), document)


def first_fault(view: type[msgspec.Struct], document: Document) -> str:
    """What is wrong with the first value that does not fit a type; "" where all do."""
    return next(_Decoder(()).struct(view, document), "")


@cache
def _properties(view: type[msgspec.Struct]) -> Mapping[str, Schema]:
    """The fields of a type; made once, for a document may hold many thousand objects of it."""
    told: Mapping[str, Schema] = object_schema(view, lambda inner: {"$struct": inner})["properties"]
    return told


class _Decoder:
    """Looks at what stands at one path; list indices and the keys of maps are no part of it."""

    def __init__(self, path: tuple[str, ...], holder: str = "") -> None:
        self.path = path
        self.holder = holder

    def struct(self, view: type[msgspec.Struct], document: Document) -> Iterator[str]:
        """The faults in an object of a type."""
        properties = _properties(view)
        for name, value in document.items():
            told = properties.get(name)
            if told is None or value is None:
                continue
            yield from _Decoder((*self.path, name), view.__name__).value(told, value)

    def value(self, schema: Schema, value: Any) -> Iterator[str]:
        if value is None:
            return
        if "$struct" in schema:
            if isinstance(value, dict):
                yield from self.struct(schema["$struct"], value)
            else:
                yield self.wrong(value, _go_type(schema))
        elif schema.get("x-kubernetes-int-or-string"):
            yield from _scalar_of_two(schema, value)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            return
        elif schema["type"] in ("array", "object"):
            yield from self.many(schema, value)
        else:
            yield from self.scalar(schema, value)

    def many(self, schema: Schema, value: Any) -> Iterator[str]:
        """The faults in a list or a map."""
        kind, inner = (
            (list, "items") if schema["type"] == "array" else (dict, "additionalProperties")
        )
        if not isinstance(value, kind):
            yield self.wrong(value, _go_type(schema))
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
                yield self.wrong(value, _go_type(schema), literal=True)
            elif type(value) is not int:
                yield self.wrong(value, _go_type(schema))
        elif type(value) not in {"string": (str,), "boolean": (bool,)}.get(kind, (int, float)):
            yield self.wrong(value, _go_type(schema))

    def base64(self, value: Any) -> Iterator[str]:
        if not isinstance(value, str):
            yield self.wrong(value, "[]uint8")
            return
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            yield f"illegal base64 data at input byte {_first_odd(value)}"

    def wrong(self, value: Any, wanted: str, *, literal: bool = False) -> str:
        found = f"number {value}" if literal else _json_type(value)
        field = f"{self.holder}.{'.'.join(self.path)}"
        return f"json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"


def _scalar_of_two(schema: Schema, value: Any) -> Iterator[str]:
    if "pattern" in schema:
        fits = type(value) in (int, float) or (isinstance(value, str) and _QUANTITY.match(value))
        if not fits:
            yield _NO_QUANTITY
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
        told = shortened(value)
        yield (
            f'parsing time "{told}" as "2006-01-02T15:04:05Z07:00": cannot parse "{told}" as "2006"'
        )


def _first_odd(text: str) -> int:
    """Where base64 ends to be it."""
    good = re.match(r"[A-Za-z0-9+/\r\n]*", text, re.ASCII)
    return good.end() if good else 0


def _json_type(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _go_type(schema: Schema) -> str:
    """What Go calls the type that a schema tells."""
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
