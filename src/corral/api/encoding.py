"""Encoding and decoding of JSON documents; all JSON of clients is decoded here.

A decoded value has at most ``DEEPEST`` levels, so code that walks it may recurse.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from corral.api.errors import MAX_CAUSES, BadRequest, TooLarge, shortened
from corral.api.object import Document

T = TypeVar("T")

DEEPEST: Final = 200
"""Levels of objects and lists in a document.  A VMI has fifteen."""

MAX_VALUES: Final = 100_000
"""Values in one body, counting objects and lists; three times those of the largest objects that
Kubernetes stores.  The time of all work on a document depends on them."""

_NESTED: Final = (dict, list)
_FIRST_KEYS = ("apiVersion", "kind", "metadata")
_encode = msgspec.json.Encoder().encode
encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
"""Encodes a JSON value with sorted keys: equal objects have equal bytes."""
_LARGEST_INTEGER = 1e21  # Go writes smaller whole numbers without fraction or exponent


def whole_or_float(text: str) -> int | float:
    """Parse a number as a real server does: ``3.0`` and ``3e0`` are ``3``.

    Raises ValueError for a number out of the range of a float.
    """
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"number {text} is out of range")
    return int(number) if number.is_integer() and abs(number) < _LARGEST_INTEGER else number


_decode = msgspec.json.Decoder(float_hook=whole_or_float).decode


def encode(document: Document) -> bytes:
    """Encode a document with ``apiVersion``, ``kind`` and ``metadata`` first.

    Every encoded object begins with ``{"apiVersion":"GROUP/VERSION",``, so a version without
    conversion differs in that prefix alone.
    """
    if tuple(document)[:3] != _FIRST_KEYS:
        first = {key: document[key] for key in _FIRST_KEYS if key in document}
        document = first | document
    return _encode(document)


def decode_json(body: bytes, kind: str = "") -> Document:
    """Decode the JSON object in a request's body; ``kind`` is the expected one, for messages.

    Raises BadRequest for invalid JSON, another value, or too deep nesting, and TooLarge for too
    many values.
    """
    try:
        value = _value(body)
    except ValueError as error:
        fault = f"couldn't get version/kind; json parse error: {error}"
    else:
        if isinstance(value, dict):
            return value
        fault = "couldn't get version/kind; json parse error: the body must be a JSON object"
    must = f" (must be of type {kind})" if kind else ""
    raise BadRequest(f"the object provided is unrecognized{must}: {fault} ({summary(body)})")


def decode_any(body: bytes) -> Any:
    """Decode the JSON value in a patch's body.

    Raises BadRequest for invalid JSON or too deep nesting, and TooLarge for too many values.
    """
    try:
        return _value(body)
    except ValueError as error:
        raise BadRequest(f"error decoding patch: {error}") from None


def duplicate_keys(body: bytes) -> list[str]:
    """Return the paths of the first duplicate keys in a JSON text, for strict field validation.

    The text is one that ``decode_json`` has accepted.
    """
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _WithDuplicates):
            room = MAX_CAUSES - len(found)
            found.extend(f"{path}.{key}".lstrip(".") for key in value.duplicates[:room])
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, _NESTED):
                    walk(inner, f"{path}.{shortened(key)}")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                if isinstance(inner, _NESTED):
                    walk(inner, f"{path}[{index}]")

    try:
        walk(json.loads(body, object_pairs_hook=_object), "")
    except RecursionError:
        raise BadRequest("json parse error: exceeded max depth") from None
    return found


def strict_decoding_faults(body: bytes, unknown: Collection[str]) -> list[tuple[str, str]]:
    """Return the strict decoding errors of a JSON text in its order, each with its path.

    As the real server's decoder of native kinds, it reports each field once, and nothing inside of
    ``unknown`` fields, which are given by their paths.
    """
    found: dict[tuple[str, str], None] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen = set()
            for key, inner in value:
                below = f"{path}.{shortened(key)}".lstrip(".")
                if below in unknown:
                    found.setdefault(("unknown", below))
                    continue
                if key in seen:
                    found.setdefault(("duplicate", below))
                seen.add(key)
                if isinstance(inner, list):
                    walk(inner, below)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                if isinstance(inner, list):
                    walk(inner, f"{path}[{index}]")

    walk(json.loads(body, object_pairs_hook=_Pairs), "")
    return list(islice(found, MAX_CAUSES))


def decode_as(text: bytes | str | msgspec.Raw, form: type[T]) -> T:
    """Decode untrusted JSON into a type.

    Raises msgspec.DecodeError, also for invalid UTF-8, and if fields that the type lacks are nested
    too deeply.
    """
    try:
        return msgspec.json.decode(text, type=form)
    except RecursionError:
        raise msgspec.DecodeError("exceeded max depth") from None
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from None


def too_deep(value: Any) -> bool:
    """Report whether a JSON value has more levels of objects and lists than ``DEEPEST``."""
    try:
        return _may_exceed_depth(_encode(value)) and _exceeds_depth(value)
    except RecursionError:
        return True


def copied(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    return _decode(_encode(value))  # five times as fast as walking it


def same_encoding(left: Any, right: Any) -> bool:
    """Report whether two JSON values have the same encoding, as unchanged ones do."""
    return left is right or _encode(left) == _encode(right)


def same(left: Any, right: Any) -> bool:
    """Report whether two JSON values are equal; true is not 1, but 1 is 1.0."""
    return same_encoding(left, right) or _same(left, right)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as the list of its members, with duplicates."""


class _WithDuplicates(dict[str, Any]):
    """A JSON object with duplicate keys."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.duplicates = [key for key, count in counts.items() if count > 1]


def _object(pairs: list[tuple[str, Any]]) -> Document:
    """Return a JSON object; the fast path is one without duplicate keys."""
    value = dict(pairs)
    return value if len(value) == len(pairs) else _WithDuplicates(pairs)


def _value(body: bytes) -> Any:
    """Decode a JSON value.  Raises ValueError, which msgspec's errors are, and TooLarge."""
    try:
        value = _decode(body)
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    if _may_exceed_values(body) and _exceeds_values(value):
        raise too_many()
    if _may_exceed_depth(body) and _exceeds_depth(value):
        raise ValueError(f"exceeded max depth of {DEEPEST}")
    return value


def too_many() -> TooLarge:
    """Return the error for a body with more values than ``MAX_VALUES``."""
    return TooLarge(f"Request entity too large: limit is {MAX_VALUES} values in one object")


def _may_exceed_values(text: bytes) -> bool:
    """Report whether an upper bound of the values is too high: false for most documents."""
    if len(text) <= MAX_VALUES:
        return False
    return values_at_most(text) >= MAX_VALUES


def values_at_most(text: bytes) -> int:
    """Return an upper bound of the values in a JSON text, by counting delimiters."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def _exceeds_values(value: Any) -> bool:
    count = 1
    for level in _levels(value):
        count += sum(map(len, level))
        if count > MAX_VALUES:
            return True
    return False


def _may_exceed_depth(text: bytes) -> bool:
    """Report whether a text has more brackets than levels are allowed: false for most documents."""
    return text.count(b"{") + text.count(b"[") > DEEPEST


def _exceeds_depth(value: Any) -> bool:
    return any(depth > DEEPEST for depth, _ in enumerate(_levels(value), 1))


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the objects and lists of a JSON value, level by level."""
    level = [value] if isinstance(value, _NESTED) else []
    while level:
        yield level
        level = [
            inner
            for each in level
            if each
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, _NESTED)
        ]


def summary(body: bytes) -> str:
    """Return the begin of a body for messages: as text if it looks like JSON, else in hex."""
    if not body:
        return "<empty>"
    start = body[:30]
    shown = start.decode(errors="replace") if body[:1] == b"{" else start.hex()
    return f"{shown} ..." if len(body) > len(start) else shown
