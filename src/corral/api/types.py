"""Structural schemas of views, derived from their types, and descriptions from their docstrings.

Our views have all facts in their types.  Those of lightkube are generated from Kubernetes' OpenAPI
and lack some, which are added here: quantities are plain strings, and values of maps are untyped.
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from corral.api import merge_keys
from corral.api.object import QUANTITY_PATTERN, Object

Schema = dict[str, Any]

_QUANTITY: Schema = {
    "x-kubernetes-int-or-string": True,
    "format": "quantity",
    "pattern": QUANTITY_PATTERN,
}
_ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT: Schema = {"type": "string"}
_PLAIN: Mapping[Any, Schema] = {
    str: _TEXT,
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {"x-kubernetes-preserve-unknown-fields": True},
    dict: {"type": "object", "additionalProperties": _TEXT},
}
_BYTES: Schema = {"type": "string", "format": "byte"}
_BYTE_FIELDS = frozenset(
    {
        *(("APIServiceSpec", "caBundle"), ("WebhookClientConfig", "caBundle")),
        *(("CertificateSigningRequestSpec", "request"),),
        *(("CertificateSigningRequestStatus", "certificate"),),
        *(("PodCertificateRequestSpec", "stubPKCS10Request"),),
    }
)
"""Native fields that are bytes."""
_BYTE_MAPS = frozenset({("Secret", "data"), ("ConfigMap", "binaryData")})
_QUANTITY_MAPS = frozenset(
    [
        "allocatable",
        "allocatedResources",
        "capacity",
        "consumedCapacity",
        "default",
        "defaultRequest",
        "hard",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "overhead",
        "podFixed",
        "requests",
        "used",
    ]
)
_ATTRIBUTE: Schema = {
    "type": "object",
    "properties": {
        "int": _PLAIN[int],
        "bool": _PLAIN[bool],
        "string": _TEXT,
        "version": _TEXT,
        "bools": {"type": "array", "items": _PLAIN[bool]},
        "ints": {"type": "array", "items": _PLAIN[int]},
        "strings": {"type": "array", "items": _TEXT},
        "versions": {"type": "array", "items": _TEXT},
    },
}
"""A device attribute: lightkube's type has fields named int and bool, which shadow the types."""
_OBJECT_MAPS: Mapping[tuple[str, str], str] = {
    ("CounterSet", "counters"): "Counter",
    ("Device", "capacity"): "DeviceCapacity",
    ("Device", "nodeAllocatableResources"): "NodeAllocatableResource",
    ("DeviceCounterConsumption", "counters"): "Counter",
}
"""Maps to objects, and the types of these, which are in the module of the holder."""
_INT32: Schema = {"type": "integer", "format": "int32"}
_INT64_FIELDS = frozenset(
    {
        *("activeDeadlineSeconds", "deletionGracePeriodSeconds", "expirationSeconds"),
        *("fsGroup", "generation", "gracePeriodSeconds", "observedGeneration"),
        *("revision", "runAsGroup", "runAsUser", "seconds", "sizeBytes"),
        *("startingDeadlineSeconds", "terminationGracePeriodSeconds", "tolerationSeconds"),
        *("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"),
    }
)
"""Native integers of 64 bits; the others have 32."""
_META_KEYWORDS = {
    "ge": "minimum",
    "le": "maximum",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
}
_FIELD_LINE = re.compile(r"^ *(?:\* \*\*(\w+)\*\* ``.*?`` - |([a-z][a-z0-9_]*): )", re.MULTILINE)

Nested = Callable[[type[msgspec.Struct]], Schema]
"""Returns the schema of a nested Struct: inline, or a reference."""


@cache
def schema_of(view: type[msgspec.Struct]) -> Schema:
    """Return the structural schema of a Struct, without descriptions.

    Everything is inline.  A Struct that occurs in several places is the same dictionary in each, so
    the schema takes little memory; it must not be changed.
    """
    return object_schema(view, schema_of)


def object_schema(view: type[msgspec.Struct], nested: Nested) -> Schema:
    """Return the schema of a Struct; ``nested`` returns those of Structs in its fields."""
    properties: dict[str, Schema] = {}
    if issubclass(view, Object):
        properties = {"apiVersion": _TEXT, "kind": _TEXT}
    required = []
    for field in msgspec.structs.fields(view):
        name = field.encode_name
        inner, merged = (
            _field_schema(view, field, nested),
            merge_keys.extensions(view.__name__, name),
        )
        properties[name] = inner | merged if merged else inner
        # A missing time is Go's zero time, which is encoded as null.
        if field.required and field.type is not datetime:
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties}
    if view.__name__ in merge_keys.ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema | {"required": required} if required else schema


