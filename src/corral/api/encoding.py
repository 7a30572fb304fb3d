"""Documents to bytes and back: the one door for JSON that comes from outside.

What gets in is nested no deeper than ``DEEPEST``, so whoever walks it afterwards may recurse.
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
"""Values in one body, objects and lists among them; those of the largest objects that Kubernetes
keeps are a third of it.  All that is done with a document takes longer the more it has of them."""

_NESTED: Final = (dict, list)
_FIRST_KEYS = ("apiVersion", "kind", "metadata")
_encode = msgspec.json.Encoder().encode
encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
"""The bytes of a JSON value, in which keys come by their names: of equal objects the same."""
_WHOLE_BELOW = 1e21  # Go writes smaller whole numbers without fraction or exponent


def whole_or_float(text: str) -> int | float:
    """A number as it comes back from a real server: ``3.0`` and ``3e0`` are ``3``.

    Raises ValueError for what is beyond a float.
    """
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"number {text} is out of range")
    return int(number) if number.is_integer() and abs(number) < _WHOLE_BELOW else number


_decode = msgspec.json.Decoder(float_hook=whole_or_float).decode


def encode(document: Document) -> bytes:
    """The bytes of a document: ``apiVersion``, ``kind`` and ``metadata`` first, then as it comes.

    Every encoded object begins with ``{"apiVersion":"GROUP/VERSION",``, so an answer in another
    version of its kind differs in that prefix alone.
    """
    if tuple(document)[:3] != _FIRST_KEYS:
        first = {key: document[key] for key in _FIRST_KEYS if key in document}
        document = first | document
    return _encode(document)


def decode_json(body: bytes, kind: str = "") -> Document:
    """The JSON object in a request's body; ``kind`` says what it should be, for the message.

    Raises BadRequest for what is not JSON, not an object, or nested too deeply, and TooLarge for
    too many values.
    """
    try:
        value = _value(body)
    except ValueError as error:
        fault = f"couldn't get version/kind; json parse error: {error}"
    else:
        if isinstance(value, dict):
            return value
        fault = "couldn't get version/kind; json parse error: the body must be a JSON object"
    wanted = f" (must be of type {kind})" if kind else ""
    raise BadRequest(f"the object provided is unrecognized{wanted}: {fault} ({summary(body)})")


def decode_any(body: bytes) -> Any:
    """The JSON value in a patch's body.

    Raises BadRequest for what is not JSON or too deep, and TooLarge for too many values.
    """
    try:
        return _value(body)
    except ValueError as error:
        raise BadRequest(f"error decoding patch: {error}") from None


def duplicate_keys(body: bytes) -> list[str]:
    """Paths of the first keys that an object of a JSON text holds twice; decoding cannot show them.

    For strict field validation.  The text is one that ``decode_json`` has taken.
    """
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Repeating):
            room = MAX_CAUSES - len(found)
            found.extend(f"{path}.{key}".lstrip(".") for key in value.repeated[:room])
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, _NESTED):
                    walk(inner, f"{path}.{shortened(key)}")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                if isinstance(inner, _NESTED):
                    walk(inner, f"{path}[{index}]")

    try:
        walk(json.loads(body, object_pairs_hook=_paired), "")
    except RecursionError:
        raise BadRequest("json parse error: exceeded max depth") from None
    return found


def faults_in_order(body: bytes, unknown: Collection[str]) -> list[tuple[str, str]]:
    """What strict decoding tells of a JSON text in the order of the text: what is wrong, where.

    That is how the real server's decoder of Kubernetes' own kinds tells it: each field once, and of
    what stands in ``unknown`` fields, which are told by their paths, nothing.
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
    """JSON of somebody else's, in a form.

    Raises msgspec.DecodeError, also for what is no text, and where fields that the form has not are
    nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=form)
    except RecursionError:
        raise msgspec.DecodeError("exceeded max depth") from None
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from None


def too_deep(value: Any) -> bool:
    """Whether a JSON value has more levels of objects and lists than ``DEEPEST``."""
    try:
        return _may_be_deep(_encode(value)) and _is_deep(value)
    except RecursionError:
        return True


def copied(value: Any) -> Any:
    """A copy of a JSON value that shares no object or list with it."""
    return _decode(_encode(value))  # five times as quick as walking it


def written_alike(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same bytes: what was not touched is."""
    return left is right or _encode(left) == _encode(right)


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; true is not 1, but 1 is 1.0."""
    return written_alike(left, right) or _same(left, right)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all that was written in it."""


class _Repeating(dict[str, Any]):
    """A JSON object of which some keys came more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated = [key for key, count in counts.items() if count > 1]


def _paired(pairs: list[tuple[str, Any]]) -> Document:
    """A JSON object; to look which keys came twice takes far longer than to see that none did."""
    value = dict(pairs)
    return value if len(value) == len(pairs) else _Repeating(pairs)


def _value(body: bytes) -> Any:
    """Raises ValueError, of which msgspec's errors are a kind, and TooLarge."""
    try:
        value = _decode(body)
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    if _may_be_many(body) and _are_many(value):
        raise too_many()
    if _may_be_deep(body) and _is_deep(value):
        raise ValueError(f"exceeded max depth of {DEEPEST}")
    return value


def too_many() -> TooLarge:
    """The refusal of a body that has more values than ``MAX_VALUES``."""
    return TooLarge(f"Request entity too large: limit is {MAX_VALUES} values in one object")


def _may_be_many(text: bytes) -> bool:
    """Counts what stands before values, in texts too: it clears all but the largest documents."""
    if len(text) <= MAX_VALUES:
        return False
    return values_at_most(text) >= MAX_VALUES


def values_at_most(text: bytes) -> int:
    """No fewer values than JSON has, by what begins and separates them, in its texts too."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def _are_many(value: Any) -> bool:
    count = 1
    for level in _levels(value):
        count += sum(map(len, level))
        if count > MAX_VALUES:
            return True
    return False


def _may_be_deep(text: bytes) -> bool:
    """Counts brackets, which is nearly free and clears all but the largest documents."""
    return text.count(b"{") + text.count(b"[") > DEEPEST


def _is_deep(value: Any) -> bool:
    return any(depth > DEEPEST for depth, _ in enumerate(_levels(value), 1))


def _levels(value: Any) -> Iterator[list[Any]]:
    """The objects and lists of a JSON value, level by level."""
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
    """The beginning of a body, readable where it looks like JSON, else in hexadecimal."""
    if not body:
        return "<empty>"
    start = body[:30]
    shown = start.decode(errors="replace") if body[:1] == b"{" else start.hex()
    return f"{shown} ..." if len(body) > len(start) else shown
