"""YAML as kubectl reads it: booleans of YAML 1.1, no dates, keys converted to text.

The only module that uses PyYAML.  Values are built here from the events of its parser, so that tags
construct nothing, nesting is bounded, and aliases cannot multiply a small text.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any, Final, Protocol

import yaml

from corral.api.encoding import DEEPEST, MAX_VALUES, too_many, whole_or_float
from corral.api.errors import MAX_CAUSES, BadRequest, TooLarge, shortened
from corral.api.object import Document

LARGEST_BYTES: Final = 3 * 1024 * 1024
"""The limit of a request's body."""

_ALIASED_VALUES: Final = 10_000  # values that aliases may add to those of the text

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_TAG = "tag:yaml.org,2002:"
_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F_]+)|0[bB](?P<binary>[01_]+)"
    r"|0[oO]?(?P<octal>[0-7_]+)|(?P<decimal>[0-9][0-9_]*))",
    re.ASCII,
)
_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)


def load(text: bytes | str, repeated: list[str] | None = None) -> Document:
    """Load the one object in a YAML text.  Raises BadRequest, and TooLarge past ``LARGEST_BYTES``.

    Duplicate keys are refused; with a list ``repeated`` the last value wins, and messages about
    them are added to the list.
    """
    found = list(load_all(text, repeated))
    if len(found) != 1:
        raise BadRequest(f"yaml: {len(found)} objects where one must be")
    return found[0]


def load_all(text: bytes | str, repeated: list[str] | None = None) -> Iterator[Document]:
    """Yield the objects of a YAML text of several documents; empty ones are skipped.

    Raises BadRequest that names the line, and TooLarge past ``LARGEST_BYTES``.
    """
    if len(text) > LARGEST_BYTES:
        raise TooLarge(f"the YAML text is larger than {LARGEST_BYTES} bytes")
    try:
        for value in _Reader(text, repeated).documents():
            if isinstance(value, dict):
                yield value
            elif value is not None:
                raise BadRequest("yaml: a document must be an object")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise _fault(mark, problem) from None


def dump(document: Any) -> str:
    """Return a value as YAML with sorted keys.

    Text is quoted if kubectl or YAML 1.1 would read another type; several lines are a block scalar
    if possible.
    """
    text = StringIO()
    write(document, text)
    return text.getvalue()


class Sink(Protocol):
    """A writer of pieces of some kilobytes; an exception ends the dump."""

    def write(self, piece: str, /) -> object: ...


def write(document: Any, sink: Sink) -> None:
    """Write a value as ``dump`` does; deep nesting makes it far larger than JSON."""
    yaml.dump(
        document,
        sink,
        Dumper=_Dumper,
        sort_keys=True,
        allow_unicode=True,
        default_flow_style=False,
    )


