"""Label selectors and field selectors.

Syntax and messages are those of apimachinery's labels and fields packages.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

from corral.api.errors import MAX_CAUSES, BadRequest, shortened
from corral.api.names import label_key_faults, label_value_faults

Labels = Mapping[str, str]

_JOINED = {
    "=": "=",
    "==": "==",
    "!=": "!=",
    "in": " in ",
    "notin": " notin ",
    "gt": ">",
    "lt": "<",
}
_OPERATORS = {"in", "notin", "=", "==", "!=", ">", "<"}
_SYMBOLS = {">": "gt", "<": "lt"}
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_TOKEN = re.compile(r"==|!=|[()!,=<>]|[^\s()!,=<>]+", re.ASCII)
LONGEST = 64 * 1024
"""Characters of a selector: room for the names of a thousand objects."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on one label.

    ``operator`` is one of ``= == != in notin exists ! gt lt``, ``!`` being "is absent".
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _value_set: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_value_set", frozenset(self.values))

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "=" | "==" | "in":
                return value is not None and value in self._value_set
            case "!=" | "notin":
                return value is None or value not in self._value_set
            case "exists":
                return value is not None
            case "!":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        bound = int(self.values[0])
        return int(value) > bound if self.operator == "gt" else int(value) < bound

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in ("in", "notin"):
            values = f"({values})"
        return f"{self.key}{_JOINED[self.operator]}{values}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all be met; ``str`` returns the canonical text of status fields.

    nothing: matches no object, as a missing selector in a spec.
    """

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    _equal: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """Labels that must have a value: the fast path, because most selectors have nothing else."""
    _others: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        equal: dict[str, str] = {}
        others = []
        for each in self.requirements:
            if each.operator in ("=", "==") and each.key not in equal:
                equal[each.key] = each.values[0]
            else:
                others.append(each)
        object.__setattr__(self, "_equal", equal)
        object.__setattr__(self, "_others", tuple(others))

    def matches(self, labels: Labels | None) -> bool:
        if self.nothing:
            return False
        labels = labels or {}
        if not self._equal.items() <= labels.items():
            return False
        return not self._others or all(each.matches(labels) for each in self._others)

    def __bool__(self) -> bool:
        """False if every object matches, so that matching can be skipped."""
        return self.nothing or bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


NOTHING = LabelSelector(nothing=True)


def parse_labels(text: str) -> LabelSelector:
    """Parse ``labelSelector=`` of a query: ``app=web,tier in (a,b),!old``.  Raises BadRequest."""
    _refuse_long(text)
    return _LabelParser(text).parse()


def _refuse_long(text: str) -> None:
    if len(text) > LONGEST:
        raise BadRequest(f"a selector may have {LONGEST} characters at most, not {len(text)}")


def label_selector(document: Mapping[str, Any] | None) -> LabelSelector:
    """Read meta/v1 LabelSelector: ``{matchLabels, matchExpressions}``.

    None matches nothing, an empty one everything.  Raises BadRequest.
    """
    if document is None:
        return NOTHING
    requirements = [
        requirement(key, "=", (value,))
        for key, value in (document.get("matchLabels") or {}).items()
    ]
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    for expression in document.get("matchExpressions") or ():
        name = expression.get("operator", "")
        if name not in operators:
            raise BadRequest(f'"{shortened(name)}" is not a valid label selector operator')
        values = tuple(expression.get("values") or ())
        requirements.append(requirement(expression.get("key", ""), operators[name], values))
    return _sorted(requirements)


def _sorted(requirements: Sequence[Requirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(requirements, key=lambda each: each.key)))


def requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    faults = list(islice(_faults(key, operator, values), MAX_CAUSES))
    if faults:
        raise BadRequest(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
    return Requirement(key, operator, values)


def _faults(key: str, operator: str, values: tuple[str, ...]) -> Iterator[str]:
    for fault in _as_one(label_key_faults(key)):
        yield _invalid("key", key, fault)
    if (miscount := _count_fault(operator, values)) is not None:
        yield _invalid("values", f"[{','.join(values)}]", miscount, quote="")
    for index, value in enumerate(values):
        if operator in ("gt", "lt") and not _INTEGER.fullmatch(value):
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield _invalid(f"values[{index}]", value, text)
        path = f"values[{index}][{shortened(key)}]"
        for text in _as_one(label_value_faults(value)):
            yield _invalid(path, value, text)


def _count_fault(operator: str, values: tuple[str, ...]) -> str | None:
    if operator in ("in", "notin"):
        return None if values else "for 'in', 'notin' operators, values set can't be empty"
    if operator in ("exists", "!"):
        return "values set must be empty for exists and does not exist" if values else None
    if len(values) == 1:
        return None
    if operator in ("gt", "lt"):
        return "for 'Gt', 'Lt' operators, exactly one value is required"
    return "exact-match compatibility requires one single value"


def _as_one(faults: list[str]) -> list[str]:
    return ["; ".join(faults)] if faults else []


def _invalid(path: str, value: str, fault: str, *, quote: str = '"') -> str:
    return f"{path}: Invalid value: {quote}{shortened(value)}{quote}: {fault}"


class _LabelParser:
    """A recursive descent parser; the token ``""`` is the end of the text."""

    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next_token(self) -> str:
        found = self.peek()
        self.at += 1
        return found

    def parse(self) -> LabelSelector:
        requirements: list[Requirement] = []
        while found := self.peek():
            if found != "!" and not _is_word(found):
                self.refuse(found, "!, identifier, or 'end of string'")
            try:
                requirements.append(self.requirement())
            except BadRequest as error:
                raise BadRequest(f"unable to parse requirement: {error.message}") from None
            if (found := self.next_token()) and found != ",":
                self.refuse(found, "',' or 'end of string'")
            if found and not _is_word(self.peek()) and self.peek() != "!":
                self.refuse(self.peek(), "identifier after ','")
        return _sorted(requirements)

    def requirement(self) -> Requirement:
        absent = self.peek() == "!"
        if absent:
            self.next_token()
        key = self.next_token()
        if not _is_word(key):
            self.refuse(key, "identifier")
        if faults := label_key_faults(key):
            raise BadRequest(_invalid("<nil>", key, "; ".join(faults)))
        if absent:
            return requirement(key, "!", ())
        if self.peek() in ("", ","):
            return requirement(key, "exists", ())
        operator = self.next_token()
        if operator not in _OPERATORS:
            self.refuse(operator, "in, notin, =, ==, !=, gt, lt")
        values = self.values() if operator in ("in", "notin") else (self.value(),)
        return requirement(key, _SYMBOLS.get(operator, operator), values)

    def value(self) -> str:
        if self.peek() in ("", ","):
            return ""
        value = self.next_token()
        if not _is_word(value):
            self.refuse(value, "identifier")
        return value

    def values(self) -> tuple[str, ...]:
        if (found := self.next_token()) != "(":
            raise BadRequest(f"found '{shortened(found)}' expected: '('")
        if self.peek() == ")":
            self.next_token()
            return ()
        values = {self.list_value()}
        while (found := self.next_token()) == ",":
            values.add(self.list_value())
        if found != ")":
            self.refuse(found, "',' or ')'")
        return tuple(sorted(values))

    def list_value(self) -> str:
        """Parse a value of a list; nothing between two commas is the empty value."""
        if self.peek() in (",", ")"):
            return ""
        if not _is_word(self.peek()):
            self.refuse(self.peek(), "',', ')' or identifier")
        return self.next_token()

    def refuse(self, found: str, expected: str) -> NoReturn:
        raise BadRequest(f"found '{shortened(found)}', expected: {expected}")


def _is_word(found: str) -> bool:
    return bool(found) and found[0] not in "()!,=<>"


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """A condition that a field equals a value, or does not."""

    field: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        value = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'=' if self.equal else '!='}{value}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms that must all hold."""

    terms: tuple[FieldTerm, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def exact(self, field: str) -> str | None:
        """Return the value that a term requires of a field, if any."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    def check(self, supported: Container[str]) -> None:
        """Raise BadRequest for an unsupported field."""
        for term in self.terms:
            if term.field not in supported:
                raise BadRequest(f"field label not supported: {shortened(term.field)}")

    def matches(self, values: Mapping[str, str]) -> bool:
        """Report whether an object with these values of the terms' fields is selected."""
        return all((values[term.field] == term.value) is term.equal for term in self.terms)


def parse_fields(text: str) -> FieldSelector:
    r"""Parse ``fieldSelector=`` of a query: ``metadata.name=a,status.phase!=Running``.

    In values ``\\``, ``\,`` and ``\=`` are escapes of the character.  Raises BadRequest.
    """
    _refuse_long(text)
    return FieldSelector(tuple(_term(text, part) for part in _split_terms(text) if part))


def _split_terms(text: str) -> list[str]:
    return re.findall(r"((?:\\.|[^\\,]|\\$)*)(?:,|$)", text, re.DOTALL)


def _term(text: str, part: str) -> FieldTerm:
    match = re.fullmatch(r"((?:\\.|[^\\=!]|!(?!=))*)(!=|==|=)(.*)", part, re.DOTALL)
    if match is None:
        message = f"'{shortened(text)}'; can't understand '{shortened(part)}'"
        raise BadRequest(f"invalid selector: {message}")
    field, operator, value = match.groups()
    return FieldTerm(field, _unescape(value), operator != "!=")


def _unescape(value: str) -> str:
    if "\\" not in value and "=" not in value:
        return value
    plain = []
    for escaped, character in re.findall(r"(\\.?)|([^\\])", value, re.DOTALL):
        if escaped and escaped not in ("\\\\", "\\,", "\\="):
            raise BadRequest(f"invalid field selector: invalid escape sequence: {escaped}")
        if character and character in ",=":
            raise BadRequest(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        plain.append(character or escaped[1])
    return "".join(plain)
