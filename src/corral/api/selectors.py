"""Label selectors and field selectors: parsed once, then matched against many objects.

Texts and meanings are those of Kubernetes (apimachinery's labels and fields packages), so a
selector that is refused is refused in the words that users know.
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
    """One condition on one label.

    ``operator`` is one of ``= == != in notin exists ! gt lt``, ``!`` being "is absent".
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _known: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", frozenset(self.values))

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "=" | "==" | "in":
                return value is not None and value in self._known
            case "!=" | "notin":
                return value is None or value not in self._known
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
    """Requirements that must all be met; ``str`` gives the canonical text that status fields hold.

    ``nothing`` matches no object at all: what a missing selector means in a spec.
    """

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    _equal: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """Labels that must have a value: most selectors ask for nothing else, and are asked often."""
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
        """False where every object matches, so that matching can be left out."""
        return self.nothing or bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


NOTHING = LabelSelector(nothing=True)


def parse_labels(text: str) -> LabelSelector:
    """Reads ``labelSelector=`` of a query: ``app=web,tier in (a,b),!old``.  Raises BadRequest."""
    _refuse_long(text)
    return _LabelParser(text).parse()


def _refuse_long(text: str) -> None:
    if len(text) > LONGEST:
        raise BadRequest(f"a selector may have {LONGEST} characters at most, not {len(text)}")


def label_selector(document: Mapping[str, Any] | None) -> LabelSelector:
    """Reads meta/v1 LabelSelector: ``{matchLabels, matchExpressions}``.

    None matches nothing, an empty one everything.  Raises BadRequest with the parser's words.
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
    for fault in _joined(label_key_faults(key)):
        yield _invalid("key", key, fault)
    if (miscount := _count_fault(operator, values)) is not None:
        yield _invalid("values", f"[{','.join(values)}]", miscount, quote="")
    for index, value in enumerate(values):
        if operator in ("gt", "lt") and not _INTEGER.fullmatch(value):
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield _invalid(f"values[{index}]", value, text)
        path = f"values[{index}][{shortened(key)}]"
        for text in _joined(label_value_faults(value)):
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


def _joined(faults: list[str]) -> list[str]:
    return ["; ".join(faults)] if faults else []


def _invalid(path: str, value: str, fault: str, *, quote: str = '"') -> str:
    return f"{path}: Invalid value: {quote}{shortened(value)}{quote}: {fault}"


class _LabelParser:
    """Recursive descent over tokens; ``""`` stands for the end of the text."""

    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
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
            if (found := self.take()) and found != ",":
                self.refuse(found, "',' or 'end of string'")
            if found and not _is_word(self.peek()) and self.peek() != "!":
                self.refuse(self.peek(), "identifier after ','")
        return _sorted(requirements)

    def requirement(self) -> Requirement:
        absent = self.peek() == "!"
        if absent:
            self.take()
        key = self.take()
        if not _is_word(key):
            self.refuse(key, "identifier")
        if faults := label_key_faults(key):
            raise BadRequest(_invalid("<nil>", key, "; ".join(faults)))
        if absent:
            return requirement(key, "!", ())
        if self.peek() in ("", ","):
            return requirement(key, "exists", ())
        operator = self.take()
        if operator not in _OPERATORS:
            self.refuse(operator, "in, notin, =, ==, !=, gt, lt")
        values = self.values() if operator in ("in", "notin") else (self.value(),)
        return requirement(key, _SYMBOLS.get(operator, operator), values)

    def value(self) -> str:
        if self.peek() in ("", ","):
            return ""
        value = self.take()
        if not _is_word(value):
            self.refuse(value, "identifier")
        return value

    def values(self) -> tuple[str, ...]:
        if (found := self.take()) != "(":
            raise BadRequest(f"found '{shortened(found)}' expected: '('")
        if self.peek() == ")":
            self.take()
            return ()
        values = {self.listed()}
        while (found := self.take()) == ",":
            values.add(self.listed())
        if found != ")":
            self.refuse(found, "',' or ')'")
        return tuple(sorted(values))

    def listed(self) -> str:
        """A value of a list; nothing between two commas is the empty value."""
        if self.peek() in (",", ")"):
            return ""
        if not _is_word(self.peek()):
            self.refuse(self.peek(), "',', ')' or identifier")
        return self.take()

    def refuse(self, found: str, expected: str) -> NoReturn:
        raise BadRequest(f"found '{shortened(found)}', expected: {expected}")


def _is_word(found: str) -> bool:
    return bool(found) and found[0] not in "()!,=<>"


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """A field is, or is not, exactly a value."""

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
        """The only value that the field may have, where a term says so."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    def check(self, supported: Container[str]) -> None:
        """Raises BadRequest for a field that is not among the supported ones."""
        for term in self.terms:
            if term.field not in supported:
                raise BadRequest(f"field label not supported: {shortened(term.field)}")

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether an object is selected that has these values in the fields of the terms."""
        return all((values[term.field] == term.value) is term.equal for term in self.terms)


def parse_fields(text: str) -> FieldSelector:
    r"""Reads ``fieldSelector=`` of a query: ``metadata.name=a,status.phase!=Running``.

    In values ``\\``, ``\,`` and ``\=`` stand for the character itself.  Raises BadRequest.
    """
    _refuse_long(text)
    return FieldSelector(tuple(_term(text, part) for part in _split_terms(text) if part))


def _split_terms(text: str) -> list[str]:
    return re.findall(r"((?:\\.|[^\\,]|\\$)*)(?:,|$)", text, re.DOTALL)


def _term(text: str, part: str) -> FieldTerm:
    match = re.fullmatch(r"((?:\\.|[^\\=!]|!(?!=))*)(!=|==|=)(.*)", part, re.DOTALL)
    if match is None:
        told = f"'{shortened(text)}'; can't understand '{shortened(part)}'"
        raise BadRequest(f"invalid selector: {told}")
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