class _Reader:
    """Builds values from the parser's events."""

    def __init__(self, text: bytes | str, repeated: list[str] | None) -> None:
        self.repeated = repeated
        self.events = yaml.parse(text, Loader=_LOADER)
        self.anchors: dict[str, Any] = {}
        self.values_left = len(text) + _ALIASED_VALUES
        self.value_count = 0

    def documents(self) -> Iterator[Any]:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors.clear()
                yield self.value(next(self.events), 1)

    def value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _fault(event.start_mark, f'unknown anchor "{event.anchor}" referenced')
            return self.alias_copy(self.anchors[event.anchor], event, depth)
        self.count(event, depth)
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self.sequence(event, depth)
        else:
            value = self.mapping(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def sequence(self, start: Any, depth: int) -> list[Any]:
        _check_tag(start, "seq")
        items = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, depth + 1))
        return items

    def mapping(self, start: Any, depth: int) -> Document:
        _check_tag(start, "map")
        pairs: Document = {}
        merged: list[Any] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            merging = isinstance(event, yaml.ScalarEvent) and _is_plain(event, "<<")
            key = _key(self.value(event, depth + 1), event)
            value = self.value(next(self.events), depth + 1)
            if merging:
                merged += value if isinstance(value, list) else [value]
                continue
            if key in pairs:
                self.duplicate_key(key, event.start_mark)
            pairs[key] = value
        if not all(isinstance(other, dict) for other in merged):
            raise _fault(start.start_mark, "map merge requires map or sequence of maps")
        return _merged(merged, pairs) if merged else pairs

    def duplicate_key(self, key: str, mark: Any) -> None:
        """Refuse or report a duplicate key."""
        message = f'key "{shortened(key)}" already set in map'
        if self.repeated is None:
            raise _fault(mark, message)
        if len(self.repeated) < MAX_CAUSES:
            self.repeated.append(f"line {mark.line + 1}: {message}")

    def alias_copy(self, value: Any, event: Any, depth: int) -> Any:
        """Return a copy of an anchored value, whose values are counted, too."""
        self.count(event, depth)
        if isinstance(value, dict):
            return {key: self.alias_copy(inner, event, depth + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.alias_copy(inner, event, depth + 1) for inner in value]
        return value

    def count(self, event: Any, depth: int) -> None:
        if depth > DEEPEST:
            raise _fault(event.start_mark, f"exceeded max depth of {DEEPEST}")
        self.values_left -= 1
        if self.values_left < 0:
            raise _fault(event.start_mark, "document contains excessive aliasing")
        self.value_count += 1
        if self.value_count > 2 * MAX_VALUES:  # keys are values here, too
            raise too_many()


def _merged(merged: list[Document], pairs: Document) -> Document:
    """Return an object with those of merge keys (``<<``) merged in; the first has precedence.

    There may be as many of them as keys: the object is copied once, not for each.
    """
    united: Document = {}
    for other in reversed(merged):
        united |= other
    return united | pairs


def _scalar(event: Any) -> Any:
    tag = (event.tag or "").removeprefix(_TAG)
    if tag == "str" or (not event.implicit[0] and not tag) or (event.style and not tag):
        return event.value
    if tag not in ("", "!", "int", "float", "bool", "null"):
        raise _fault(event.start_mark, f"tag {event.tag} is not supported")
    return event.value if tag == "!" else _resolved(event.value)


def _resolved(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if match := _INTEGER.fullmatch(text):
        base = str(match.lastgroup)
        digits = match[base].replace("_", "")
        if digits and len(digits) <= 64:
            return int(match["sign"] + digits, _BASES[base])
    if _FLOAT.fullmatch(text):
        with suppress(ValueError):
            return whole_or_float(text)
    return text


def _key(value: Any, event: Any) -> str:
    """Return a key of a JSON object; numbers and booleans become text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise _fault(event.start_mark, "a key of a map must be text, a number or a truth value")


def _is_plain(event: Any, text: str) -> bool:
    return event.value == text and not event.style and event.tag is None


def _check_tag(event: Any, expected: str) -> None:
    if event.tag not in (None, "!", f"{_TAG}{expected}"):
        raise _fault(event.start_mark, f"tag {event.tag} is not supported")


def _fault(mark: Any, problem: str) -> BadRequest:
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return BadRequest(f"yaml: {where}{problem}")


class _Dumper(_DUMPER):  # type: ignore[misc]  # chosen at run time
    """Quotes text that YAML 1.1 reads as another type, and what kubectl quotes besides."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> Any:
        style = "|" if "\n" in text else None
        return self.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)

for _word, _pattern, _first in (
    ("bool", re.compile(r"[yYnN]$"), "yYnN"),
    ("int", re.compile(rf"(?:{_INTEGER.pattern})$", re.ASCII), "-+0123456789"),
    ("float", re.compile(rf"(?:{_FLOAT.pattern})$", re.ASCII), "-+.0123456789"),
):
    _Dumper.add_implicit_resolver(_TAG + _word, _pattern, list(_first))