def descriptions(view: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """Return the description of a Struct, and those of its fields by their names on the wire.

    Inherited fields have the descriptions of the Struct that declares them.
    """
    names = {field.name: field.encode_name for field in msgspec.structs.fields(view)}
    about = ""
    fields: dict[str, str] = {}
    for base in reversed(view.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            about, described = _docstring(base)
            fields |= {names[name]: text for name, text in described.items() if name in names}
    return about, fields


def _docstring(view: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a Struct and of its fields in one docstring."""
    text = inspect.cleandoc(view.__doc__ or "")
    found = list(_FIELD_LINE.finditer(text))
    starts = [*(match.start() for match in found), len(text)]
    fields = {
        match[1] or match[2]: " ".join(text[match.end() : end].split())
        for match, end in zip(found, starts[1:], strict=True)
    }
    about = text[: starts[0]].replace("**parameters**", "")
    return " ".join(about.split()), fields


def _field_schema(view: type[msgspec.Struct], field: FieldInfo, nested: Nested) -> Schema:
    if field.type in (dict, dict | None):
        values = _map_values(view, field.encode_name, nested)
        return {"type": "object", "additionalProperties": values}
    if (view.__name__, field.encode_name) in _BYTE_FIELDS:
        return _BYTES
    if "resource.Quantity" in str(view.__annotations__.get(field.name, "")):
        return _QUANTITY
    if field.type in (int, int | None) and view.__module__.startswith("lightkube."):
        return _PLAIN[int] if field.encode_name in _INT64_FIELDS else _INT32
    return _type_schema(field.type, nested)


def _map_values(view: type[msgspec.Struct], name: str, nested: Nested) -> Schema:
    holder = view.__name__
    if (holder, name) == ("Device", "attributes"):
        return _ATTRIBUTE
    if (valued := _OBJECT_MAPS.get((holder, name))) is not None:
        return nested(getattr(sys.modules[view.__module__], valued))
    if name in _QUANTITY_MAPS:
        return _QUANTITY
    if name == "extra":  # of UserInfo
        return {"type": "array", "items": _TEXT}
    return _BYTES if (holder, name) in _BYTE_MAPS else _TEXT


def _type_schema(annotation: Any, nested: Nested) -> Schema:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return nested(annotation)
    make = _GENERIC.get(get_origin(annotation))
    if make is None:
        raise TypeError(f"no schema for {annotation}")
    return make(get_args(annotation), nested)


def _list_schema(arguments: tuple[Any, ...], nested: Nested) -> Schema:
    return {"type": "array", "items": _type_schema(arguments[0], nested)}


def _dict_schema(arguments: tuple[Any, ...], nested: Nested) -> Schema:
    if not arguments or arguments[1] is Any:  # FieldsV1 is the bare typing.Dict
        return _ANYTHING
    return {"type": "object", "additionalProperties": _type_schema(arguments[1], nested)}


def _literal_schema(arguments: tuple[Any, ...], _nested: Nested) -> Schema:
    return {"type": "string", "enum": list(arguments)}


def _union_schema(arguments: tuple[Any, ...], nested: Nested) -> Schema:
    present = [argument for argument in arguments if argument is not NoneType]
    if len(present) == 1:
        return _type_schema(present[0], nested)
    if set(present) == {int, str}:
        return {"x-kubernetes-int-or-string": True}
    raise TypeError(f"no schema for a choice of {present}")


def _annotated_schema(arguments: tuple[Any, ...], nested: Nested) -> Schema:
    annotation, *metas = arguments
    schema = dict(_type_schema(annotation, nested))
    for meta in metas:
        if isinstance(meta, msgspec.Meta):
            bounds = ((key, getattr(meta, word)) for word, key in _META_KEYWORDS.items())
            schema |= {key: bound for key, bound in bounds if bound is not None}
            schema |= meta.extra_json_schema or {}
    if schema.get("type") == "array":
        swapped = {"minLength": "minItems", "maxLength": "maxItems"}
        schema = {swapped.get(key, key): value for key, value in schema.items()}
    return schema


_GENERIC: Mapping[Any, Callable[[tuple[Any, ...], Nested], Schema]] = {
    Annotated: _annotated_schema,
    Literal: _literal_schema,
    Union: _union_schema,
    UnionType: _union_schema,
    dict: _dict_schema,
    list: _list_schema,
}
