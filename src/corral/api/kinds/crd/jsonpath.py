r"""JSONPath of printer columns: ``.status.conditions[?(@.type=="Ready")].status``.

The dialect is that of Kubernetes' client-go: fields by dot or in quotes, ``\`` before a dot that
is part of a name, ``*``, ``..``, indexes, slices, unions and filters with one comparison.  Missing
fields are no error: they yield no values.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

Step = Callable[[Any], Iterator[Any]]
"""Yields the values that one step leads to from a value."""

LONGEST: Final = 4096
"""The most characters of a path."""
MOST_VALUES: Final = 1000
"""The most values of a path: one with many wildcards could match without bounds."""

_NAME = re.compile(r"(?:\\.|[^.\[\]\\(){}\s'\"])+")
_QUOTED = re.compile(r"""\s*(?:'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)")\s*""")
_SLICE = re.compile(r"\s*(-?\d*)\s*(?::\s*(-?\d*)\s*(?::\s*(-?\d+)\s*)?)?")
_FILTER = re.compile(
    r"\?\(\s*@(?P<path>(?:\\.|[^=!<>\s)\\])*)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>.+?)\s*)?\)"
)
_SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class PathError(ValueError):
    """A path cannot be parsed; the message says why."""


class Path:
    """A compiled path."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = tuple(steps)

    def find(self, document: Any) -> list[Any]:
        """Return the values at the path; none if there are none."""
        values = [document]
        for step in self._steps:
            values = [inner for value in values for inner in step(value)][:MOST_VALUES]
        return values


@lru_cache(maxsize=1000)
def compile_path(text: str) -> Path:
    """Compile a path.  Raises PathError."""
    if len(text) > LONGEST:
        raise PathError(f"a path has at most {LONGEST} characters")
    return Path(_steps(text))


def simple_path(text: str) -> tuple[str, ...]:
    """Return the fields of a path that has only fields.  Raises PathError for others."""
    if not text.startswith("."):
        raise PathError("must be a simple json path starting with .")
    names = text[1:].split(".")
    if not all(names) or any(set(name) & set("[]*'\"(){}") for name in names):
        raise PathError("must be a json path in the dot notation")
    return tuple(names)


def _steps(text: str) -> Iterator[Step]:
    place = 0
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    if text.startswith("$"):
        place = 1
    while place < len(text):
        if text.startswith("..", place):
            yield _descend
            place += 1
        elif text[place] == "[":
            end = _closing(text, place)
            yield _bracket(text[place + 1 : end])
            place = end + 1
        elif text[place] == "." and text.startswith("[", place + 1):
            place += 1
        else:
            start = place + 1 if text[place] == "." else place
            if start == len(text) and place == 0:
                return
            match = _NAME.match(text, start)
            if match is None or (start == place and place > 0):
                raise PathError(f"unexpected {text[place:][:20]!r}")
            yield _field(re.sub(r"\\(.)", r"\1", match[0]))
            place = match.end()


def _closing(text: str, start: int) -> int:
    """Return the position of the bracket that closes the one at ``start``."""
    depth, quote, place = 0, "", start
    while place < len(text):
        letter = text[place]
        if letter == "\\":
            place += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
            if not depth:
                return place
        place += 1
    raise PathError("unterminated array")


def _bracket(text: str) -> Step:
    if text.strip() == "*":
        return _each
    if text.startswith("?"):
        return _filter(text)
    if match := _QUOTED.fullmatch(text):
        return _field(re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else match[2]))
    parts = text.split(",")
    if len(parts) > 1:
        return _union([_bracket(part) for part in parts])
    match = _SLICE.fullmatch(text)
    if match is None or not text.strip():
        raise PathError(f"invalid array index {text[:40]}")
    if ":" not in text:
        return _index(int(match[1]))
    start, end, by = (int(part) if part else None for part in match.groups())
    if by is not None and by <= 0:
        raise PathError("step must be > 0")
    return _sliced(slice(start, end, by))


def _field(name: str) -> Step:
    if name == "*":
        return _each

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _index(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _sliced(part: slice) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[part]

    return step


def _union(steps: list[Step]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for each in steps:
            yield from each(value)

    return step


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _descend(value: Any) -> Iterator[Any]:
    pending = [value]
    while pending:
        current = pending.pop()
        yield current
        pending += reversed(list(_each(current)))


def _filter(text: str) -> Step:
    match = _FILTER.fullmatch(text.strip())
    if match is None:
        raise PathError(f"unrecognized filter {text[:40]}")
    path = Path(_steps(match["path"]))
    if match["sign"] is None:
        return lambda value: (item for item in _each(value) if path.find(item))
    compare, operand = _SIGNS[match["sign"]], _literal(match["value"])

    def step(value: Any) -> Iterator[Any]:
        for item in _each(value):
            values = path.find(item)[:1]
            if values and _comparable(values[0], operand) and compare(values[0], operand):
                yield item

    return step


def _literal(text: str) -> Any:
    if match := _QUOTED.fullmatch(text):
        return re.sub(r"\\(.)", r"\1", match[1] if match[1] is not None else match[2])
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise PathError(f"unrecognized value {text[:40]}") from None


def _comparable(one: Any, other: Any) -> bool:
    numbers = (int, float)
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool)
    if isinstance(one, numbers) or isinstance(other, numbers):
        return isinstance(one, numbers) and isinstance(other, numbers)
    return isinstance(one, str) and isinstance(other, str)
